"""Rows that outlast the loss of any S machines, when machines hold several shards.

A row must keep L shards when the S machines with most of its shards are late or lost. Rows of type
b have at most b shards of any machine, and L + S b in all. Which part of the rows is of which type
is a linear program: with the parts ``x[b]`` and the loads ``m[n, b]``, in shards, the least T with

    ``m[n, b] <= min(c[n], b) x[b]``, ``sum_n m[n, b] = (L + S b) x[b]`` and
    ``sum_b m[n, b] <= s[n] T``.

For given parts the loads are a flow, and by its least cut T is the largest of all

    ``sum_b x[b] max(0, L + S b - sum_(n not in A) min(c[n], b)) / sum_(n in A) s[n]``

over the sets A of machines; with one type that is Theorem 1. So the program has one unknown for
each type, and a constraint for each of a few sets A, which are found one after the other (Kelley's
method of cutting planes).
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from cec_mpi.core.holding.load import (
    Floats,
    Ints,
    in_floats,
    in_time_of,
    least_time,
    limited_load,
)
from cec_mpi.core.plan.flow import Network
from cec_mpi.core.plan.load import makespan
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

_MOST_ROUNDS, _CLOSE = 50, 1e-10
_ROUNDED = 1 + 4 * np.finfo(np.float64).eps  # m / speed * speed may be a digit below m
_NEAR = 1.001  # times the bound: rows are not rounded in yet another way
_LEAST_PART = 1e-9
_STEEPEST = 1e7  # a cut times this is no better a bound, and not for a solver in floats


class RowsOfType(NamedTuple):
    """Rows that have at most `at_most` shards of any machine; the loads of machines in them."""

    at_most: int
    rows: int
    loads: Ints


class Problem:
    """The types of rows that there can be, and the time that each mix of them takes.

    Parameters
    ----------
    speeds : (M,) ndarray of float64
    counts : (M,) ndarray of int64
        How many shards each machine holds.
    recovery : int
        L.
    stragglers : int
        S.

    Attributes
    ----------
    speeds : (M,) ndarray of float64
        In a unit of which ``2**exponent`` are that of the speeds given: all times are in it.
    exponent : int
    types : (B,) ndarray of int64
        Those b of which there are enough shards.
    limits : (M, B) ndarray of int64
        ``min(c[n], b)``: shards of a machine in a row.
    copies : (B,) ndarray of int64
        ``L + S b``: shards of a row.

    Raises
    ------
    InputError
        S is negative, or speeds differ too much.
    InfeasibleError
        No row can be had that outlasts the loss of S machines.
    """

    def __init__(self, speeds: Floats, counts: Ints, recovery: int, stragglers: int) -> None:
        if stragglers < 0:
            raise InputError(f"{plural(stragglers, 'straggler')}: expected at least 0")
        types = np.arange(1, int(counts.max()) + 1)
        limits = np.minimum(counts[:, None], types)
        copies = recovery + stragglers * types
        there = limits.sum(axis=0) >= copies
        if not there.any():
            raise InfeasibleError(
                f"{plural(counts.size, 'machine')} with {plural(int(counts.sum()), 'shard')} "
                f"available: no row can keep {recovery} of them when any "
                f"{plural(stragglers, 'machine', 'is', 'are')} late or lost"
            )
        self.speeds, self.exponent = in_floats(speeds, "of machines any of which may be late")
        self.types, self.limits, self.copies = types[there], limits[:, there], copies[there]

    def slowest(self, parts: Floats) -> tuple[float, Floats]:
        """The time of such parts of each type; and a bound for all: ``cut @ parts <= time``.

        Parameters
        ----------
        parts : (B,) ndarray of float64
            At least 0, with sum 1.

        Returns
        -------
        time : float
            In shards per unit of speed.
        cut : (B,) ndarray of float64
            ``cut @ parts == time`` for these parts.
        """
        used = np.flatnonzero(parts)
        found = -1.0, np.empty(0)
        for some in _subsets(used):
            limits = self.limits[:, some] @ parts[some]
            time = least_time(self.speeds, limits, float(self.copies[some] @ parts[some]))
            found = max(found, (time, limits), key=lambda each: each[0])
        time, limits = found
        # Machines just at their limits are counted as slow: the bound is the same, and without
        # them rounding errors may leave only machines of hardly any speed.
        slow = limits >= self.speeds * time * (1 - 1e-12)
        missing = np.maximum(self.copies - self.limits[~slow].sum(axis=0), 0)
        return time, missing / self.speeds[slow].sum()


def _subsets(numbers: Ints) -> list[list[int]]:
    """All subsets that are not empty."""
    each = numbers.tolist()
    return [list(some) for k in range(1, len(each) + 1) for some in combinations(each, k)]


class Parts(NamedTuple):
    """The best parts, what no parts can beat, and what each type alone cannot beat.

    Attributes
    ----------
    parts : (B,) ndarray of float64
        Of each type, with sum 1.
    bound : float
        In shards per unit of speed.
    alone : (B,) ndarray of float64
        As the bound.
    """

    parts: Floats
    bound: float
    alone: Floats


def best_parts(problem: Problem) -> Parts:
    """The part of each type with which the slowest machine finishes first.

    Examples
    --------
    >>> problem = Problem(np.array([2.0, 3.0, 3.0]), np.array([2, 3, 3]), 2, 1)
    >>> problem.types, best_parts(problem).parts.round(9), best_parts(problem).bound
    (array([1, 2, 3]), array([0.8, 0.2, 0. ]), 0.4)
    """
    parts, bound, alone = _best_parts(problem)
    times = [in_time_of(float(time), problem.exponent) for time in [bound, *alone]]
    return Parts(parts, times[0], np.array(times[1:]))


def _best_parts(problem: Problem) -> Parts:
    """`best_parts` in the time of the problem."""
    corners = np.eye(problem.types.size)
    time, cut = problem.slowest(corners[0])
    if time <= cut.min():  # no type is better, as often with rows of type 1
        return Parts(corners[0], time, np.append(time, cut[1:]))
    found = [problem.slowest(corner) for corner in corners]
    alone, cuts = np.array([time for time, _ in found]), [cut for _, cut in found]
    first = int(alone.argmin())
    best, time, bound = corners[first], float(alone[first]), float(cuts[first].min())
    for _ in range(_MOST_ROUNDS):
        if time <= bound * (1 + _CLOSE):
            break
        parts, lowest = _lowest(np.array(cuts) / time)
        bound = max(bound, lowest * time)
        tried, cut = problem.slowest(parts)
        cuts.append(cut)
        if tried < time:
            best, time = parts, tried
    return Parts(best, min(bound, time), alone)


def _lowest(cuts: Floats) -> tuple[Floats, float]:
    """The parts whose largest cut is smallest, and how large it is."""
    from scipy.optimize import linprog

    count, types = cuts.shape
    found = linprog(
        np.append(np.zeros(types), 1.0),
        np.column_stack([np.minimum(cuts, _STEEPEST), np.full(count, -1.0)]),
        np.zeros(count),
        np.append(np.ones(types), 0.0)[None],
        [1.0],
    )
    parts = np.where(found.x[:types] < _LEAST_PART, 0.0, found.x[:types])
    return parts / parts.sum(), float(found.fun)


def tolerant_loads(problem: Problem, rows: int) -> tuple[list[RowsOfType], float]:
    """Whole rows of each type, and what no assignment can beat.

    Parameters
    ----------
    problem : Problem
    rows : int
        Rows per shard, R.

    Returns
    -------
    types : list of RowsOfType
        Those of which there are rows: the best parts, rounded up or down so that the makespan is
        least, or one type alone where that is as good.
    bound : float
        In rows per unit of speed.

    Examples
    --------
    >>> problem = Problem(np.array([1.0, 1.0, 4.0]), np.array([2, 2, 4]), 2, 1)
    >>> types, bound = tolerant_loads(problem, 10)
    >>> [(each.at_most, each.rows, each.loads.tolist()) for each in types], bound
    ([(1, 10, [10, 10, 10])], 10.0)
    """
    parts, bound, alone = _best_parts(problem)
    rounded = _rounded(parts, rows)
    best, time = rounded[0], _makespan(problem, rounded[0])
    single = np.eye(len(parts), dtype=np.int64)[alone.argsort(kind="stable")] * rows
    for way in [*rounded[1:], *single]:
        if time <= bound * rows * _NEAR:
            break
        if alone @ way < time or np.count_nonzero(way) > 1:
            found = _makespan(problem, way)
            if found < time:
                best, time = way, found
    return _with_loads(problem, best, time), in_time_of(bound * rows, problem.exponent)


def _rounded(parts: Floats, rows: int) -> list[Ints]:
    """Whole rows of each type: all ways to round these parts of `rows`."""
    least = np.floor(parts * rows).astype(np.int64)
    used = np.flatnonzero(parts)
    ways = []
    for some in combinations(used.tolist(), rows - int(least.sum())):
        way = least.copy()
        way[list(some)] += 1
        ways.append(way)
    return ways


def _makespan(problem: Problem, way: Ints) -> float:
    """The smallest makespan with so many rows of each type."""
    return max(
        makespan(
            limited_load(
                problem.speeds,
                problem.limits[:, some] @ way[some],
                int(problem.copies[some] @ way[some]),
            ),
            problem.speeds,
        )
        for some in _subsets(np.flatnonzero(way))
    )


def _with_loads(problem: Problem, way: Ints, time: float) -> list[RowsOfType]:
    """Loads in each type, with which all machines are done in this time."""
    used = np.flatnonzero(way).tolist()
    limits = problem.limits[:, used] * way[used]
    totals = problem.copies[used] * way[used]
    if len(used) == 1:
        loads = [limited_load(problem.speeds, limits[:, 0], int(totals[0]))]
    else:
        pairs = [(g, n) for g in range(len(used)) for n in range(len(limits))]
        network = Network(totals.tolist(), limits.T.ravel().tolist(), pairs, len(limits))
        most = np.minimum(time * problem.speeds * _ROUNDED, limits.sum(axis=1))
        loads = list(network.flow(np.floor(most).astype(np.int64)))
    return [
        RowsOfType(int(problem.types[b]), int(way[b]), each)
        for b, each in zip(used, loads, strict=True)
    ]
