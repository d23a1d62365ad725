"""How much each machine computes: Theorem 1, and its counterpart in whole rows.

Speeds are in rows per unit of time. A fractional load ``mu[n]`` is the fraction of its
shard that machine n computes; a whole-row load ``m[n]`` is a number of rows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from numbers import Rational, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.limited import hand_out
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

_MOST_ROWS = 2**48
_FEW = 128  # machines, up to which a loop is faster than NumPy
_USUAL_SPEEDS = 1e-100, 1e100  # between these, no sum and no ratio leaves the floats
_MOST_BINARY_DIGITS = 900  # between the slowest and the fastest machine, for sums in floats


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
    if not isinstance(speeds, np.ndarray) and isinstance(speeds, Iterable):
        for position, speed in enumerate(speeds, start=1):
            if isinstance(speed, (str, bytes)):
                raise InputError(_bad_speed(position, repr(speed)))
    try:
        array = np.asarray(speeds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"speeds that are not numbers: {error}") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"speeds have shape {array.shape}: expected one number per machine")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise InputError(_bad_speed(int(bad[0]) + 1, str(array[bad[0]])))
    return array


def _bad_speed(position: int, found: str) -> str:
    return f"the speed at position {position} is {found}: expected a positive, finite number"


def check_copies(machines: int, copies: int) -> None:
    """Refuse a number of machines per row that makes no sense, or that there are not."""
    if copies < 1:
        raise InputError(f"each row on {plural(copies, 'machine')}: expected at least 1")
    if machines < copies:
        raise InfeasibleError(f"{plural(machines, 'machine')} available: each row needs {copies}")


def check_rows(rows: int) -> None:
    """Refuse shards without rows, and with more than fractions of them can be told apart."""
    if not 1 <= rows <= _MOST_ROWS:
        raise InputError(f"{plural(rows, 'row')} per shard: expected at least 1 and at most 2**48")


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
    check_copies(floats.size, copies)
    if isinstance(speeds, np.ndarray):
        speeds = speeds.tolist()
    if isinstance(speeds, Sequence) and all(isinstance(s, Rational) for s in speeds):
        return _exact_load([_fraction(s) for s in speeds if isinstance(s, Rational)], copies)
    mu, c_star, k_star = _float_load(floats, copies)
    return FractionalLoad(tuple(mu.tolist()), c_star, k_star)


def optimal_level(speeds: list[float], copies: int) -> float:
    """c* of Theorem 1 alone; of few machines in a tenth of the time.

    Parameters
    ----------
    speeds : (N,) list of float
        Positive and finite.
    copies : int
        As for `fractional_load`, at most N.

    Returns
    -------
    float

    Examples
    --------
    >>> optimal_level([2.0, 2.0, 3.0, 4.0], 3) == 2 / 7
    True
    """
    count, (least, most) = len(speeds), _USUAL_SPEEDS
    if count > _FEW or not least < min(speeds) <= max(speeds) < most:
        return float(fractional_load(speeds, copies).c_star)
    if count == copies:
        return 1 / min(speeds)
    ascending = sorted(speeds)
    prefix = list(accumulate(ascending))
    k = count
    while (k + copies - count) * ascending[k - 1] > prefix[k - 1]:
        k -= 1
    return (k + copies - count) / prefix[k - 1]


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


def is_extreme(speeds: NDArray[np.float64]) -> bool:
    """Whether ratios of these speeds, or of sums of them, may not be floats."""
    _, exponents = np.frexp(speeds)
    return int(exponents.max() - exponents.min()) > _MOST_BINARY_DIGITS


def scaled(speeds: NDArray[np.float64]) -> tuple[list[float], int]:
    """Speeds divided by a power of two: without rounding, and with finite sums and times."""
    exponent = int(np.frexp(speeds.max())[1])
    return np.ldexp(speeds, -exponent).tolist(), exponent


def comparable(speeds: NDArray[np.float64]) -> list[float] | list[Fraction]:
    """Speeds in another unit, in which times of any number of rows can be compared."""
    return [Fraction(s) for s in speeds.tolist()] if is_extreme(speeds) else scaled(speeds)[0]


def _float_load(
    speeds: NDArray[np.float64], copies: int
) -> tuple[NDArray[np.float64], float, int | None]:
    """``(mu, c*, k*)`` of Theorem 1 in floats."""
    count = speeds.size
    if count == copies:
        return np.ones(count), 1 / float(speeds.min()), None
    if is_extreme(speeds):
        exact = _exact_load([Fraction(speed) for speed in speeds.tolist()], copies)
        finite = exact.c_star < Fraction(sys.float_info.max)
        c_star = float(exact.c_star) if finite else math.inf
        return np.array(exact.mu, dtype=np.float64), c_star, exact.k_star
    units, exponent = scaled(speeds)
    order = np.argsort(units, kind="stable")
    ascending = np.array(units)[order]
    prefix = np.cumsum(ascending)
    k = np.arange(count - copies + 1, count + 1)
    holds = (k + copies - count) * ascending[k - 1] <= prefix[k - 1]
    k_star = int(k[np.flatnonzero(holds)[-1]])
    level = float((k_star + copies - count) / prefix[k_star - 1])
    mu = np.ones(count)
    mu[order[:k_star]] = np.minimum(1.0, level * ascending[:k_star])
    with np.errstate(over="ignore"):  # infinite, when all speeds are below 1e-300
        c_star = float(np.ldexp(level, -exponent))
    return mu, c_star, k_star


def whole_row_load(speeds: Sequence[Real] | ArrayLike, copies: int, rows: int) -> NDArray[np.int64]:
    """Whole rows per machine with the smallest possible makespan.

    Starts from the fractional optimum rounded down, above which some optimal whole-row
    load lies, and hands out the remaining rows one by one to the machine that would
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
    return optimal_load(speeds, copies, rows)[0]


def optimal_load(
    speeds: Sequence[Real] | ArrayLike, copies: int, rows: int
) -> tuple[NDArray[np.int64], float]:
    """`whole_row_load`, and c* of the fractional load that it was made from."""
    floats = check_speeds(speeds)
    check_copies(floats.size, copies)
    check_rows(rows)
    mu, c_star, _ = _float_load(floats, copies)
    # A little below the optimum, so that rounding errors in mu cannot give out too many rows.
    least = mu * rows * (1 - 4 * np.finfo(np.float64).eps * floats.size)
    loads: NDArray[np.int64] = np.floor(least).astype(np.int64)
    missing = copies * rows - int(loads.sum())
    hand_out(loads, [rows] * floats.size, missing, comparable(floats))
    return loads, c_star


def makespan(loads: ArrayLike, speeds: Sequence[Real] | ArrayLike) -> float:
    """Time of the machine that finishes last: ``max(loads / speeds)``, of as many of each.

    Examples
    --------
    >>> makespan([140, 140, 210, 210, 280, 280], [2, 2, 3, 3, 4, 4])
    70.0
    """
    with np.errstate(over="ignore"):  # infinite, when a speed is below 1e-300
        return float(np.max(np.asarray(loads) / check_speeds(speeds)))
