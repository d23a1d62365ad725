"""Speeds learned from the times that machines measure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.load import check_copies, check_rows
from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.speeds.best import optimum
from cec_mpi.core.speeds.given import Floats, Which, measured
from cec_mpi.core.speeds.hosts import KnownHosts
from cec_mpi.core.speeds.kinds import Kind
from cec_mpi.core.speeds.medians import median
from cec_mpi.core.speeds.overheads import Overheads
from cec_mpi.core.speeds.planned import Planned
from cec_mpi.core.speeds.tracked import Tracked

# What these numbers do is said in `SpeedEstimator`.
_EARLY = 0.2  # by this a log of seconds is less than that of the median machine
_CREEP = 0.02  # growth of the log speed of a machine that gets no rows, per step
_LEAST_ROWS = 0.5  # at which the speed of a machine that should get none is taken


class SpeedEstimator:
    """Speeds learned from the times that machines measure.

    The model of machine n in a product of kind k, with ``m`` rows::

        seconds = (overhead[n] + m) / speed[n] / rate[k]

    with the overhead in rows. From each step:

    1. Machines that had other rows in their last step of this kind show `Overheads`.
    2. What all machines have in common (the median over them of measured rate over expected
       rate) goes to the rate of the kind. So kinds can be mixed, and machines that slow down
       together keep their speeds.
    3. What is left of each machine is followed by `Tracked`: averages whose memory gets shorter
       when speeds drift, changes that are told from hiccups, doubt after an absence.

    Plans are made with ``m / seconds`` at the loads m of the best plan, for which Theorem 1
    gives these same loads. They are replaced when a new plan promises to be faster by more than
    2 %, by more than 0.4 of the noise of a measurement, and by more than 0.2 ms: a plan costs
    something too. And when it gives a machine more than twice the rows: with few rows a machine
    shows little of its speed, while plans hardly get better with it.

    Parameters
    ----------
    machines : int
        How many there are, N. All speeds are equal at first.
    copies : int
        Machines that compute each row, L.
    rows : int
        Rows per shard, R.
    shards : (N,) sequence of int, optional
        Of each machine; by default each has one.

    Raises
    ------
    InputError
        `rows` or `copies` is less than 1.
    InfeasibleError
        There are fewer machines than `copies`, or all have fewer shards.

    Examples
    --------
    >>> speeds = SpeedEstimator(3, 2, 300)
    >>> speeds.plan_speeds((1, 2, 3))
    (1.0, 1.0, 1.0)
    >>> speeds.observe("matvec", [200, 200, 200], [1.0, 1.0, 0.5])
    >>> speeds.plan_speeds((1, 2, 3))
    (1.0, 1.0, 2.0)
    >>> round(speeds.predict("matvec", [150, 150, 300]), 6)
    0.75
    """

    def __init__(
        self, machines: int, copies: int, rows: int, shards: Sequence[int] | None = None
    ) -> None:
        self._shards = None if shards is None else np.array(shards, dtype=np.int64)
        check_copies(machines if shards is None else sum(shards), copies)
        check_rows(rows)
        self._machines, self._copies, self._rows = machines, copies, rows
        self._hosts = KnownHosts()
        self._forget()

    def _forget(self) -> None:
        """Know nothing yet."""
        machines, usual = self._machines, self._copies * self._rows / self._machines
        self._kinds: dict[Hashable, Kind] = {}
        self._step = 0
        self._unit = math.inf  # seconds of the last kind, of a unit of time of the speeds
        self._available: Ints = np.arange(0)
        # Of each machine: estimates (log speed, overhead), and what they are made of.
        self._tracked = Tracked(machines)
        self._overheads = Overheads(machines, usual)
        self._typical = np.full(machines, usual)  # rows, when last measured
        self._published = (1.0,) * machines
        self._planned: Planned | None = None
        self._speeds = np.ones(machines)
        self._hosts.forget(self._columns)
        self._is_half_learned = False  # a step, because of an interrupt: what is known is no more

    def hold(self, shards: Sequence[int]) -> None:
        """Machines have so many shards from now on; see `Speeds`."""
        self._shards = np.array(shards, dtype=np.int64)
        self._planned = None

    def live_on(self, hosts: Mapping[int, str]) -> None:
        """Machines are on these hosts from now on; see `Speeds`.

        One that has moved begins with what was learned on its host, which is doubted like what is
        known of any machine that was away.
        """
        if self._is_half_learned:
            self._forget()
        self._is_half_learned = True
        moved = self._hosts.move(self._columns, hosts, self._tracked.known.tolist())
        if moved:
            self._tracked.moved()
            self._overheads.moved()
            for kind in self._kinds.values():
                kind.forget(np.array(moved))
            self._refresh()
        self._is_half_learned = False

    @property
    def _columns(self) -> list[NDArray[Any]]:
        """What is known of each machine."""
        return [*self._tracked.columns, *self._overheads.columns, self._typical]

    @property
    def scale(self) -> float | None:
        """Rows per second of the median machine in the first kind of product, if known.

        The speeds to plan with are relative to the median machine.
        """
        kind = next(iter(self._kinds.values()), None)
        if kind is None:
            return None
        return math.exp(kind.level) * float(np.median(self._effective(self._typical)))

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Speeds of all machines, relative to the median one; see `Speeds`."""
        if self._is_half_learned:
            self._forget()
        if self._held(available) < self._copies:
            return self._published
        planned = self._plan(available)
        which = self._available = planned.which
        if planned.checked:
            return self._published
        if planned.published is not self._published:
            present = np.array(self._published)[which]
            planned.loads = self._optimum(present, np.zeros(which.size), which)[1]
            planned.published = self._published  # last: an interrupt may come in between
        expected = float(self._seconds(planned.loads, which).max())
        if planned.is_worth_it(expected, self._tracked.noise, self._unit):
            rows = self._typical.copy()
            rows[which] = planned.best
            speeds = self._effective(rows)
            self._published = tuple((speeds / np.median(speeds)).tolist())
        planned.checked = True
        return self._published

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine by the current estimates; see `Speeds`."""
        state = self._kinds.get(kind)
        if state is None:
            return None
        loads = np.asarray(rows, np.float64)
        return float(self._seconds(loads, slice(None)).max()) * math.exp(-state.level)

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """The least makespan by the current estimates, in fractions of rows; see `Speeds`."""
        state = self._kinds.get(kind)
        if state is None:
            return None
        check_copies(self._held(available), self._copies)
        return self._plan(available).seconds * math.exp(-state.level)

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Learn from a step; see `Speeds`. A time of 0 says nothing, and is left out."""
        if self._is_half_learned:
            self._forget()
        self._is_half_learned = True
        self._step += 1
        which, counts, times = measured(rows, seconds)
        if which.size:
            self._take(kind, which, counts, np.log(times))
            self._try_the_idle(which)
        self._refresh()
        self._is_half_learned = False

    def _take(self, kind: Hashable, which: Ints, rows: Floats, log_seconds: Floats) -> None:
        """Split what these machines showed into the rate of the kind and their speeds."""
        tracked, overheads = self._tracked, self._overheads
        where: Which = slice(None) if which.size == self._typical.size else which
        state = self._kinds.get(kind)
        if state is not None:
            self._compare(state, which, where, rows, log_seconds)
        log_rows = np.log(rows)
        log_rates = np.log(rows + overheads.rows[where]) if overheads.known else log_rows
        log_rates = log_rates - log_seconds
        residuals = log_rates - tracked.logs[where]
        if not tracked.all_known:
            residuals = residuals[tracked.known[where]]
        if state is None:
            state = self._kinds[kind] = Kind(self._typical.size)
            if not residuals.size:
                state.take(median(log_rates))
        # If one or two machines change, it is likely they that did and not the kind.
        many = residuals.size > 2
        level = state.level
        if many or (residuals.size and not state.settled):
            found = median(residuals)
            state.take(found)
            level = found if many else state.level
        self._unit = math.exp(-state.level)
        early = log_seconds < median(log_seconds) - _EARLY
        if overheads.known:
            early &= overheads.rows[where] <= 0
        tracked.take(which, log_rates - level, log_rows, early, self._step)
        state.remember(where, rows, log_seconds, self._step)
        self._typical[where] = rows

    def _compare(
        self, state: Kind, which: Ints, where: Which, rows: Floats, log_seconds: Floats
    ) -> None:
        """Learn overheads from machines that had other rows in their last step of this kind."""
        pairs = state.pairs(which, where, rows, log_seconds, self._step)
        if pairs is not None:
            known = pairs[0]
            typical, overheads = self._typical[known], self._overheads.rows
            old = overheads[known]
            self._overheads.take(*pairs)
            shift = np.log((overheads[known] + typical) / (old + typical))
            self._tracked.shift(known, shift)

    def _try_the_idle(self, which: Ints) -> None:
        """A machine too slow for even one row, or too few to measure: sooner or later, try it."""
        if self._available.size == which.size:
            return
        tracked = self._tracked
        idle = tracked.known & (
            (tracked.logs < max(tracked.logs.max(), 0.0)) | (self._overheads.rows > 0)
        )
        idle[which] = False
        tracked.shift(self._available[idle[self._available]], _CREEP)

    def _refresh(self) -> None:
        """Estimates in rows per unit of time, after a change."""
        known, logs = self._tracked.known, self._tracked.to_plan_with(self._step)
        if not self._tracked.all_known:
            seen = self._tracked.logs[known]
            logs = np.where(known, logs, median(seen) if seen.size else 0.0)
        self._speeds = np.exp(logs)
        if self._planned is not None:
            self._planned.fresh = self._planned.checked = False

    def _plan(self, available: tuple[int, ...]) -> Planned:
        """The best loads of the available machines, remembered until estimates change."""
        planned = self._planned
        if planned is None or planned.available != available:
            planned = self._planned = Planned(available)
        if not planned.fresh:
            which = planned.which
            overheads = self._overheads.rows[which]
            planned.seconds, planned.best = self._optimum(self._speeds[which], overheads, which)
            planned.fresh = True
        return planned

    def _held(self, available: tuple[int, ...]) -> int:
        """How many shards these machines have."""
        if self._shards is None:
            return len(available)
        return int(self._shards[np.array(available, dtype=np.int64) - 1].sum())

    def _optimum(self, speeds: Floats, overheads: Floats, which: Ints) -> tuple[float, Floats]:
        shards = None if self._shards is None else self._shards[which]
        return optimum(speeds, overheads, self._copies, self._rows, shards)

    def _seconds(self, rows: Floats, which: Ints | slice) -> Floats:
        """Time for these rows, in the unit of the speeds; none without rows."""
        if not self._overheads.known:
            return rows / self._speeds[which]
        return (self._overheads.rows[which] + rows) / self._speeds[which] * (rows > 0)

    def _effective(self, rows: Floats) -> Floats:
        """Speeds with the overhead counted in, at these loads."""
        rows = np.maximum(rows, _LEAST_ROWS)  # Theorem 1 has no speed 0
        return self._speeds * rows / (self._overheads.rows + rows)
