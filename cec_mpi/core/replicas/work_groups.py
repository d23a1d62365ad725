"""The minimum makespan of work that only certain machines can do, by flows and minimum cuts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.flow import Network

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TARGET_UNITS = 1 << 29  # for all work; fits in 32 bits, so that one call of SciPy finds a flow
_TIME_TOLERANCE = 1e-9  # relative, for the rounding to whole units


class WorkGroups:
    """Groups of work, and the machines that can do it, each machine at most once.

    Parameters
    ----------
    costs : (G,) sequence of float
        Positive cost of each group.
    holders : sequence of sequence of int
        At least `machines_per_row` machines for each group, counted from 0.
    machines : int
    machines_per_row : int
        Machines that do the same work: ``1 + S`` to tolerate S stragglers.

    Attributes
    ----------
    unit_cost : float
        Cost of a unit of work.
    units : (G,) ndarray of int64
        Cost of each group in whole units.
    group, machine : (E,) ndarray of int64
        All pairs of a group and a machine that can do its work.

    Examples
    --------
    Machine 2 alone holds half of the work, and its speed is the sum of the other speeds:

    >>> groups = WorkGroups([3.0, 3.0], [(0, 1), (2,)], 3)
    >>> time, _ = groups.minimise_makespan(np.array([1.0, 1.0, 2.0]))
    >>> time
    1.5
    """

    def __init__(
        self,
        costs: Sequence[float] | NDArray[Any],
        holders: Sequence[Sequence[int]],
        machines: int,
        machines_per_row: int = 1,
    ) -> None:
        self._machines_per_row, self._machines = machines_per_row, machines
        ends = np.cumsum(np.append(0.0, costs))
        self.unit_cost = machines_per_row * float(ends[-1]) / _TARGET_UNITS
        self.units = np.maximum(1, np.diff(np.rint(ends / self.unit_cost))).astype(np.int64)
        self._costs = self.units * self.unit_cost  # in whole units, so that cuts are exact
        self.group = np.repeat(np.arange(len(holders)), [len(machines) for machines in holders])
        self.machine = np.fromiter(chain.from_iterable(holders), np.int64, self.group.size)
        pairs = np.stack([self.group, self.machine], axis=1)
        self._network = Network(
            machines_per_row * self.units, self.units[self.group], pairs, machines
        )
        self._total_units = int(machines_per_row * self.units.sum())

    def minimise_makespan(
        self, speeds: Floats, overheads: Floats | None = None
    ) -> tuple[float, Ints]:
        """Return the minimum makespan, and an assignment with it.

        Parameters
        ----------
        speeds : (N,) ndarray of float
            Cost per unit of time.
        overheads : (N,) ndarray of float, optional
            Overhead of each machine, as an equivalent cost.

        Returns
        -------
        time : float
        pair_units : (E,) ndarray of int64
            Units of each pair of `group` and `machine`; ``machines_per_row * units`` for each
            group.

        Notes
        -----
        A time is too short if the maximum flow from groups to machines with capacities
        ``time * speed - overhead`` is less than the work. Its minimum cut gives groups A and
        machines B such that ``sum (machines_per_row - |holders outside B|) cost`` over A exceeds
        the capacity of B. The time at which both are equal is a lower bound, and the next time to
        try (Newton's method on the cuts). No cut occurs twice.
        """
        if overheads is None:
            overheads = np.zeros(self._machines)
        holders = np.unique(self.machine)
        total = self._machines_per_row * float(self._costs.sum())
        time = _finish_time(total, speeds[holders], overheads[holders])
        while True:
            capacity = np.maximum(time * speeds - overheads, 0) / self.unit_cost
            capacity = np.minimum(capacity * (1 + _TIME_TOLERANCE) + 1, self._total_units)
            flow = self._network.max_flow(capacity.astype(np.int64))
            if int(flow.sum()) == self._total_units:
                return time, flow
            cut_groups, cut_machines = self._min_cut(flow)
            is_outside = ~cut_machines[self.machine]
            outside_holders = np.bincount(self.group[is_outside], minlength=self._costs.size)
            costs = (self._machines_per_row - outside_holders) * self._costs
            work = float(costs[cut_groups].sum())
            bound = _finish_time(work, speeds[cut_machines], overheads[cut_machines])
            time = max(bound, time * (1 + _TIME_TOLERANCE))

    def _min_cut(self, flow: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the groups and machines on the source side of a minimum cut."""
        group, machine = self.group, self.machine
        can_grow, can_shrink = flow < self.units[group], flow > 0
        groups = np.bincount(group, flow, self.units.size) < self._machines_per_row * self.units
        machines = np.zeros(self._machines, bool)
        while True:  # until no residual edge leaves the set
            machines[machine[can_grow & groups[group]]] = True
            reached_groups = groups.copy()
            reached_groups[group[can_shrink & machines[machine]]] = True
            if (reached_groups == groups).all():
                return groups, machines
            groups = reached_groups


def _finish_time(work: float, speeds: Floats, overheads: Floats) -> float:
    """Return the time at which ``sum(max(0, speeds * time - overheads))`` equals `work`."""
    starts = overheads / speeds
    order = np.argsort(starts)
    times = (work + np.cumsum(overheads[order])) / np.cumsum(speeds[order])
    next_starts = np.append(starts[order][1:], np.inf)
    return float(times[np.argmax(times <= next_starts)])
