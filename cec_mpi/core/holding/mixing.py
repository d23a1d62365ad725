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

from cec_mpi.core.holding.load import Floats, Ints, in_floats, in_time_of, least_time
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

_MOST_ROUNDS, _CLOSE = 50, 1e-10
_LEAST_PART = 1e-9
_STEEPEST = 1e7  # a cut times this is no better a bound, and not for a solver in floats


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
        for some in subsets(used):
            limits = self.limits[:, some] @ parts[some]
            time = least_time(self.speeds, limits, float(self.copies[some] @ parts[some]))
            found = max(found, (time, limits), key=lambda each: each[0])
        time, limits = found
        # Machines just at their limits are counted as slow: the bound is the same, and without
        # them rounding errors may leave only machines of hardly any speed.
        slow = limits >= self.speeds * time * (1 - 1e-12)
        missing = np.maximum(self.copies - self.limits[~slow].sum(axis=0), 0)
        return time, missing / self.speeds[slow].sum()


def subsets(numbers: Ints) -> list[list[int]]:
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
    >>> problem.types, best_parts(problem).parts.round(9), round(best_parts(problem).bound, 9)
    (array([1, 2, 3]), array([0.8, 0.2, 0. ]), 0.4)
    """
    parts, bound, alone = mixed_parts(problem)
    times = [in_time_of(float(time), problem.exponent) for time in [bound, *alone]]
    return Parts(parts, times[0], np.array(times[1:]))


def mixed_parts(problem: Problem) -> Parts:
    """`best_parts`, with times in the unit of the problem."""
    corners = np.eye(problem.types.size)
    time, cut = problem.slowest(corners[0])
    if time <= cut.min():  # no type is better, as often with rows of type 1
        return Parts(corners[0], time, np.append(time, cut[1:]))
    found = [problem.slowest(corner) for corner in corners]
    alone, cuts = np.array([time for time, _ in found]), [cut for _, cut in found]
    first = int(alone.argmin())
    best, time, bound = corners[first], float(alone[first]), float(cuts[first].min())
    for parts, faster in _along(problem, first, int(cuts[first].argmin()), cuts):
        if faster < time:
            best, time = parts, faster
    for _ in range(_MOST_ROUNDS):
        if time <= bound * (1 + _CLOSE):
            break
        parts, lowest = _lowest(np.array(cuts) / time)
        bound = max(bound, lowest * time)
        other, cut = problem.slowest(parts)
        cuts.append(cut)
        if other < time:
            best, time = parts, other
    return Parts(best, min(bound, time), alone)


def _along(problem: Problem, i: int, j: int, cuts: list[Floats]) -> list[tuple[Floats, float]]:
    """Mixes of two types, down to the best of these, and their times; adds their cuts.

    Most often no mix of others is better, and the linear program only has to confirm it.
    """
    mixes = []
    left, right = cuts[i], cuts[j]  # lines over the part of j, one falling and one rising
    while left[i] > right[i] and right[j] > left[j]:
        part = (left[i] - right[i]) / (left[i] - right[i] + right[j] - left[j])
        parts = np.zeros(problem.types.size)
        parts[[i, j]] = 1 - part, part
        time, cut = problem.slowest(parts)
        mixes.append((parts, time))
        cuts.append(cut)
        if time <= float(left @ parts) * (1 + _CLOSE) or len(mixes) > _MOST_ROUNDS:
            break
        if cut[j] < cut[i]:
            left = cut
        else:
            right = cut
    return mixes


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
