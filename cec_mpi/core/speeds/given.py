"""How fast the machines are, as a user says; and the best that they could have done."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.plan.load import (
    check_copies,
    check_rows,
    check_speeds,
    fractional_load,
    optimal_level,
)

Floats = NDArray[np.float64]

_SHORTEST, _LONGEST = 1e-9, 1e9  # seconds that a measurement can be
_SCALE_STEPS = 5  # of each kind, that the scale of given speeds is fitted to


class Speeds(Protocol):
    """What a step needs to know about speeds: those to plan with, and seconds to expect.

    A *kind* of product is anything hashable: products of one kind take the same time for
    the same rows. Machines have numbers from 1; arrays have one entry per machine.
    """

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, if known."""

    def hold(self, shards: Sequence[int]) -> None:
        """Machines have so many shards from now on, which bounds the rows of each."""

    def live_on(self, hosts: Mapping[int, str]) -> None:
        """Machines (from 1) are on these hosts from now on; nothing is known of others."""

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Speeds of all machines; the same object for as long as nothing changes."""

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine with these rows; None while that is not known."""

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """Seconds that no assignment to these machines can beat; None while not known."""

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Take what each machine computed in a step and the time it took; 0 if preempted."""


class GivenSpeeds:
    """Relative speeds that the user gave; only rows per second are fitted.

    Seconds are ``rows / (scale * speed)``, where the scale of each kind of product is the
    median of what all machines showed in the first 5 steps of that kind.

    Parameters
    ----------
    speeds : (N,) sequence of float
        Relative speed of each machine.
    copies : int
        Machines that compute each row, L.
    rows : int
        Rows per shard, R.
    shards : (N,) sequence of int, optional
        Of each machine; by default each has one.

    Raises
    ------
    InputError
        A speed is not positive and finite, or `rows` or `copies` is less than 1.
    InfeasibleError
        There are fewer machines than `copies`, or all have fewer shards.

    Examples
    --------
    >>> speeds = GivenSpeeds([1.0, 2.0], 2, 200)
    >>> speeds.observe("matvec", [100, 200], [0.5, 0.5])
    >>> speeds.plan_speeds((1, 2)), speeds.scale
    ((1.0, 2.0), 200.0)
    >>> speeds.predict("matvec", [0, 100]), speeds.bound("matvec", (1, 2))
    (0.25, 1.0)
    """

    def __init__(
        self,
        speeds: Sequence[float],
        copies: int,
        rows: int,
        shards: Sequence[int] | None = None,
    ) -> None:
        self._speeds = check_speeds(speeds)
        count = self._speeds.size
        self._shards = np.array([1] * count if shards is None else shards, dtype=np.int64)
        check_copies(int(self._shards.sum()), copies)
        check_rows(rows)
        self._copies, self._rows = copies, rows
        self._published = tuple(self._speeds.tolist())
        self._rates: dict[Hashable, list[Floats]] = {}
        self._scales: dict[Hashable, float] = {}
        self._bounded: tuple[tuple[int, ...], float] = ((), 0.0)

    def hold(self, shards: Sequence[int]) -> None:
        """Machines have so many shards from now on; see `Speeds`."""
        self._shards = np.array(shards, dtype=np.int64)
        self._bounded = (), 0.0

    def live_on(self, hosts: Mapping[int, str]) -> None:
        """Machines have the speeds that were given, wherever they are."""

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, if known."""
        return next(iter(self._scales.values()), None)

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """The speeds that were given."""
        return self._published

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine: ``max(rows / speeds) / scale``; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        return float(np.max(np.asarray(rows) / self._speeds)) / scale

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """``c* R / scale`` of Theorem 1, in seconds; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        known, rows = self._bounded
        if known != available:
            which = np.array(available) - 1
            held = self._shards[which]  # a machine with c shards is c machines of speed s / c
            each = np.repeat(self._speeds[which] / np.maximum(held, 1), held)
            rows = float(fractional_load(each, self._copies).c_star) * self._rows
            self._bounded = available, rows
        return rows / scale

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Fit the scale of a kind in its first steps; see `Speeds`."""
        rates = self._rates.setdefault(kind, [])
        if len(rates) == _SCALE_STEPS:
            return
        which, counts, times = measured(rows, seconds)
        rates.append(counts / times / self._speeds[which])
        if any(step.size for step in rates):
            self._scales[kind] = float(np.median(np.concatenate(rates)))


def hindsight_makespan(
    rows: ArrayLike,
    seconds: ArrayLike,
    copies: int,
    rows_per_shard: int,
    shards: Sequence[int] | None = None,
) -> float | None:
    """Makespan of the best assignment at the speeds that machines showed in this very step.

    ``c* R`` of Theorem 1 with the speeds ``rows / seconds``, in fractions of rows. The
    regret of a step is its measured makespan over this, less 1.

    Parameters
    ----------
    rows : (N,) array_like
        Rows that each machine computed, 0 where preempted.
    seconds : (N,) array_like
        Seconds that it took. A machine without rows or time showed no speed, and is left out.
    copies : int
        Machines that compute each row, L.
    rows_per_shard : int
        R.
    shards : (N,) sequence of int, optional
        Of each machine; by default each has one.

    Returns
    -------
    float or None
        Seconds; None when the machines that showed a speed have fewer than `copies` shards.

    Examples
    --------
    Machines of speeds 2, 2, 3, 3, 4 and 4 with equal loads, three copies of 420 rows:

    >>> seconds = [105, 105, 70, 70, 52.5, 52.5]
    >>> round(hindsight_makespan([210] * 6, seconds, 3, 420), 9)
    70.0
    """
    counts, times = np.asarray(rows).tolist(), np.asarray(seconds).tolist()
    held = [1] * len(counts) if shards is None else shards
    speeds = [
        m / min(max(t, _SHORTEST), _LONGEST) / c
        for m, t, c in zip(counts, times, held, strict=True)
        if 0 < m < math.inf and 0 < t < math.inf
        for _ in range(c)  # a machine with c shards is c machines of speed s / c
    ]
    if len(speeds) < copies:
        return None
    return optimal_level(speeds, copies) * rows_per_shard


def measured(rows: ArrayLike, seconds: ArrayLike) -> tuple[Ints, Floats, Floats]:
    """Which machines (from 0) showed a speed, their rows and their seconds.

    A time of 0 is below the resolution of the clock and shows none.
    """
    counts, times = np.asarray(rows, np.float64), np.asarray(seconds, np.float64)
    (which,) = ((np.minimum(counts, times) > 0) & (np.maximum(counts, times) < np.inf)).nonzero()
    if which.size < counts.size:
        counts, times = counts[which], times[which]
    return which, counts, np.minimum(np.maximum(times, _SHORTEST), _LONGEST)
