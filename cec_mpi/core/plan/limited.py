"""How much each machine computes where each has a limit of its own.

The problem of Theorem 1 with any limit in the place of a whole shard: the loads add up to
``total``, load n is at most ``limits[n]``, and the largest ``load / speed`` is the least possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Speed = Fraction | float


def exact_level(
    speeds: Sequence[Fraction], limits: Sequence[int | Fraction], total: int | Fraction
) -> Fraction:
    """The time c with ``sum(min(c * speeds, limits)) == total``: no loads need less.

    Parameters
    ----------
    speeds : (N,) sequence of Fraction
    limits : (N,) sequence of int or Fraction
        At least 0, with ``sum(limits) >= total``.
    total : int or Fraction
        Above 0.

    Returns
    -------
    Fraction

    Examples
    --------
    >>> print(exact_level([Fraction(2), Fraction(2), Fraction(3), Fraction(4)], [1] * 4, 3))
    2/7
    >>> print(exact_level([Fraction(1), Fraction(20)], [1, 3], 3))
    1/7
    """
    soonest = sorted(zip(speeds, limits, strict=True), key=lambda each: each[1] / each[0])
    left, rest = Fraction(total), sum(speeds, Fraction(0))
    for speed, limit in soonest:
        if left * speed <= limit * rest:
            return left / rest
        left -= limit
        rest -= speed
    raise ValueError(f"limits with sum {sum(limits)}: expected at least {total}")


def level(speeds: NDArray[np.float64], limits: NDArray[np.float64], total: float) -> float:
    """`exact_level` in floats, for speeds of which sums and ratios are floats.

    Examples
    --------
    >>> level(np.array([1.0, 20.0]), np.array([1.0, 3.0]), 3.0) == 1 / 7
    True
    """
    times = limits / speeds
    soonest = times.argsort(kind="stable")
    speeds, limits, times = speeds[soonest], limits[soonest], times[soonest]
    rest = speeds[::-1].cumsum()[::-1]  # of this machine and those that are at their limits later
    left = total - (limits.cumsum() - limits)
    levels = left / rest
    holds = levels <= times
    first = int(holds.argmax())
    return float(levels[first]) if holds[first] else float(times[-1])  # at all limits, but rounded


def hand_out(
    loads: NDArray[np.int64],
    limits: Sequence[int],
    missing: int,
    speeds: Sequence[Speed],
) -> None:
    """Add rows one by one to the machine that would have finished first with one row more.

    Parameters
    ----------
    loads : (N,) ndarray of int64
        Rows that each machine has; changed.
    limits : (N,) sequence of int
        Rows that each can have.
    missing : int
        Rows to hand out: at most those that fit.
    speeds : (N,) sequence of Fraction or float
        Ties go to the lowest position.

    Examples
    --------
    >>> loads = np.array([0, 0])
    >>> hand_out(loads, [9, 2], 6, [1.0, 2.0])
    >>> loads
    array([4, 2])
    """
    queue = [((m + 1) / speeds[n], n) for n, m in enumerate(loads.tolist()) if m < limits[n]]
    heapq.heapify(queue)
    for _ in range(missing):
        _, n = queue[0]
        loads[n] += 1
        if loads[n] < limits[n]:
            heapq.heapreplace(queue, ((int(loads[n]) + 1) / speeds[n], n))
        else:
            heapq.heappop(queue)
