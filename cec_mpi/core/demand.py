"""What the machines have to do together in a step, and the least time that it takes them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Ints, Scheme
from cec_mpi.core.plan.load import check_machines_per_row, check_rows, optimal_level
from cec_mpi.core.plan.planner import Planner

Floats = NDArray[np.float64]


class Demand(Protocol):
    """The work of a step; amounts are rows, or nonzeros of a sparse X.

    Attributes
    ----------
    machines : int
        N.
    total : float
        All that is computed in a step.
    """

    machines: int
    total: float

    def is_met(self, which: Ints) -> bool:
        """Whether these machines (from 0) can do all of it."""

    def makespan(self, speeds: Sequence[float]) -> float | None:
        """The least time at speeds of machines 1..N, 0 of those that do nothing.

        None if the others cannot do all of it.
        """

    def least(self, speeds: Floats, overheads: Floats, which: Ints) -> tuple[float, Floats]:
        """The least time of these machines, and what each of them does then.

        Parameters
        ----------
        speeds, overheads : (n,) ndarray
            Amounts per unit of time, and the amount that a call costs.
        which : (n,) ndarray of int
            Machines, from 0.
        """

    def planner(self, scheme: Scheme, stragglers: int) -> Planner:
        """Return what assigns this work so that a step needs no answer of S stragglers."""


class CodedDemand:
    """Rows that are each computed by L machines: Theorem 1.

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
    >>> time, loads = demand.least(np.array([1.0, 1.0, 2.0]), np.zeros(3), np.arange(3))
    >>> time, loads.tolist()
    (150.0, [150.0, 150.0, 300.0])
    """

    def __init__(self, machines: int, machines_per_row: int, rows: int) -> None:
        self.machines, self._machines_per_row, self._rows = machines, machines_per_row, rows
        self.total = float(machines_per_row * rows)
        check_machines_per_row(machines, machines_per_row)
        check_rows(rows)

    def is_met(self, which: Ints) -> bool:
        """Whether these machines (from 0) are at least L."""
        return which.size >= self._machines_per_row

    def makespan(self, speeds: Sequence[float]) -> float | None:
        """As `Demand.makespan`: c* R of Theorem 1."""
        some = [speed for speed in speeds if speed]
        if len(some) < self._machines_per_row:
            return None
        return optimal_level(some, self._machines_per_row) * self._rows

    def least(self, speeds: Floats, overheads: Floats, which: Ints) -> tuple[float, Floats]:
        """As `Demand.least`, in fractions of rows.

        Raises
        ------
        InfeasibleError
            They are fewer than L.
        """
        check_machines_per_row(which.size, self._machines_per_row)
        if overheads.any():
            return optimum(speeds, overheads, self._machines_per_row, self._rows)
        time = optimal_level(speeds.tolist(), self._machines_per_row) * self._rows
        return time, np.minimum(speeds * time, float(self._rows))

    def planner(self, scheme: Scheme, stragglers: int) -> Planner:
        """As `Demand.planner`."""
        return Planner(self._machines_per_row, self._rows, scheme, stragglers)


def optimum(
    speeds: Floats, overheads: Floats, machines_per_row: int, rows: int
) -> tuple[float, Floats]:
    """The least makespan with overheads, and its loads, in fractions of rows.

    The time T at which ``sum(clip(speeds * T - overheads, 0, rows)) == machines_per_row * rows``.
    Without overheads this is Theorem 1: ``T = c* rows``.

    Parameters
    ----------
    speeds, overheads : (n,) ndarray
        The latter in rows.
    machines_per_row : int
        Machines that compute each row.
    rows : int
        Rows per shard, R.

    Examples
    --------
    >>> time, loads = optimum(np.array([1.0, 1.0, 2.0]), np.array([0.0, 0.0, 4.0]), 2, 10)
    >>> time, loads.tolist()
    (6.0, [6.0, 6.0, 8.0])
    """
    most = float(rows)
    needed = float(machines_per_row * rows)
    times = np.concatenate((overheads, overheads + most)) / np.concatenate((speeds, speeds))
    order = times.argsort(kind="stable")  # a machine begins before it ends
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    begins, ends = place.reshape(2, -1)

    def is_enough(event: int) -> bool:
        running = np.minimum(np.maximum(speeds * times[order[event]] - overheads, 0.0), most)
        done = np.where(ends <= event, most, running)
        return bool(done[begins <= event].sum() >= needed)

    # The sum is a straight line between two events. Machines that have ended count with all their
    # rows, which are whole numbers, and others never with less than 0: a sum that misses a digit
    # would wait for a machine that begins much later.
    event = bisect_left(range(order.size - 1), True, key=is_enough)
    running = (begins < event) & (ends >= event)
    missing = needed - most * np.count_nonzero(ends < event)
    finish = float((missing + overheads[running].sum()) / speeds[running].sum())
    return finish, np.minimum(np.maximum(speeds * finish - overheads, 0.0), most)
