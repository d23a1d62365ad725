"""How much each machine computes: Theorem 1, and its counterpart in whole rows.

Speeds are in rows per unit of time. A fractional load ``mu[n]`` is the fraction of its
shard that machine n computes; a whole-row load ``m[n]`` is a number of rows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from numbers import Rational, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InfeasibleError, InputError

__all__ = ["FractionalLoad", "check_speeds", "fractional_load", "makespan", "whole_row_load"]


@dataclass(frozen=True)
class FractionalLoad:
    """The optimal load of Theorem 1.

    Attributes
    ----------
    mu : tuple of Fraction or float
        Fraction of its shard that each machine computes, in the order of the speeds.
    c_star : Fraction or float
        Time of the slowest machine, in shards per unit of speed (times the rows per
        shard: the least possible makespan).
    k_star : int or None
        How many of the slowest machines set ``c_star``; None when every machine
        computes its whole shard because there are only as many as each row needs.
    """

    mu: tuple[Fraction, ...] | tuple[float, ...]
    c_star: Fraction | float
    k_star: int | None


def check_speeds(speeds: Sequence[Real] | ArrayLike) -> NDArray[np.float64]:
    """Speeds as a float64 array, or an `InputError` naming the one that cannot be.

    Examples
    --------
    >>> check_speeds([2, 2, 3])
    array([2., 2., 3.])
    """
    try:
        array = np.asarray(speeds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"speeds {speeds!r} are not numbers: {error}") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"speeds have shape {array.shape}: expected one number per machine")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise InputError(
            f"the speed at position {bad[0] + 1} is {array[bad[0]]}: "
            "expected a positive, finite number"
        )
    return array


def _check_copies(machines: int, copies: int) -> None:
    if copies < 1:
        raise InputError(f"each row on {copies} machines: expected at least 1")
    if machines < copies:
        raise InfeasibleError(
            f"{machines} machine{'s' * (machines != 1)} available: each row needs {copies}"
        )


def fractional_load(speeds: Sequence[Real] | ArrayLike, copies: int) -> FractionalLoad:
    """Theorem 1: the load with which the slowest machine finishes first.

    With the speeds ascending, ``c_k = (k + copies - N) / (s[1] + ... + s[k])`` and ``k*``
    the largest k in ``[N - copies + 1, N]`` with ``c_k <= 1 / s[k]``, the k* slowest
    machines compute ``c* s[n]`` of their shard and the others all of it.

    Parameters
    ----------
    speeds : (N,) sequence of numbers
        Speed of each available machine. Integers and Fractions give an exact result.
    copies : int
        Machines that compute each row: the recovery threshold L (plus S to tolerate S
        stragglers).

    Returns
    -------
    FractionalLoad

    Raises
    ------
    InputError
        A speed is not a positive, finite number.
    InfeasibleError
        There are fewer than `copies` machines.

    Examples
    --------
    >>> load = fractional_load([2, 2, 3, 4], 3)
    >>> print(*load.mu, load.c_star, load.k_star)
    4/7 4/7 6/7 1 2/7 3
    """
    floats = check_speeds(speeds)
    _check_copies(floats.size, copies)
    if isinstance(speeds, Sequence) and all(isinstance(s, Rational) for s in speeds):
        return _exact_load([_fraction(s) for s in speeds if isinstance(s, Rational)], copies)
    scaled, exponent = _scaled(floats)
    if floats.size == copies:
        return FractionalLoad((1.0,) * copies, 1.0 / float(floats.min()), None)
    level, slowest = _level(scaled, copies)
    mu = np.ones(floats.size)
    order = np.argsort(scaled, kind="stable")[:slowest]
    mu[order] = np.minimum(1.0, level * scaled[order])
    return FractionalLoad(tuple(mu.tolist()), math.ldexp(level, -exponent), slowest)


def _fraction(number: Rational) -> Fraction:
    return Fraction(int(number.numerator), int(number.denominator))


def _exact_load(speeds: list[Fraction], copies: int) -> FractionalLoad:
    count = len(speeds)
    if count == copies:
        return FractionalLoad((Fraction(1),) * count, 1 / min(speeds), None)
    order = sorted(range(count), key=speeds.__getitem__)
    prefix = list(accumulate(speeds[n] for n in order))
    k_star = max(
        k
        for k in range(count - copies + 1, count + 1)
        if (k + copies - count) * speeds[order[k - 1]] <= prefix[k - 1]
    )
    c_star = (k_star + copies - count) / prefix[k_star - 1]
    mu = [Fraction(1)] * count
    for n in order[:k_star]:
        mu[n] = c_star * speeds[n]
    return FractionalLoad(tuple(mu), c_star, k_star)


def _scaled(speeds: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Speeds divided by a power of two (so without rounding) that keeps sums finite."""
    exponent = int(np.frexp(speeds.max())[1])
    smallest = float(np.finfo(np.float64).smallest_subnormal)
    return np.maximum(np.ldexp(speeds, -exponent), smallest), exponent


def _level(speeds: NDArray[np.float64], copies: int) -> tuple[float, int]:
    """``(c*, k*)`` of Theorem 1 in floats, for more than `copies` machines."""
    count = speeds.size
    ascending = np.sort(speeds)
    prefix = np.cumsum(ascending)
    k = np.arange(count - copies + 1, count + 1)
    holds = (k + copies - count) * ascending[k - 1] <= prefix[k - 1]
    k_star = int(k[np.flatnonzero(holds)[-1]])
    return float((k_star + copies - count) / prefix[k_star - 1]), k_star


def whole_row_load(speeds: Sequence[Real] | ArrayLike, copies: int, rows: int) -> NDArray[np.int64]:
    """Whole rows per machine with the smallest possible makespan.

    Starts from the fractional optimum rounded down, which no optimal whole-row load
    goes below, and hands out the remaining rows one by one to the machine that would
    have finished first with one row more (ties: lowest position).

    Parameters
    ----------
    speeds : (N,) sequence of numbers
        Speed of each available machine, in rows per unit of time.
    copies : int
        Machines that compute each row.
    rows : int
        Rows per shard, R.

    Returns
    -------
    (N,) ndarray of int64
        Loads m with ``0 <= m <= rows`` and ``m.sum() == copies * rows`` that minimise
        ``max(m / speeds)``.

    Raises
    ------
    InputError
        A speed is not a positive, finite number, or `rows` is less than 1.
    InfeasibleError
        There are fewer than `copies` machines.

    Examples
    --------
    >>> whole_row_load([2, 2, 3, 3, 4, 4], 3, 420)
    array([140, 140, 210, 210, 280, 280])
    """
    floats = check_speeds(speeds)
    _check_copies(floats.size, copies)
    if rows < 1:
        raise InputError(f"{rows} rows per shard: expected at least 1")
    if floats.size == copies:
        return np.full(copies, rows, dtype=np.int64)
    scaled, _ = _scaled(floats)
    level, _ = _level(scaled, copies)
    loads: NDArray[np.int64] = np.floor(np.minimum(1.0, level * scaled) * rows).astype(np.int64)
    missing = copies * rows - int(loads.sum())
    with np.errstate(over="ignore"):
        finish = (loads + 1) / scaled
    queue = [(time, n) for n, time in enumerate(finish.tolist()) if loads[n] < rows]
    heapq.heapify(queue)
    for _ in range(missing):
        _, n = queue[0]
        loads[n] += 1
        if loads[n] < rows:
            heapq.heapreplace(queue, ((int(loads[n]) + 1) / float(scaled[n]), n))
        else:
            heapq.heappop(queue)
    return loads


def makespan(loads: ArrayLike, speeds: Sequence[Real] | ArrayLike) -> float:
    """Time of the machine that finishes last: ``max(loads / speeds)``.

    Examples
    --------
    >>> makespan([140, 140, 210, 210, 280, 280], [2, 2, 3, 3, 4, 4])
    70.0
    """
    return float(np.max(np.asarray(loads) / check_speeds(speeds)))
