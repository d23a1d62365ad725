"""Fast versions of Theorem 1, `core.paper.optimal_load`: for floats, and in whole rows.

Speeds are in rows per unit of time. A fractional load ``mu[n]`` is a fraction of a shard; a
whole-row load ``m[n]`` is a number of rows. Numbers in parentheses refer to equations of the paper.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from numbers import Rational, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

_MAX_ROWS = 2**48
_MAX_EXPONENT_RANGE = 900  # of speeds; larger ratios could overflow
_MAX_UNSCALED_SPEED = 1e100  # sums and ratios of speeds from 1e-100 to 1e100 do not overflow
_EPS = float(np.finfo(np.float64).eps)

Reals = Sequence[Any]
"""A sequence of Fractions or of floats."""


@dataclass(frozen=True)
class FractionalLoad:
    """The optimal load of Theorem 1.

    Attributes
    ----------
    mu : tuple of Fraction or float
        Fraction of its shard that each machine computes, in the order of the speeds (14).
    c_star : Fraction or float
        Time of the slowest machine, in shards per unit of speed. The minimum makespan is c* times
        the rows per shard.
    k_star : int or None
        The k* slowest machines all finish at ``c_star``. None if each row needs all machines, so
        that every machine computes its whole shard.
    """

    mu: tuple[Fraction | float, ...]
    c_star: Fraction | float
    k_star: int | None


def check_speeds(speeds: Sequence[Real] | ArrayLike) -> NDArray[np.float64]:
    """Return speeds as a float64 array; raise `InputError` for the first invalid speed.

    Examples
    --------
    >>> check_speeds([2, 2, 3])
    array([2., 2., 3.])
    """
    speeds = reject_masked("speeds", speeds)
    if not isinstance(speeds, np.ndarray) and isinstance(speeds, Iterable):
        for position, speed in enumerate(speeds, start=1):
            if isinstance(speed, (str, bytes)):
                raise InputError(_describe_invalid(position, repr(speed)))
    try:
        array = np.asarray(speeds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"speeds must be numbers: {error}") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"speeds have shape {array.shape}: expected one number per machine")
    invalid = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if invalid.size:
        raise InputError(_describe_invalid(int(invalid[0]) + 1, str(array[invalid[0]])))
    return array


def _describe_invalid(position: int, speed: str) -> str:
    return f"the speed at position {position} is {speed}: expected a positive, finite number"


def check_machines_per_row(machines: int, machines_per_row: int) -> None:
    """Raise if `machines_per_row` is below 1 or exceeds the number of machines."""
    if machines_per_row < 1:
        raise InputError(f"{plural(machines_per_row, 'machine')} per row: expected at least 1")
    if machines < machines_per_row:
        raise InfeasibleError(
            f"{plural(machines, 'machine')} available: each row needs {machines_per_row}"
        )


def check_rows(rows: int) -> None:
    """Raise if shards have no rows, or more than 2**48."""
    if not 1 <= rows <= _MAX_ROWS:
        raise InputError(f"{plural(rows, 'row')} per shard: expected at least 1 and at most 2**48")


def c_star_and_k_star(speeds: Reals, machines_per_row: int) -> tuple[Fraction | float, int | None]:
    """Return c* and k* of `core.paper.optimal_load`.

    Parameters
    ----------
    speeds : (N_t,) sequence of Fraction or float
        In any order. Sums of floats must not overflow.
    machines_per_row : int
        Number of machines that compute each row, L.

    Returns
    -------
    c_star : Fraction or float
    k_star : int or None
        None if ``N_t == L``, a case that the theorem excludes: all machines have ``mu = 1``.

    Examples
    --------
    >>> c_star, k_star = c_star_and_k_star([Fraction(s) for s in (2, 2, 3, 4)], 3)
    >>> print(c_star, k_star)
    2/7 3
    """
    s = sorted(speeds)  # ascending; the paper counts from 1, so its s[k] is s[k - 1]
    count, L = len(s), machines_per_row
    if count == L:
        return 1 / s[0], None
    sums = list(accumulate(s))
    # The right side of (15), c_k <= 1 / s[k], without division:
    k = count
    while (k + L - count) * s[k - 1] > sums[k - 1]:
        k -= 1
    return (k + L - count) / sums[k - 1], k


def fractional_load(speeds: Sequence[Real] | ArrayLike, machines_per_row: int) -> FractionalLoad:
    """Return the load of `core.paper.optimal_load` for Fractions or floats.

    Parameters
    ----------
    speeds : (N,) sequence of numbers
        Speed of each available machine. Integers and Fractions give an exact result.
    machines_per_row : int
        Number of machines that compute each row: L (plus S to tolerate S stragglers).

    Returns
    -------
    FractionalLoad

    Raises
    ------
    InputError
        A speed is not a positive, finite number, or `machines_per_row` is less than 1.
    InfeasibleError
        There are fewer than `machines_per_row` machines.

    Examples
    --------
    >>> load = fractional_load([2, 2, 3, 4], 3)
    >>> print(*load.mu, load.c_star, load.k_star)
    4/7 4/7 6/7 1 2/7 3
    """
    floats = check_speeds(speeds)
    check_machines_per_row(floats.size, machines_per_row)
    if isinstance(speeds, Sequence) and all(isinstance(s, Rational) for s in speeds):
        exact = [_fraction(s) for s in speeds if isinstance(s, Rational)]
        return _optimal_load(exact, machines_per_row)
    rescaled, exponent = rescale_speeds(floats.tolist())
    load = _optimal_load(rescaled, machines_per_row)
    c_star = _unscale_time(load.c_star, exponent)
    return FractionalLoad(tuple(map(float, load.mu)), c_star, load.k_star)


def _fraction(number: Rational) -> Fraction:
    return Fraction(int(number.numerator), int(number.denominator))


def _optimal_load(speeds: Reals, machines_per_row: int) -> FractionalLoad:
    c_star, k_star = c_star_and_k_star(speeds, machines_per_row)
    one = type(c_star)(1)
    mu = tuple(one if k_star is None else min(one, c_star * s) for s in speeds)  # (14)
    return FractionalLoad(mu, c_star, k_star)


def unchecked_c_star(speeds: Sequence[float], machines_per_row: int) -> float:
    """Return c* of `fractional_load`, without checks.

    Examples
    --------
    >>> unchecked_c_star([2.0, 2.0, 3.0, 4.0], 3) == 2 / 7
    True
    """
    rescaled, exponent = rescale_speeds(speeds)
    return _unscale_time(c_star_and_k_star(rescaled, machines_per_row)[0], exponent)


def _unscale_time(c_star: Fraction | float, exponent: int) -> float:
    """Return c* of the original speeds from c* of the rescaled ones."""
    try:
        return math.ldexp(float(c_star), -exponent)
    except OverflowError:  # the slowest machines have speeds below 1e-300
        return math.inf


def rescale_speeds(speeds: Sequence[float]) -> tuple[Reals, int]:
    """Rescale speeds so that their sums and ratios do not overflow; return them and the exponent.

    The speeds are divided by ``2**exponent``, without rounding. If their ratios could overflow,
    they are returned as Fractions with exponent 0.
    """
    largest, smallest = max(speeds), min(speeds)
    if smallest > 1 / _MAX_UNSCALED_SPEED and largest < _MAX_UNSCALED_SPEED:
        return speeds, 0
    exponent = math.frexp(largest)[1]
    if exponent - math.frexp(smallest)[1] > _MAX_EXPONENT_RANGE:
        return [Fraction(s) for s in speeds], 0
    return [math.ldexp(s, -exponent) for s in speeds], exponent


def whole_row_load(
    speeds: Sequence[Real] | ArrayLike, machines_per_row: int, rows: int
) -> NDArray[np.int64]:
    """Return the loads of `core.paper.optimal_load` in whole rows with the smallest makespan.

    Parameters
    ----------
    speeds, machines_per_row
        See `fractional_load`.
    rows : int
        Rows per shard, R.

    Returns
    -------
    (N,) ndarray of int64
        Loads m with ``0 <= m <= rows`` and ``m.sum() == machines_per_row * rows`` that minimise
        ``max(m / speeds)``.

    Raises
    ------
    InputError
        A speed is not a positive, finite number, `machines_per_row` is less than 1, or `rows` is
        less than 1 or more than 2**48.
    InfeasibleError
        There are fewer than `machines_per_row` machines.

    Examples
    --------
    >>> whole_row_load([2, 2, 3, 3, 4, 4], 3, 420)
    array([140, 140, 210, 210, 280, 280])
    """
    check_rows(rows)
    floats = check_speeds(speeds)
    return round_to_rows(fractional_load(floats, machines_per_row), floats, machines_per_row, rows)


def round_to_rows(
    load: FractionalLoad, speeds: NDArray[np.float64], machines_per_row: int, rows: int
) -> NDArray[np.int64]:
    """Round a fractional load to the optimal whole-row load.

    Some optimal whole-row load gives each machine at least its fractional load rounded down. The
    remaining rows are assigned one by one, each to the machine that finishes it first (ties: lowest
    position).
    """
    mu = np.array(load.mu, dtype=np.float64)
    # mu is slightly reduced, so that rounding errors cannot assign too many rows.
    loads: NDArray[np.int64] = np.floor(mu * rows * (1 - 4 * _EPS * mu.size)).astype(np.int64)
    rescaled, _ = rescale_speeds(speeds.tolist())
    queue = [((m + 1) / rescaled[n], n) for n, m in enumerate(loads.tolist()) if m < rows]
    heapq.heapify(queue)
    for _ in range(machines_per_row * rows - int(loads.sum())):
        _, n = queue[0]
        loads[n] += 1
        if loads[n] < rows:
            heapq.heapreplace(queue, ((int(loads[n]) + 1) / rescaled[n], n))
        else:
            heapq.heappop(queue)
    return loads


def makespan(loads: ArrayLike, speeds: Sequence[Real] | ArrayLike) -> float:
    """Return the time of the machine that finishes last: ``max(loads / speeds)``.

    Examples
    --------
    >>> makespan([140, 140, 210, 210, 280, 280], [2, 2, 3, 3, 4, 4])
    70.0
    """
    with np.errstate(over="ignore"):  # infinite for extremely low speeds
        return float(np.max(np.asarray(loads) / check_speeds(speeds)))
