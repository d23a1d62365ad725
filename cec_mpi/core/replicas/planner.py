"""Who computes which rows of a sparse X: the flow of its parts to the machines that hold them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.algorithm_1 import fill
from cec_mpi.core.plan.assignment import Assignment, check_available
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.plan.planner import Plan, Planner
from cec_mpi.core.plan.schemes import order_along_rows
from cec_mpi.core.replicas.holders import members_of
from cec_mpi.core.replicas.least import Groups
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

Ints = NDArray[np.int64]

_Grouped = tuple[dict[tuple[int, ...], list[int]], Groups, int]


class ReplicaPlanner(Planner):
    """Plans steps of a store of replicas, and gives the same plan back while nothing changes.

    Parameters
    ----------
    parts : Parts
    placement : ReplicaPlacement
    stragglers : int
        S machines, any of which may be late; fewer where parts have too few holders for that.

    Notes
    -----
    Parts with the same available holders are one group. The least makespan is that of `Groups`.
    Each group is cut where its machines have enough: with S > 0 by Algorithm 1, with ``1 + S`` in
    the place of L. Cuts are moved to the next cell.

    Examples
    --------
    >>> from cec_mpi.core.replicas.parts import cut_parts
    >>> parts = cut_parts(np.arange(0, 31, 3), 2, 5)
    >>> planner = ReplicaPlanner(parts, ReplicaPlacement(((1, 2), (2, 3)), (0, 5, 10), 3))
    >>> plan = planner.plan((1, 2, 3), (1.0, 1.0, 2.0))
    >>> [(block.start, block.stop, block.machines) for block in plan.assignment.blocks]
    [(0, 3, (1,)), (3, 5, (2,)), (5, 10, (3,))]
    """

    def __init__(self, parts: Parts, placement: ReplicaPlacement, stragglers: int = 0) -> None:
        super().__init__(1, int(parts.rows[-1]), stragglers=stragglers, placement=placement)
        self._parts, self._held = parts, placement
        self._grouped: tuple[tuple[int, ...], _Grouped] | None = None

    def _planned(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        numbers = check_available(available)
        present = check_speeds(speeds)[numbers - 1]
        members, groups, copies = self._groups(available)
        time, amounts = groups.least(present)
        blocks: list[tuple[int, int, NDArray[np.int32]]] = []
        late = np.zeros(len(speeds) + 1)  # time of each machine beyond what was meant, until here
        firsts = np.searchsorted(groups.group, np.arange(len(members) + 1))
        parts_of = list(members.values())
        for g in np.argsort(-groups.whole, kind="stable").tolist():
            mine = slice(firsts[g], firsts[g + 1])
            machines = numbers[groups.machine[mine]].astype(np.int32)
            sizes, chosen = _shares(amounts[mine], copies)
            blocks += self._laid(parts_of[g], sizes, machines[chosen], late, speeds)
        blocks.sort(key=lambda block: block[0])
        starts = np.array([start for start, *_ in blocks])
        stops = np.array([stop for _, stop, _ in blocks])
        of_blocks = np.array([each for *_, each in blocks])
        rows, costs = np.zeros(numbers.size, np.int64), np.zeros(numbers.size)
        places = numbers.searchsorted(of_blocks)
        np.add.at(rows, places, (stops - starts)[:, None])
        np.add.at(costs, places, self._parts.cost(starts, stops)[:, None])
        assignment = Assignment(available, rows, starts, stops, of_blocks)
        of_all = np.zeros(len(speeds))
        of_all[numbers - 1] = costs
        longest = float((costs / present).max())
        return Plan(assignment, longest, time, self._held, costs=of_all)

    def _groups(self, available: tuple[int, ...]) -> _Grouped:
        """Parts with the same available machines (as positions), and copies of each row."""
        if self._grouped is None or self._grouped[0] != available:
            members = members_of(self._held.holders, available)
            if missing := members.get(()):
                which = " or ".join(map(str, self._held.holders[missing[0]]))
                raise InfeasibleError(
                    f"{plural(len(missing), 'part')} of X, of {self._parts.count}, on no available "
                    f"machine: part {missing[0] + 1} needs machine {which}"
                )
            copies = 1 + min(self._stragglers, min(map(len, members)) - 1)
            groups = groups_of(self._parts, members, len(available), copies)
            self._grouped = available, (members, groups, copies)
        return self._grouped[1]

    def _laid(
        self,
        parts: list[int],
        sizes: Ints,
        machines: NDArray[np.int32],
        late: NDArray[np.float64],
        speeds: tuple[float, ...],
    ) -> list[tuple[int, int, NDArray[np.int32]]]:
        """Rows of these parts for blocks of such sizes, one behind the other.

        A cut goes to the cell before or behind it, so that of the machines on both sides the one
        that is later by then is as early as can be.
        """
        cells, rows = self._parts.cells, self._parts.rows
        here = np.concatenate([np.arange(cells[p], cells[p + 1]) for p in parts])
        ends = np.append(0, np.cumsum(np.diff(self._parts.cost_before)[here]))
        wanted = np.append(0, np.cumsum(sizes)) * (ends[-1] / sizes.sum())
        blocks: list[tuple[int, int, NDArray[np.int32]]] = []
        behind = np.searchsorted(ends, wanted)
        first = 0
        for k, mine in enumerate(machines):
            last = here.size
            if k + 1 < len(machines):
                after, last = machines[k + 1], int(behind[k + 1])
                lower = max(first, last - 1)
                if lower < last and _later(
                    mine, after, float(ends[lower] - wanted[k + 1]), late, speeds
                ) < _later(mine, after, float(ends[last] - wanted[k + 1]), late, speeds):
                    last = lower
            beyond = float(ends[last] - ends[first] - (wanted[k + 1] - wanted[k]))
            for n in mine.tolist():
                late[n] += beyond / speeds[n - 1]
            some = here[first:last]
            breaks = np.flatnonzero(np.diff(some) > 1) + 1  # of parts that are not neighbours
            runs = [run for run in np.split(some, breaks) if run.size]
            blocks += [(int(rows[run[0]]), int(rows[run[-1] + 1]), mine) for run in runs]
            first = last
        return blocks


def _later(
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    moved: float,
    late: NDArray[np.float64],
    speeds: tuple[float, ...],
) -> float:
    """How late the latest of these machines is if so much goes to those before."""
    times = (
        *(late[n] + moved / speeds[n - 1] for n in before.tolist()),
        *(late[n] - moved / speeds[n - 1] for n in after.tolist()),
    )
    return float(max(times))


def _shares(amounts: Ints, copies: int) -> tuple[Ints, NDArray[np.intp]]:
    """Sizes of blocks, and the machines of each, as positions, with which these amounts are met."""
    if copies == 1:
        chosen = np.flatnonzero(amounts)
        return amounts[chosen], chosen[:, None]
    sizes, members = fill(amounts, copies)
    along = order_along_rows(members, range(amounts.size))
    return np.array(sizes)[along], members[along].astype(np.intp)


class ReplicaDemand:
    """Rows that are each computed by one of their holders; amounts are nonzeros.

    Parameters
    ----------
    parts : Parts
    placement : ReplicaPlacement

    Attributes
    ----------
    machines : int
    total : float
    """

    def __init__(self, parts: Parts, placement: ReplicaPlacement) -> None:
        self._parts, self._placement = parts, placement
        self.machines, self.total = placement.machines, float(parts.costs.sum())
        self._last: tuple[tuple[int, ...], Groups] | None = None

    def hold(self, placement: Placement) -> None:
        """Machines have taken over parts, or have them no more."""
        assert isinstance(placement, ReplicaPlacement)
        self._placement, self._last = placement, None

    def is_met(self, which: Ints) -> bool:
        """Whether these machines (from 0) hold all parts."""
        return self._placement.count((which + 1).tolist()) > 0

    def least(
        self, speeds: NDArray[np.float64], overheads: NDArray[np.float64], which: Ints
    ) -> tuple[float, NDArray[np.float64]]:
        """As `Demand.least`, in nonzeros."""
        available = tuple((which + 1).tolist())
        if self._last is None or self._last[0] != available:
            members = members_of(self._placement.holders, available)
            self._last = available, groups_of(self._parts, members, which.size, 1)
        groups = self._last[1]
        time, amounts = groups.least(speeds, overheads)
        sums = np.bincount(groups.machine, amounts, which.size).astype(np.float64)
        return time, sums * groups.unit


def groups_of(
    parts: Parts, members: dict[tuple[int, ...], list[int]], machines: int, copies: int
) -> Groups:
    """The work of these parts."""
    costs = [float(parts.costs[mine].sum()) for mine in members.values()]
    return Groups(costs, list(members), machines, copies)
