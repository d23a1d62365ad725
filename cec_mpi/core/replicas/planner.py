"""Who computes which rows of a sparse X: the flow of its parts to the machines that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment, Scheme, check_available
from cec_mpi.core.plan.blocks import assign_blocks
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.core.plan.planner import Plan, Planner
from cec_mpi.core.plan.schemes import order_along_rows
from cec_mpi.core.replicas.holders import group_by_holders
from cec_mpi.core.replicas.least import WorkGroups
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_LARGE = 0.02  # of a machine's mean share: such a cell is given to a machine on its own ...
_LARGER = 4  # ... if it costs so many times the mean
_FEW = 64  # cells for each machine, up to which all may be given to machines like large ones
_TINY = 64  # cells in all, up to which they are moved one by one afterwards
_BETTER = 1 - 1e-9
_NEAR = 1.005  # so close to the bound nothing else is tried


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
    Parts with the same available holders form a group. The least makespan is of `WorkGroups`, or
    that of the row that costs most on the fastest machine that holds it.

    Cells that cost much more than others are given to machines first: the most expensive one
    first, to the holder which is late by least then, compared with the least makespan, or to the
    one which is done with such cells first, if that is better. Each group is cut where its machines
    have enough of the rest: with S > 0 by Algorithm 1, with ``1 + S`` in the place of L. Cuts are
    moved to the cell before or behind them, so that of the machines on both sides the one that is
    later by then is as early as can be.

    If machines have few cells, cuts between cells can be far from the least makespan. Then all
    cells are given to machines like those that cost much, too, and the better plan is kept.

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
        super().__init__(1, int(parts.rows[-1]), stragglers=stragglers)
        self._parts, self._held = parts, placement
        self._work: _CellGroups | None = None

    def _make_plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        numbers = check_available(available)
        present = check_speeds(speeds)[numbers - 1]
        if self._work is None or self._work.available != available:
            self._work = _CellGroups(self._parts, self._held, available, self._stragglers)
        work, parts = self._work, self._parts
        time, amounts = work.groups.minimise_makespan(present)
        bound = max(time, work.longest_row(present))
        found = work.blocks(time, amounts, present, _NEAR * bound)
        if work.is_small and found.longest > _NEAR * bound:
            found = min(found, work.assign_cells(time, amounts, present), key=_longest)
        starts, stops = parts.rows[found.first], parts.rows[found.last + 1]
        along = np.argsort(starts)
        starts, stops, places = starts[along], stops[along], found.places[along]
        rows = np.bincount(places.ravel(), np.repeat(stops - starts, places.shape[1]), numbers.size)
        machines = numbers[places].astype(np.int32)
        assignment = Assignment(available, rows.astype(np.int64), starts, stops, machines)
        of_all = np.zeros(len(speeds))
        of_all[numbers - 1] = found.costs
        return Plan(assignment, found.longest, bound, costs=of_all)


class _CellBlocks(NamedTuple):
    """Cells ``first <= cell <= last`` and the machines of each block, and what machines do."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    places: NDArray[np.intp]
    costs: Floats
    longest: float


def _longest(found: _CellBlocks) -> float:
    return found.longest


class _CellGroups:
    """All cells, by the available machines that hold them; machines are positions from 0.

    Attributes
    ----------
    available : tuple of int
    machines_per_row : int
        Machines that compute each row.
    groups : Groups
        All cells.
    large : ndarray of int64
        Cells that are given to machines on their own, the most expensive one first.
    rest : Groups
        The other cells.
    """

    def __init__(
        self,
        parts: Parts,
        placement: ReplicaPlacement,
        available: tuple[int, ...],
        stragglers: int,
    ) -> None:
        self.available, machines = available, len(available)
        sets, which = group_by_holders(placement.holders, available)
        if () in sets:
            missing = np.flatnonzero(which == sets.index(()))
            holders = " or ".join(map(str, placement.holders[missing[0]]))
            raise InfeasibleError(
                f"{plural(missing.size, 'part')} of X, of {parts.count}, on no available "
                f"machine: part {missing[0] + 1} needs machine {holders}"
            )
        self.machines_per_row = machines_per_row = 1 + min(stragglers, min(map(len, sets)) - 1)
        costs = parts.cell_costs
        sums = np.bincount(which, parts.costs)
        self.groups = WorkGroups(sums, sets, machines, machines_per_row)
        least = max(_LARGE * machines_per_row / machines * costs.sum(), _LARGER * costs.mean())
        self._part = np.repeat(np.arange(parts.count), np.diff(parts.cells))  # of each cell
        group = which[self._part]
        ends = np.searchsorted(self.groups.group, np.arange(len(sets) + 1))
        self._costs, self._before = costs, parts.cost_before
        self._pairs = np.stack([ends[:-1], ends[1:]], axis=1)[group]  # of each cell
        large = np.flatnonzero(costs > least)
        self.large = large[np.argsort(-costs[large], kind="stable")]
        self.is_small = costs.size <= _FEW * machines
        self._is_row = np.diff(parts.rows)[self.large] == 1
        self._cells = np.argsort(group, kind="stable")
        self._cells = self._cells[costs[self._cells] <= least]
        self._ends = np.append(0, np.cumsum(costs[self._cells]))
        self._firsts = np.searchsorted(group[self._cells], np.arange(len(sets) + 1))
        self.rest = self.groups
        if large.size:
            sums = np.diff(self._ends[self._firsts])
            self.rest = WorkGroups(sums, sets, machines, machines_per_row)

    def longest_row(self, speeds: Floats) -> float:
        """Lower bound of the makespan: the row that takes longest, on its fastest machines."""
        rates = speeds[self.groups.machine]
        rates = rates[np.lexsort((-rates, self.groups.group))]  # fastest first in each group
        fastest = rates[self._pairs[self.large, 0] + self.machines_per_row - 1]
        times = self._costs[self.large] / fastest
        return float(times[self._is_row].max(initial=0.0))

    def blocks(self, time: float, amounts: Ints, speeds: Floats, enough: float) -> _CellBlocks:
        """Give large cells to machines, and cut the others; parameters as of `_assign_large`."""
        large = np.zeros((0, self.machines_per_row), np.intp)
        if self.large.size:
            large, amounts = self._assign_large(time, amounts, speeds, enough)
        cells, ends, owners = self._cut_groups(amounts, speeds)
        first = np.concatenate([self.large, cells])
        last = np.concatenate([self.large, ends])
        return self._with_costs(first, last, np.concatenate([large, owners]), speeds)

    def assign_cells(self, time: float, amounts: Ints, speeds: Floats) -> _CellBlocks:
        """Give all cells to machines like large ones, in the better of two ways."""
        cells = np.argsort(-self._costs, kind="stable")
        found = []
        for given in (np.asarray(amounts * self.groups.unit, np.float64), None):
            places = np.empty((cells.size, self.machines_per_row), np.intp)
            places[cells] = self._assign_greedily(cells, time, given, speeds)
            if cells.size <= _TINY:
                self._local_search(places, speeds)
            is_other = (places[1:] != places[:-1]).any(axis=1) | np.diff(self._part).astype(bool)
            first = np.flatnonzero(np.append(True, is_other))
            last = np.append(first[1:], cells.size) - 1
            found.append(self._with_costs(first, last, places[first], speeds))
        return min(found, key=_longest)

    def _local_search(self, places: NDArray[np.intp], speeds: Floats) -> None:
        """Move or exchange single cells, in place, while that makes the makespan smaller.

        A cell of the machine that ends last goes to another of its machines, perhaps in exchange
        for one of that machine's cells.
        """
        costs, rates = self._costs.tolist(), speeds.tolist()
        holders = [set(self.groups.machine[first:last].tolist()) for first, last in self._pairs]
        placed = [set(row) for row in places.tolist()]
        load = np.bincount(
            places.ravel(), np.repeat(self._costs, self.machines_per_row), speeds.size
        )
        for _ in range(len(costs)):
            last = int((load / speeds).argmax())
            best, change = load[last] / rates[last], None
            for cell in (c for c, machines in enumerate(placed) if last in machines):
                for other in holders[cell] - placed[cell]:
                    back = [
                        c
                        for c, machines in enumerate(placed)
                        if other in machines and last in holders[c] - machines
                    ]
                    for exchanged in (None, *back):
                        more = costs[cell] - (0.0 if exchanged is None else costs[exchanged])
                        end = max(
                            (load[last] - more) / rates[last], (load[other] + more) / rates[other]
                        )
                        if end < best * _BETTER:
                            best, change = end, (cell, other, exchanged, more)
            if change is None:
                break
            cell, other, exchanged, more = change
            placed[cell] ^= {last, other}
            if exchanged is not None:
                placed[exchanged] ^= {last, other}
            load[last] -= more
            load[other] += more
        places[:] = [sorted(machines) for machines in placed]

    def _with_costs(
        self,
        first: NDArray[np.intp],
        last: NDArray[np.intp],
        places: NDArray[np.intp],
        speeds: Floats,
    ) -> _CellBlocks:
        cost_per_machine = np.repeat(
            self._before[last + 1] - self._before[first], self.machines_per_row
        )
        costs = np.asarray(np.bincount(places.ravel(), cost_per_machine, speeds.size), np.float64)
        return _CellBlocks(first, last, places, costs, float((costs / speeds).max()))

    def _assign_large(
        self, time: float, amounts: Ints, speeds: Floats, enough: float
    ) -> tuple[NDArray[np.intp], Ints]:
        """Give large cells to machines, in one of two ways.

        Parameters
        ----------
        time : float
            The least makespan.
        amounts : (E,) ndarray of int64
            Of all work, with that makespan.
        speeds : (N,) ndarray of float
        enough : float
            A makespan with which the other way need not be tried.

        Returns
        -------
        machines : (m, machines_per_row) ndarray of int
            Of each large cell.
        amounts : (E,) ndarray of int64
            Of the rest.
        """
        tried = []
        for given in (np.asarray(amounts * self.groups.unit, np.float64), None):
            machines = self._assign_greedily(self.large, time, given, speeds)
            costs = np.repeat(self._costs[self.large], self.machines_per_row)
            load = np.bincount(machines.ravel(), costs, speeds.size).astype(np.float64)
            longest, others = self.rest.minimise_makespan(speeds, load)
            tried.append((max(longest, float((load / speeds).max())), machines, others))
            if tried[0][0] <= enough:
                break
        _, machines, others = min(tried, key=lambda block_size: block_size[0])
        return machines, others

    def _assign_greedily(
        self, cells: NDArray[np.intp], time: float, amounts: Floats | None, speeds: Floats
    ) -> NDArray[np.intp]:
        """Machines of cells, of one after the other: those that are done first with these.

        With amounts of the least makespan, of those that can be done by then the ones that are late
        by least, compared with these amounts.
        """
        rates, machine, placed = speeds.tolist(), self.groups.machine.tolist(), []
        load, beyond = [0.0] * len(rates), [0.0] * len(rates)
        left = None if amounts is None else amounts.tolist()
        for cost, (first, last) in zip(
            self._costs[cells].tolist(), self._pairs[cells].tolist(), strict=True
        ):
            late = []
            for pair in range(first, last):
                n = machine[pair]
                done, more = (load[n] + cost) / rates[n], 0.0
                if left is not None:
                    done = max(done, time)
                    more = (beyond[n] + max(0.0, cost - left[pair])) / rates[n]
                late.append((done, more, pair))
            chosen = sorted(pair for *_, pair in sorted(late)[: self.machines_per_row])
            for pair in chosen:
                n = machine[pair]
                load[n] += cost
                if left is not None:
                    beyond[n] += max(0.0, cost - left[pair])
                    left[pair] = max(0.0, left[pair] - cost)
            placed.append([machine[pair] for pair in chosen])
        return np.array(placed, np.intp)

    def _cut_groups(self, amounts: Ints, speeds: Floats) -> tuple[Ints, Ints, NDArray[np.intp]]:
        """Cut the other cells into blocks.

        Parameters
        ----------
        amounts : (E,) ndarray of int64
            What each machine has of each group of `rest`.
        speeds : (N,) ndarray of float

        Returns
        -------
        first, last : (m,) ndarray of int64
            Cells of each block.
        machines : (m, machines_per_row) ndarray of int
        """
        whole, firsts, ends = self.rest.whole, self._firsts, self._ends
        group, sizes, machines = self._block_shares(amounts)
        done = np.cumsum(sizes) - np.append(0, np.cumsum(whole))[group]  # in the group
        costs = np.diff(ends[firsts])
        wanted = ends[firsts[group]] + done * (costs / whole)[group]
        cuts = np.clip(np.searchsorted(ends, wanted), firsts[group], firsts[group + 1])
        is_last = np.append(group[1:] != group[:-1], True)
        cuts[is_last] = firsts[group[is_last] + 1]
        self._shift_cuts(cuts, wanted, np.flatnonzero(~is_last), machines, speeds)
        begins = np.append(0, cuts[:-1])
        breaks = np.flatnonzero(np.diff(self._cells) != 1) + 1  # of parts that are not neighbours
        at = np.unique(np.concatenate([begins, breaks]))
        at = at[at < self._cells.size]
        owners = machines[np.searchsorted(begins, at, side="right") - 1]
        last = np.append(at[1:], self._cells.size)[: at.size] - 1
        return self._cells[at], self._cells[last], owners

    def _shift_cuts(
        self,
        cuts: NDArray[np.intp],
        wanted: Floats,
        inner: NDArray[np.intp],
        machines: NDArray[np.intp],
        speeds: Floats,
    ) -> None:
        """Move cuts within groups to the cell before, where that is better."""
        members, seconds_per_row = machines.tolist(), (1 / speeds).tolist()
        late = [0.0] * speeds.size  # of each machine, beyond what was meant, until here
        for k in inner.tolist():
            before, after = members[k], members[k + 1]
            best = float("inf"), 0.0, 0
            for place in range(max(cuts[k] - 1, cuts[k - 1] if k else 0), cuts[k] + 1):
                more = float(self._ends[place] - wanted[k])
                times = [late[n] + more * seconds_per_row[n] for n in before]
                times += [late[n] - more * seconds_per_row[n] for n in after]
                best = min(best, (max(times), more, place))
            _, more, cuts[k] = best
            for n in before:
                late[n] += more * seconds_per_row[n]
            for n in after:
                late[n] -= more * seconds_per_row[n]

    def _block_shares(self, amounts: Ints) -> tuple[Ints, Ints, NDArray[np.intp]]:
        """The group, the size and the machines of each block with which these amounts are met."""
        groups = self.rest
        if self.machines_per_row == 1:
            some = np.flatnonzero(amounts)
            return groups.group[some], amounts[some], groups.machine[some, None]
        found: list[tuple[Ints, Ints, NDArray[np.intp]]] = []
        firsts = np.searchsorted(groups.group, np.arange(groups.whole.size + 1))
        for g, (first, last) in enumerate(pairwise(firsts.tolist())):
            sizes, members = assign_blocks(amounts[first:last], self.machines_per_row)
            along = order_along_rows(members, range(last - first))
            machines = groups.machine[first:last][members[along].astype(np.intp)]
            found.append((np.full(len(sizes), g), np.array(sizes)[along], machines))
        whose, amounts_of, machines = map(np.concatenate, zip(*found, strict=True))
        return whose, amounts_of, machines


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
        self._last: tuple[tuple[int, ...], WorkGroups] | None = None

    def is_feasible(self, machines: Ints) -> bool:
        """Return whether these machines (from 0) hold all parts."""
        return self._placement.count((machines + 1).tolist()) > 0

    def makespan(self, speeds: Sequence[float]) -> float | None:
        """Return the minimum makespan; see `Demand.makespan`."""
        all_speeds = np.asarray(speeds)
        machines = all_speeds.nonzero()[0]
        if not self.is_feasible(machines):
            return None
        return self.optimal_loads(all_speeds[machines], np.zeros(machines.size), machines)[0]

    def optimal_loads(
        self, speeds: NDArray[np.float64], overheads: NDArray[np.float64], machines: Ints
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the minimum makespan and the loads in nonzeros; see `Demand.optimal_loads`."""
        available = tuple((machines + 1).tolist())
        if self._last is None or self._last[0] != available:
            sets, group = group_by_holders(self._placement.holders, available)
            costs = np.bincount(group, self._parts.costs)
            self._last = available, WorkGroups(costs, sets, machines.size)
        groups = self._last[1]
        time, amounts = groups.minimise_makespan(speeds, overheads)
        sums = np.bincount(groups.machine, amounts, machines.size).astype(np.float64)
        return time, sums * groups.unit

    def make_planner(self, scheme: Scheme, stragglers: int) -> ReplicaPlanner:
        """Return a planner; see `Demand.make_planner`. Copies have a single scheme."""
        return ReplicaPlanner(self._parts, self._placement, stragglers)
