"""Whole rows that outlast the loss of any S machines, when machines hold several shards."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from cec_mpi.core.holding.load import Floats, Ints, in_time_of, limited_load
from cec_mpi.core.holding.mixing import Problem, mixed_parts, subsets
from cec_mpi.core.plan.flow import Network
from cec_mpi.core.plan.load import makespan

_ROUNDED = 1 + 4 * np.finfo(np.float64).eps  # m / speed * speed may be a digit below m
_NEAR = 1.001  # times the bound: rows are not rounded in yet another way


class RowsOfType(NamedTuple):
    """Rows that have at most `at_most` shards of any machine; the loads of machines in them."""

    at_most: int
    rows: int
    loads: Ints


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
    parts, bound, alone = mixed_parts(problem)
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
        for some in subsets(np.flatnonzero(way))
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
