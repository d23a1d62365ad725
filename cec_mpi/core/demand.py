"""The total work of a step, and the minimum time in which the machines can do it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Ints, Scheme
from cec_mpi.core.plan.load import check_machines_per_row, check_rows, unchecked_c_star
from cec_mpi.core.plan.planner import Planner

Floats = NDArray[np.float64]


class Demand(Protocol):
    """The work of a step, counted in rows, or in nonzeros of a sparse X.

    Attributes
    ----------
    machines : int
        N.
    total_work : float
        Work of a step, summed over the machines.
    """

    machines: int
    total_work: float

    def is_feasible(self, machines: Ints) -> bool:
        """Return whether these machines (counted from 0) can do all the work."""

    def makespan(self, speeds: Sequence[float]) -> float | None:
        """Return the minimum makespan at the speeds of machines 1..N.

        A speed of 0 excludes a machine. The result is None if the other machines cannot do all
        the work.
        """

    def optimal_loads(
        self, speeds: Floats, overheads: Floats, machines: Ints
    ) -> tuple[float, Floats]:
        """Return the minimum makespan of these machines, and their loads.

        Parameters
        ----------
        speeds, overheads : (n,) ndarray
            Speeds in work per unit of time; overheads of a call in equivalent work.
        machines : (n,) ndarray of int
            Counted from 0.
        """

    def make_planner(self, scheme: Scheme, stragglers: int) -> Planner:
        """Return a planner for this work that tolerates S stragglers."""


class CodedDemand:
    """The work of a coded store: L machines compute each row (Theorem 1).

    Parameters
    ----------
    machines : int
    machines_per_row : int
        L.
    rows : int
        Rows per shard, R.

    Raises
    ------
    InputError
        `rows` or `machines_per_row` is less than 1.
    InfeasibleError
        There are fewer machines than `machines_per_row`.

    Examples
    --------
    >>> demand = CodedDemand(3, 2, 300)
    >>> time, loads = demand.optimal_loads(np.array([1.0, 1.0, 2.0]), np.zeros(3), np.arange(3))
    >>> time, loads.tolist()
    (150.0, [150.0, 150.0, 300.0])
    """

    def __init__(self, machines: int, machines_per_row: int, rows: int) -> None:
        self.machines, self._machines_per_row, self._rows = machines, machines_per_row, rows
        self.total_work = float(machines_per_row * rows)
        check_machines_per_row(machines, machines_per_row)
        check_rows(rows)

    def is_feasible(self, machines: Ints) -> bool:
        """Return whether these are at least L machines."""
        return machines.size >= self._machines_per_row

    def makespan(self, speeds: Sequence[float]) -> float | None:
        """Return c* R of Theorem 1; see `Demand.makespan`."""
        positive = [speed for speed in speeds if speed]
        if len(positive) < self._machines_per_row:
            return None
        return unchecked_c_star(positive, self._machines_per_row) * self._rows

    def optimal_loads(
        self, speeds: Floats, overheads: Floats, machines: Ints
    ) -> tuple[float, Floats]:
        """Return the minimum makespan and the loads in fractional rows.

        See `Demand.optimal_loads`.

        Raises
        ------
        InfeasibleError
            There are fewer than L machines.
        """
        check_machines_per_row(machines.size, self._machines_per_row)
        if overheads.any():
            return optimal_loads(speeds, overheads, self._machines_per_row, self._rows)
        time = unchecked_c_star(speeds.tolist(), self._machines_per_row) * self._rows
        return time, np.minimum(speeds * time, float(self._rows))

    def make_planner(self, scheme: Scheme, stragglers: int) -> Planner:
        """Return a planner; see `Demand.make_planner`."""
        return Planner(self._machines_per_row, self._rows, scheme, stragglers)


def optimal_loads(
    speeds: Floats, overheads: Floats, machines_per_row: int, rows: int
) -> tuple[float, Floats]:
    """Return the minimum makespan with overheads, and the loads in fractional rows.

    The makespan T solves
    ``sum(clip(speeds * T - overheads, 0, rows)) == machines_per_row * rows``.
    Without overheads this is Theorem 1: ``T = c* rows``.

    Parameters
    ----------
    speeds, overheads : (n,) ndarray
        Speeds in rows per unit of time, overheads in rows.
    machines_per_row : int
        Number of machines that compute each row.
    rows : int
        Rows per shard, R.

    Examples
    --------
    >>> time, loads = optimal_loads(np.array([1.0, 1.0, 2.0]), np.array([0.0, 0.0, 4.0]), 2, 10)
    >>> time, loads.tolist()
    (6.0, [6.0, 6.0, 8.0])
    """
    max_load = float(rows)
    total = float(machines_per_row * rows)
    # A machine starts after its overhead, and stops when it has computed all rows.
    times = np.concatenate((overheads, overheads + max_load)) / np.concatenate((speeds, speeds))
    order = times.argsort(kind="stable")  # a machine's start precedes its stop
    ranks = np.empty_like(order)
    ranks[order] = np.arange(order.size)
    start_ranks, stop_ranks = ranks.reshape(2, -1)

    def is_sufficient(event: int) -> bool:
        loads = np.minimum(np.maximum(speeds * times[order[event]] - overheads, 0.0), max_load)
        loads = np.where(stop_ranks <= event, max_load, loads)
        return bool(loads[start_ranks <= event].sum() >= total)

    # The sum is linear in time between two events. Stopped machines contribute exactly `rows`, and
    # no machine contributes less than 0: otherwise a rounding error in the sum could move the
    # result to the start of a much later machine.
    event = bisect_left(range(order.size - 1), True, key=is_sufficient)
    is_running = (start_ranks < event) & (stop_ranks >= event)
    remaining = total - max_load * np.count_nonzero(stop_ranks < event)
    makespan = float((remaining + overheads[is_running].sum()) / speeds[is_running].sum())
    return makespan, np.minimum(np.maximum(speeds * makespan - overheads, 0.0), max_load)
