"""Planning of steps with a replicated sparse X: flows of its parts to their holders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment, Scheme, check_available
from cec_mpi.core.plan.blocks import assign_blocks
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.core.plan.planner import Plan, Planner
from cec_mpi.core.plan.schemes import order_blocks
from cec_mpi.core.replicas.holders import group_by_holders
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.work_groups import WorkGroups
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# A cell is large, and assigned individually, if its cost exceeds both of these.
_LARGE_SHARE = 0.02  # of the mean load of a machine
_LARGE_FACTOR = 4  # times the mean cost of a cell
_MAX_CELLS_PER_MACHINE = 64  # with more, cells are not all assigned individually
_MAX_SEARCHED_CELLS = 64  # with more, there is no local search
_MAX_EXCHANGE_RATIO = 1 - 1e-9  # of the makespan after an exchange to that before
_NEAR_OPTIMAL = 1.005  # ratio of a makespan to its bound that needs no further attempt


class ReplicaPlanner(Planner):
    """A planner of steps of a replicated store, with a cache of its plans.

    Parameters
    ----------
    parts : Parts
    placement : ReplicaPlacement
    stragglers : int
        S, the number of stragglers to tolerate; fewer if parts have too few holders.

    Notes
    -----
    Parts with the same available holders form a group. The lower bound on the makespan is the
    larger of two: that of `WorkGroups`, and the longest time of a row that is a large cell, on the
    slowest of its ``1 + S`` fastest holders.

    Large cells are assigned individually, the most expensive first, by the better of two rules: to
    the holder with the smallest overrun of its load in the optimum, or to the holder that finishes
    its large cells first. Then each group is cut into blocks with the remaining loads of its
    machines; if S > 0, by Algorithm 1 with ``1 + S`` instead of L. Cuts are rounded to the adjacent
    cell boundary that minimises the delay of the machines on both sides.

    If machines have few cells, this rounding can be costly. Then all cells are also assigned
    individually, and the better plan is used.

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
        # Imported here, so that the first plan does not wait for the import.
        import scipy.sparse.csgraph  # noqa: F401

        super().__init__(1, int(parts.first_rows[-1]), stragglers=stragglers)
        self._parts, self._placement = parts, placement
        self._cell_groups: _CellGroups | None = None  # of the last available machines

    def _make_plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        machines = check_available(available)
        available_speeds = check_speeds(speeds)[machines - 1]
        if self._cell_groups is None or self._cell_groups.available != available:
            self._cell_groups = _CellGroups(
                self._parts, self._placement, available, self._stragglers
            )
        cell_groups, parts = self._cell_groups, self._parts
        time, pair_units = cell_groups.groups.minimise_makespan(available_speeds)
        bound = max(time, cell_groups.longest_row_time(available_speeds))
        blocks = cell_groups.make_blocks(time, pair_units, available_speeds, _NEAR_OPTIMAL * bound)
        if cell_groups.can_assign_cells and blocks.makespan > _NEAR_OPTIMAL * bound:
            single_cells = cell_groups.assign_cells(time, pair_units, available_speeds)
            blocks = min(blocks, single_cells, key=attrgetter("makespan"))
        starts, stops = parts.first_rows[blocks.first], parts.first_rows[blocks.last + 1]
        order = np.argsort(starts)
        starts, stops, owners = starts[order], stops[order], blocks.owners[order]
        sizes = np.repeat(stops - starts, owners.shape[1])
        rows = np.bincount(owners.ravel(), sizes, machines.size).astype(np.int64)
        assignment = Assignment(available, rows, starts, stops, machines[owners].astype(np.int32))
        costs = np.zeros(len(speeds))
        costs[machines - 1] = blocks.costs
        return Plan(assignment, blocks.makespan, bound, costs=costs)


class _CellBlocks(NamedTuple):
    """Blocks of cells ``first <= cell <= last`` and their machines; the costs of all machines."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    owners: NDArray[np.intp]
    costs: Floats
    makespan: float


class _CellGroups:
    """All cells, grouped by their available holders; machines are positions in `available`.

    Attributes
    ----------
    available : tuple of int
    machines_per_row : int
        Number of machines that compute each row.
    groups : WorkGroups
        All cells.
    large_cells : ndarray of int64
        Cells that are assigned individually, the most expensive first.
    small_groups : WorkGroups
        The other cells.
    can_assign_cells : bool
        Whether there are few enough cells to assign all of them individually.
    """

    def __init__(
        self,
        parts: Parts,
        placement: ReplicaPlacement,
        available: tuple[int, ...],
        stragglers: int,
    ) -> None:
        self.available, machines = available, len(available)
        sets, set_of_part = group_by_holders(placement.holders, available)
        if () in sets:
            missing = np.flatnonzero(set_of_part == sets.index(()))
            holders = " or ".join(map(str, placement.holders[missing[0]]))
            raise InfeasibleError(
                f"no available machine holds {missing.size} of {plural(parts.count, 'part')} of X: "
                f"part {missing[0] + 1} needs machine {holders}"
            )
        self.machines_per_row = machines_per_row = 1 + min(stragglers, min(map(len, sets)) - 1)
        costs = parts.cell_costs
        group_costs = np.bincount(set_of_part, parts.costs)
        self.groups = WorkGroups(group_costs, sets, machines, machines_per_row)
        mean_load = machines_per_row / machines * costs.sum()
        threshold = max(_LARGE_SHARE * mean_load, _LARGE_FACTOR * costs.mean())
        self._part_of_cell = np.repeat(np.arange(parts.count), np.diff(parts.first_cells))
        group_of_cell = set_of_part[self._part_of_cell]
        starts = np.searchsorted(self.groups.group, np.arange(len(sets) + 1))
        self._costs, self._cost_before = costs, parts.cost_before
        self._pair_ranges = np.stack([starts[:-1], starts[1:]], axis=1)[group_of_cell]  # by cell
        large = np.flatnonzero(costs > threshold)
        self.large_cells = large[np.argsort(-costs[large], kind="stable")]
        self.can_assign_cells = costs.size <= _MAX_CELLS_PER_MACHINE * machines
        self._is_single_row = np.diff(parts.first_rows)[self.large_cells] == 1
        self._small_cells = np.argsort(group_of_cell, kind="stable")
        self._small_cells = self._small_cells[costs[self._small_cells] <= threshold]
        self._cumulative_costs = np.append(0, np.cumsum(costs[self._small_cells]))
        group_of_small_cell = group_of_cell[self._small_cells]
        self._group_starts = np.searchsorted(group_of_small_cell, np.arange(len(sets) + 1))
        self.small_groups = self.groups
        if large.size:
            group_costs = np.diff(self._cumulative_costs[self._group_starts])
            self.small_groups = WorkGroups(group_costs, sets, machines, machines_per_row)

    def longest_row_time(self, speeds: Floats) -> float:
        """Return a lower bound on the makespan: the longest time of a large cell of one row.

        It is the time on the slowest of the cell's `machines_per_row` fastest holders.
        """
        rates = speeds[self.groups.machine]
        rates = rates[np.lexsort((-rates, self.groups.group))]  # descending in each group
        slowest = rates[self._pair_ranges[self.large_cells, 0] + self.machines_per_row - 1]
        times = self._costs[self.large_cells] / slowest
        return float(times[self._is_single_row].max(initial=0.0))

    def make_blocks(
        self, time: float, pair_units: Ints, speeds: Floats, sufficient_makespan: float
    ) -> _CellBlocks:
        """Assign large cells, and cut small cells into blocks; see `_assign_large_cells`."""
        large_owners = np.zeros((0, self.machines_per_row), np.intp)
        if self.large_cells.size:
            large_owners, pair_units = self._assign_large_cells(
                time, pair_units, speeds, sufficient_makespan
            )
        first, last, owners = self._cut_groups(pair_units, speeds)
        first = np.concatenate([self.large_cells, first])
        last = np.concatenate([self.large_cells, last])
        return self._evaluate(first, last, np.concatenate([large_owners, owners]), speeds)

    def assign_cells(self, time: float, pair_units: Ints, speeds: Floats) -> _CellBlocks:
        """Assign all cells individually, by the better of two rules."""
        cells = np.argsort(-self._costs, kind="stable")
        candidates = []
        for pair_costs in (np.asarray(pair_units * self.groups.unit_cost, np.float64), None):
            owners = np.empty((cells.size, self.machines_per_row), np.intp)
            owners[cells] = self._assign_greedily(cells, time, pair_costs, speeds)
            if cells.size <= _MAX_SEARCHED_CELLS:
                self._local_search(owners, speeds)
            is_new_part = np.diff(self._part_of_cell) != 0
            is_new = (owners[1:] != owners[:-1]).any(axis=1) | is_new_part
            first = np.flatnonzero(np.append(True, is_new))
            last = np.append(first[1:], cells.size) - 1
            candidates.append(self._evaluate(first, last, owners[first], speeds))
        return min(candidates, key=attrgetter("makespan"))

    def _local_search(self, owners: NDArray[np.intp], speeds: Floats) -> None:
        """Move or exchange single cells, in place, while that reduces the makespan.

        A move takes a cell from the machine that finishes last to another of its holders, possibly
        in exchange for a cell of that holder.
        """
        costs, rates = self._costs.tolist(), speeds.tolist()
        holders = [
            set(self.groups.machine[first:last].tolist()) for first, last in self._pair_ranges
        ]
        assigned = [set(row) for row in owners.tolist()]
        load = np.bincount(
            owners.ravel(), np.repeat(self._costs, self.machines_per_row), speeds.size
        )
        for _ in range(len(costs)):
            source = int((load / speeds).argmax())
            best_finish, best_move = load[source] / rates[source], None
            for cell in (c for c, machines in enumerate(assigned) if source in machines):
                for target in holders[cell] - assigned[cell]:
                    exchangeable = [
                        c
                        for c, machines in enumerate(assigned)
                        if target in machines and source in holders[c] - machines
                    ]
                    for exchanged in (None, *exchangeable):
                        cost = costs[cell] - (0.0 if exchanged is None else costs[exchanged])
                        finish = max(
                            (load[source] - cost) / rates[source],
                            (load[target] + cost) / rates[target],
                        )
                        if finish < best_finish * _MAX_EXCHANGE_RATIO:
                            best_finish, best_move = finish, (cell, target, exchanged, cost)
            if best_move is None:
                break
            cell, target, exchanged, cost = best_move
            assigned[cell] ^= {source, target}
            if exchanged is not None:
                assigned[exchanged] ^= {source, target}
            load[source] -= cost
            load[target] += cost
        owners[:] = [sorted(machines) for machines in assigned]

    def _evaluate(
        self,
        first: NDArray[np.intp],
        last: NDArray[np.intp],
        owners: NDArray[np.intp],
        speeds: Floats,
    ) -> _CellBlocks:
        """Return the blocks with the costs of their machines and the makespan."""
        block_costs = self._cost_before[last + 1] - self._cost_before[first]
        costs = np.bincount(
            owners.ravel(), np.repeat(block_costs, self.machines_per_row), speeds.size
        ).astype(np.float64)
        return _CellBlocks(first, last, owners, costs, float((costs / speeds).max()))

    def _assign_large_cells(
        self, time: float, pair_units: Ints, speeds: Floats, sufficient_makespan: float
    ) -> tuple[NDArray[np.intp], Ints]:
        """Assign large cells individually, by the better of two rules.

        Parameters
        ----------
        time : float
            The minimum makespan.
        pair_units : (E,) ndarray of int64
            Units of each pair of a group and a machine in the optimum.
        speeds : (N,) ndarray of float
        sufficient_makespan : float
            If the first rule has at most this makespan, the second is not tried.

        Returns
        -------
        machines : (m, machines_per_row) ndarray of int
            The machines of each large cell.
        pair_units : (E,) ndarray of int64
            Units of `small_groups`.
        """
        candidates = []
        for pair_costs in (np.asarray(pair_units * self.groups.unit_cost, np.float64), None):
            machines = self._assign_greedily(self.large_cells, time, pair_costs, speeds)
            costs = np.repeat(self._costs[self.large_cells], self.machines_per_row)
            load = np.bincount(machines.ravel(), costs, speeds.size).astype(np.float64)
            small_time, small_units = self.small_groups.minimise_makespan(speeds, load)
            makespan = max(small_time, float((load / speeds).max()))
            candidates.append((makespan, machines, small_units))
            if makespan <= sufficient_makespan:
                break
        _, machines, small_units = min(candidates, key=lambda candidate: candidate[0])
        return machines, small_units

    def _assign_greedily(
        self, cells: NDArray[np.intp], time: float, pair_costs: Floats | None, speeds: Floats
    ) -> NDArray[np.intp]:
        """Assign cells one by one, each to the machine that finishes it first; return the owners.

        With `pair_costs`, the costs of pairs in the optimum, finish times up to `time` count as
        equal, and the machine with the smallest overrun of these costs is chosen.
        """
        rates, machine_of_pair, owners = speeds.tolist(), self.groups.machine.tolist(), []
        load, overrun = [0.0] * len(rates), [0.0] * len(rates)
        remaining = None if pair_costs is None else pair_costs.tolist()
        for cost, (first, last) in zip(
            self._costs[cells].tolist(), self._pair_ranges[cells].tolist(), strict=True
        ):
            candidates = []
            for pair in range(first, last):
                n = machine_of_pair[pair]
                finish, delay = (load[n] + cost) / rates[n], 0.0
                if remaining is not None:
                    finish = max(finish, time)
                    delay = (overrun[n] + max(0.0, cost - remaining[pair])) / rates[n]
                candidates.append((finish, delay, pair))
            pairs = sorted(pair for *_, pair in sorted(candidates)[: self.machines_per_row])
            for pair in pairs:
                n = machine_of_pair[pair]
                load[n] += cost
                if remaining is not None:
                    overrun[n] += max(0.0, cost - remaining[pair])
                    remaining[pair] = max(0.0, remaining[pair] - cost)
            owners.append([machine_of_pair[pair] for pair in pairs])
        return np.array(owners, np.intp)

    def _cut_groups(self, pair_units: Ints, speeds: Floats) -> tuple[Ints, Ints, NDArray[np.intp]]:
        """Cut the cells of `small_groups` into blocks.

        Parameters
        ----------
        pair_units : (E,) ndarray of int64
            Units of each pair of a group of `small_groups` and a machine.
        speeds : (N,) ndarray of float

        Returns
        -------
        first, last : (m,) ndarray of int64
            First and last cell of each block.
        machines : (m, machines_per_row) ndarray of int
        """
        units, group_starts = self.small_groups.units, self._group_starts
        cumulative_costs = self._cumulative_costs
        group, sizes, machines = self._divide_groups(pair_units)
        stops = np.cumsum(sizes) - np.append(0, np.cumsum(units))[group]  # in units of the group
        costs = np.diff(cumulative_costs[group_starts])
        targets = cumulative_costs[group_starts[group]] + stops * (costs / units)[group]
        cuts = np.searchsorted(cumulative_costs, targets)
        cuts = np.clip(cuts, group_starts[group], group_starts[group + 1])
        is_last = np.append(group[1:] != group[:-1], True)
        cuts[is_last] = group_starts[group[is_last] + 1]
        self._shift_cuts(cuts, targets, np.flatnonzero(~is_last), machines, speeds)
        starts = np.append(0, cuts[:-1])
        # Blocks also end between cells that are not adjacent.
        gaps = np.flatnonzero(np.diff(self._small_cells) != 1) + 1
        first = np.unique(np.concatenate([starts, gaps]))
        first = first[first < self._small_cells.size]
        owners = machines[np.searchsorted(starts, first, side="right") - 1]
        last = np.append(first[1:], self._small_cells.size)[: first.size] - 1
        return self._small_cells[first], self._small_cells[last], owners

    def _shift_cuts(
        self,
        cuts: NDArray[np.intp],
        targets: Floats,
        inner_cuts: NDArray[np.intp],
        machines: NDArray[np.intp],
        speeds: Floats,
    ) -> None:
        """Move cuts within groups one cell back, in place, if that reduces the delay.

        Cut k is between blocks k and k + 1; `machines` are those of the blocks.
        """
        members, time_per_cost = machines.tolist(), (1 / speeds).tolist()
        delay = [0.0] * speeds.size  # of each machine, from the rounding of earlier cuts
        for k in inner_cuts.tolist():
            left, right = members[k], members[k + 1]
            best = float("inf"), 0.0, 0
            for cut in range(max(cuts[k] - 1, cuts[k - 1] if k else 0), cuts[k] + 1):
                shift = float(self._cumulative_costs[cut] - targets[k])
                delays = [delay[n] + shift * time_per_cost[n] for n in left]
                delays += [delay[n] - shift * time_per_cost[n] for n in right]
                best = min(best, (max(delays), shift, cut))
            _, shift, cuts[k] = best
            for n in left:
                delay[n] += shift * time_per_cost[n]
            for n in right:
                delay[n] -= shift * time_per_cost[n]

    def _divide_groups(self, pair_units: Ints) -> tuple[Ints, Ints, NDArray[np.intp]]:
        """Divide groups into blocks; return the group, the units and the machines of each block."""
        groups = self.small_groups
        if self.machines_per_row == 1:
            pairs = np.flatnonzero(pair_units)
            return groups.group[pairs], pair_units[pairs], groups.machine[pairs, None]
        blocks: list[tuple[Ints, Ints, NDArray[np.intp]]] = []
        firsts = np.searchsorted(groups.group, np.arange(groups.units.size + 1))
        for g, (first, last) in enumerate(pairwise(firsts.tolist())):
            sizes, members = assign_blocks(pair_units[first:last], self.machines_per_row)
            order = order_blocks(members, range(last - first))
            machines = groups.machine[first:last][members[order].astype(np.intp)]
            blocks.append((np.full(len(sizes), g), np.array(sizes)[order], machines))
        group, sizes_of_blocks, machines = map(np.concatenate, zip(*blocks, strict=True))
        return group, sizes_of_blocks, machines


class ReplicaDemand:
    """The work of a replicated store, counted in nonzeros: one holder computes each row.

    Parameters
    ----------
    parts : Parts
    placement : ReplicaPlacement

    Attributes
    ----------
    machines : int
    total_work : float
    """

    def __init__(self, parts: Parts, placement: ReplicaPlacement) -> None:
        self._parts, self._placement = parts, placement
        self.machines, self.total_work = placement.machines, float(parts.costs.sum())
        self._groups_cache: tuple[tuple[int, ...], WorkGroups] | None = None

    def is_feasible(self, machines: Ints) -> bool:
        """Return whether these machines (counted from 0) hold all parts."""
        return self._placement.min_holders((machines + 1).tolist()) > 0

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
        if self._groups_cache is None or self._groups_cache[0] != available:
            sets, group = group_by_holders(self._placement.holders, available)
            costs = np.bincount(group, self._parts.costs)
            self._groups_cache = available, WorkGroups(costs, sets, machines.size)
        groups = self._groups_cache[1]
        time, pair_units = groups.minimise_makespan(speeds, overheads)
        units = np.bincount(groups.machine, pair_units, machines.size).astype(np.float64)
        return time, units * groups.unit_cost

    def make_planner(self, scheme: Scheme, stragglers: int) -> ReplicaPlanner:
        """Return a planner; see `Demand.make_planner`. Copies have a single scheme."""
        return ReplicaPlanner(self._parts, self._placement, stragglers)
