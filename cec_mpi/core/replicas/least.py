"""The least makespan of rows that only some machines hold: a flow, and the cut that proves it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.flow import Network

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_UNITS = 1 << 29  # that all work is counted in: a flow of them needs no second round
_ROUNDED = 1e-9  # of the time: what whole units make of it


class WorkGroups:
    """Work in groups, each of which some machines can do, and each of these only once.

    Parameters
    ----------
    costs : (G,) sequence of float
        What each group costs, positive.
    holders : sequence of sequence of int
        Machines of each group, as positions from 0: at least `machines_per_row` of them.
    machines : int
    machines_per_row : int
        Machines that do each piece of work: ``1 + S`` to tolerate S stragglers.

    Attributes
    ----------
    unit : float
        What a unit costs.
    whole : (G,) ndarray of int64
        The costs in units, whole numbers.
    group, machine : (E,) ndarray of int64
        The pairs of a group and a machine that can do it.

    Examples
    --------
    Machine 2 alone holds half of the work, and is as fast as the others together:

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
        self.unit = machines_per_row * float(ends[-1]) / _UNITS
        self.whole = np.maximum(1, np.diff(np.rint(ends / self.unit))).astype(np.int64)
        self._costs = self.whole * self.unit  # those of the flow, so that cuts are those of it too
        self.group = np.repeat(np.arange(len(holders)), [len(each) for each in holders])
        self.machine = np.fromiter(chain.from_iterable(holders), np.int64, self.group.size)
        pairs = np.stack([self.group, self.machine], axis=1)
        self._network = Network(
            machines_per_row * self.whole, self.whole[self.group], pairs, machines
        )
        self._needed = int(machines_per_row * self.whole.sum())

    def minimise_makespan(
        self, speeds: Floats, overheads: Floats | None = None
    ) -> tuple[float, Ints]:
        """The least time in which all of it can be done, and who does how much then.

        Parameters
        ----------
        speeds : (N,) ndarray of float
            Cost per unit of time.
        overheads : (N,) ndarray of float, optional
            Cost of taking part, of each machine.

        Returns
        -------
        time : float
            No less than that can be enough: some groups need it, with all machines that have them.
        amounts : (E,) ndarray of int64
            Units of each pair of `group` and `machine`, ``machines_per_row * whole`` of each group.

        Notes
        -----
        A time is too short if the largest flow from groups to machines, which take at most
        ``time * speed - overhead``, misses some of the work. The smallest cut names groups A and
        machines B with ``sum (machines_per_row - |holders outside B|) cost > capacity of B``, and
        the time at which both are equal is tried next (Newton's method on the cuts). It is a lower
        bound, and each cut is met once at most.
        """
        extra = np.zeros(self._machines) if overheads is None else overheads
        time = _finish_time(
            self._machines_per_row * float(self._costs.sum()), *self._participating(speeds, extra)
        )
        while True:
            capacity = np.maximum(time * speeds - extra, 0) / self.unit * (1 + _ROUNDED) + 1
            flow = self._network.flow(np.minimum(capacity, self._needed).astype(np.int64))
            if int(flow.sum()) == self._needed:
                return time, flow
            short, full = self._min_cut(flow)
            outside = np.bincount(self.group[~full[self.machine]], minlength=self._costs.size)
            needed = float(((self._machines_per_row - outside) * self._costs)[short].sum())
            time = max(_finish_time(needed, speeds[full], extra[full]), time * (1 + _ROUNDED))

    def _participating(self, speeds: Floats, overheads: Floats) -> tuple[Floats, Floats]:
        """Of the machines that have any of it."""
        there = np.unique(self.machine)
        return speeds[there], overheads[there]

    def _min_cut(self, flow: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Groups and machines to which more work could flow from the groups that miss some."""
        group, machine = self.group, self.machine
        more, back = flow < self.whole[group], flow > 0
        short = np.bincount(group, flow, self.whole.size) < self._machines_per_row * self.whole
        full = np.zeros(self._machines, bool)
        while True:
            full[machine[more & short[group]]] = True
            reached = short.copy()
            reached[group[back & full[machine]]] = True
            if (reached == short).all():
                return short, full
            short = reached


def _finish_time(needed: float, speeds: Floats, overheads: Floats) -> float:
    """The time at which ``sum(max(0, speeds * time - overheads))`` is what is needed."""
    begins = overheads / speeds
    order = np.argsort(begins)
    times = (needed + np.cumsum(overheads[order])) / np.cumsum(speeds[order])
    later = np.append(begins[order][1:], np.inf)
    return float(times[np.argmax(times <= later)])
