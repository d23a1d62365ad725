"""How much each machine computes when it holds any number of shards: Theorem 1 for several.

Machine n with speed s[n] and c[n] shards computes ``mu[n] = min(c[n], c* s[n])`` of them, where c*
is the time at which these loads add up to L: a row that is computed with two shards of a
machine costs it two. With one shard each that is Theorem 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.limited import exact_level, hand_out, level
from cec_mpi.core.plan.load import comparable, is_extreme, scaled
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ExactLoad:
    """The optimal load in fractions.

    Attributes
    ----------
    mu : tuple of Fraction
        How much each machine computes, in shards.
    c_star : Fraction
        Time of the slowest machine, in shards per unit of speed.
    k_star : int or None
        How many machines set it, since they would be as late with more shards; None when all
        shards are needed.
    """

    mu: tuple[Fraction, ...]
    c_star: Fraction
    k_star: int | None


def check_shards(machines: int, shards: int, recovery: int) -> None:
    """Refuse a recovery threshold that makes no sense, or for which there are too few shards."""
    if recovery < 1:
        raise InputError(f"each row with {plural(recovery, 'shard')}: expected at least 1")
    if shards < recovery:
        raise InfeasibleError(
            f"{plural(machines, 'machine')} with {plural(shards, 'shard')} available: each row "
            f"needs {recovery}"
        )


def exact_load(speeds: Sequence[Fraction], counts: Sequence[int], recovery: int) -> ExactLoad:
    """The load with which the slowest machine finishes first, in Fractions.

    Parameters
    ----------
    speeds : (M,) sequence of Fraction
        Speed of each available machine, positive.
    counts : (M,) sequence of int
        How many shards it holds.
    recovery : int
        Shards that each row needs, L.

    Returns
    -------
    ExactLoad

    Raises
    ------
    InfeasibleError
        The machines have fewer than `recovery` shards.

    Examples
    --------
    >>> load = exact_load([Fraction(s) for s in (1, 1, 1, 1, 1, 20)], [1, 1, 1, 1, 1, 4], 4)
    >>> print(*load.mu, load.c_star, load.k_star)
    4/25 4/25 4/25 4/25 4/25 16/5 4/25 6
    """
    check_shards(len(speeds), sum(counts), recovery)
    c_star = exact_level(speeds, counts, recovery)
    mu = tuple(
        min(c_star * speed, Fraction(count)) for speed, count in zip(speeds, counts, strict=True)
    )
    below = sum(c_star * speed <= count for speed, count in zip(speeds, counts, strict=True))
    return ExactLoad(mu, c_star, None if sum(counts) == recovery else below)


def in_floats(speeds: Floats, why: str) -> tuple[Floats, int]:
    """Speeds divided by a power of two, and which: times in this unit and their ratios are floats.

    Raises
    ------
    InputError
        They differ by more than floats can tell, which matters `why`.
    """
    if is_extreme(speeds):
        raise InputError(
            f"speeds from {speeds.min():g} to {speeds.max():g} {why}: expected a ratio of at most "
            "1e270"
        )
    units, exponent = scaled(speeds)
    return np.array(units), exponent


def limited_load(speeds: Floats, limits: Ints, total: int) -> Ints:
    """Whole rows that add up to `total`, none above its limit, with the smallest makespan.

    Parameters
    ----------
    speeds : (M,) ndarray of float64
        Positive and finite.
    limits : (M,) ndarray of int64
        Rows, at least 0, with ``limits.sum() >= total``.
    total : int
        Rows, at least 1.

    Returns
    -------
    (M,) ndarray of int64
        Of equal makespans, the one that `hand_out` finds.

    Examples
    --------
    >>> limited_load(np.array([1.0, 1.0, 20.0]), np.array([10, 10, 30]), 40)
    array([ 5,  5, 30])
    """
    if is_extreme(speeds):
        exact = [Fraction(speed) for speed in speeds.tolist()]
        time = exact_level(exact, limits.tolist(), total)
        least = [math.floor(min(time * s, n)) for s, n in zip(exact, limits.tolist(), strict=True)]
        loads = np.array(least, dtype=np.int64)
    else:
        units = np.array(scaled(speeds)[0])
        best = np.minimum(limits, level(units, limits.astype(np.float64), total) * units)
        # A little below the optimum, so that rounding errors cannot give out too many rows.
        loads = np.floor(best * (1 - 8 * np.finfo(np.float64).eps * speeds.size)).astype(np.int64)
    hand_out(loads, limits.tolist(), total - int(loads.sum()), comparable(speeds))
    return loads


def least_time(speeds: Floats, limits: Floats, total: float) -> float:
    """The smallest time, in fractions: that in which these machines compute `total`.

    Examples
    --------
    >>> least_time(np.array([1.0, 1.0, 20.0]), np.array([10.0, 10.0, 30.0]), 40.0)
    5.0
    """
    if is_extreme(speeds):
        exact = exact_level(
            [Fraction(s) for s in speeds.tolist()],
            [Fraction(limit) for limit in limits.tolist()],
            Fraction(total),
        )
        return float(exact) if exact < Fraction(sys.float_info.max) else math.inf
    units, exponent = scaled(speeds)
    return in_time_of(level(np.array(units), limits, total), exponent)


def in_time_of(time: float, exponent: int) -> float:
    """A time for speeds divided by a power of two as one for the speeds themselves."""
    with np.errstate(over="ignore"):  # infinite, when all speeds are below 1e-300
        return float(np.ldexp(time, -exponent))
