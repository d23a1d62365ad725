"""Speeds learned from the times that machines measure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from statistics import median_high
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.plan.load import check_copies, check_rows
from cec_mpi.core.speeds.given import Floats, measured
from cec_mpi.core.speeds.medians import DEVIATION, median, upper_median
from cec_mpi.core.speeds.overheads import SPREAD, Overheads, optimum

# What these numbers do is said in `SpeedEstimator`.
_WINDOW = 5  # measurements that a median is of: two wrong ones in a row do no harm
_SMOOTHING = 0.1  # least weight of a new median
_JUMPS = 2.1  # of the noise: 4 standard deviations of the median of 5
_LEAST_JUMP = 0.02
_GAIN = 1.02  # a new plan has to promise this
_LEAST_GAIN = 2e-4  # seconds, and this: making and sending a plan takes as long
_LONG = 32  # steps after which old measurements lose their weight
_CREEP = 0.02  # growth of the log speed of a machine that gets no rows, per step
_MOST_LOG = 14.0  # of a speed: a million times faster or slower than the others is enough

_FIT_EVERY = 8  # steps: medians of all pairs take long
_LEAST_ROWS = 0.5  # at which the speed of a machine that should get none is taken


class _Kind:
    """What is known of one kind of product."""

    def __init__(self, machines: int) -> None:
        self.levels: deque[float] = deque(maxlen=_WINDOW)
        self.level = 0.0  # log of rows per second of a machine whose log speed is 0
        self.log_rows = np.full(machines, np.nan)  # of the last step of each machine
        self.log_seconds = np.full(machines, np.nan)

    def take(self, level: float) -> None:
        self.levels.append(level)
        self.level = median_high(self.levels)  # of two the faster, as for machines


class SpeedEstimator:
    """Speeds learned from the times that machines measure.

    The model of machine n in a product of kind k, with ``m`` rows::

        seconds = (overhead[n] + m) / speed[n] / rate[k]

    with the overhead in rows. From each step:

    1. What all its machines have in common (the median over them of measured rate over
       expected rate) goes to the rate of the kind. So kinds can be mixed, and machines
       that slow down together keep their speeds.
    2. What is left of each machine passes a median over its last 5 measurements, and then
       exponential smoothing; a difference too large to be noise is taken at once.
    3. Two steps of one machine and kind with different rows show the elasticity of time,
       ``d log(seconds) / d log(m) = m / (overhead + m)``. An overhead is assumed only as far
       as the median elasticity is below 1 by more than three standard errors.

    Plans are made with ``m / seconds`` at the loads m of the best plan, for which Theorem 1
    gives these same loads. They are replaced when a new plan promises to be more than 2 %
    faster, and more than 0.2 ms: a plan costs something too.

    Parameters
    ----------
    machines : int
        How many there are, N. All speeds are equal at first.
    copies : int
        Machines that compute each row, L.
    rows : int
        Rows per shard, R.

    Raises
    ------
    InputError
        `rows` or `copies` is less than 1.
    InfeasibleError
        There are fewer machines than `copies`.

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

    def __init__(self, machines: int, copies: int, rows: int) -> None:
        check_copies(machines, copies)
        check_rows(rows)
        self._copies, self._rows = copies, rows
        self._kinds: dict[Hashable, _Kind] = {}
        self._step = 0
        self._unit = math.inf  # seconds of the last kind, of a unit of time of the speeds
        self._available: Ints = np.arange(0)
        # Of each machine: estimates (log speed, overhead), and what they are made of.
        self._log_speeds = np.zeros(machines)
        self._overheads = Overheads(machines)
        self._typical = np.full(machines, copies * rows / machines)  # rows, when last measured
        self._recent = np.full((machines, _WINDOW), np.inf)  # log speeds, of which `_count`
        self._count = np.zeros(machines, dtype=np.int64)
        self._age = np.zeros(machines, dtype=np.int64)  # measurements since the last jump
        self._seen = np.zeros(machines, dtype=np.int64)  # step of the last measurement, from 1
        self._noise = 0.1  # standard deviation of one measured log speed
        self._published = (1.0,) * machines
        self._planned: _Planned | None = None
        self._speeds = np.ones(machines)

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
        if len(available) < self._copies:
            return self._published
        planned = self._plan(available)
        which = self._available = planned.which
        if planned.checked:
            return self._published
        planned.checked = True
        if planned.published is not self._published:
            planned.published = self._published
            present = np.array(self._published)[which]
            planned.loads = optimum(present, np.zeros(which.size), self._copies, self._rows)[1]
        expected = float(np.max(self._seconds(planned.loads, which)))
        gain = (expected - planned.seconds) * self._unit
        if expected > _GAIN * planned.seconds and gain > _LEAST_GAIN:
            rows = self._typical.copy()
            rows[which] = planned.best
            speeds = self._effective(rows)
            self._published = tuple((speeds / np.median(speeds)).tolist())
        return self._published

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine by the current estimates; see `Speeds`."""
        state = self._kinds.get(kind)
        if state is None:
            return None
        loads = np.asarray(rows, np.float64)
        return float(np.max(self._seconds(loads, slice(None)))) * math.exp(-state.level)

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """The least makespan by the current estimates, in fractions of rows; see `Speeds`."""
        state = self._kinds.get(kind)
        if state is None:
            return None
        check_copies(len(available), self._copies)
        return self._plan(available).seconds * math.exp(-state.level)

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Learn from a step; see `Speeds`. A time of 0 says nothing, and is left out."""
        self._step += 1
        which, counts, times = measured(rows, seconds)
        if which.size:
            self._take(kind, which, counts, np.log(times))
            self._try_the_idle(np.asarray(rows))
        if self._step % _FIT_EVERY == 0:
            fitted, shift = self._overheads.fit()
            self._log_speeds[fitted] += shift
            self._recent[fitted] += shift[:, None]
        self._refresh()

    def _take(self, kind: Hashable, which: Ints, rows: Floats, log_seconds: Floats) -> None:
        """Split what these machines showed into the rate of the kind and their speeds."""
        state = self._kinds.get(kind)
        log_rates = np.log(rows + self._overheads.rows[which]) - log_seconds
        known = self._count[which] > 0
        residuals = (log_rates - self._log_speeds[which])[known]
        if state is None:
            state = self._kinds[kind] = _Kind(self._log_speeds.size)
            if not residuals.size:
                state.take(median(log_rates))
        # If one or two machines change, it is likely they that did and not the kind.
        many = residuals.size > 2
        if many or (residuals.size and len(state.levels) < _WINDOW):
            state.take(median(residuals))
        level = state.levels[-1] if many else state.level
        self._unit = math.exp(-state.level)
        if residuals.size:
            noise = DEVIATION * median(np.abs(residuals - level))
            self._noise += _SMOOTHING * (noise - self._noise)
        self._forget(which)
        self._learn(which, log_rates - level)
        self._compare(state, which, np.log(rows), log_seconds)
        self._typical[which] = rows

    def _learn(self, which: Ints, log_speeds: Floats) -> None:
        """Median of the last measurements, then smoothing."""
        self._recent[which, self._count[which] % _WINDOW] = log_speeds
        self._count[which] += 1
        held = np.minimum(self._count[which], _WINDOW)
        # Of two, the faster: what disturbs a machine makes it slower.
        middle = upper_median(self._recent[which], held)
        old = self._log_speeds[which]
        age = self._age[which] + 1
        jump = (held < _WINDOW) | (np.abs(middle - old) > max(_JUMPS * self._noise, _LEAST_JUMP))
        age[jump] = 1
        gain = np.maximum(_SMOOTHING, 1 / age)
        self._age[which] = age
        self._log_speeds[which] = np.clip(old + gain * (middle - old), -_MOST_LOG, _MOST_LOG)

    def _forget(self, which: Ints) -> None:
        """What was measured long ago counts as one measurement."""
        late = which[(self._step - self._seen[which] > _LONG) & (self._count[which] > 0)]
        if late.size:
            self._recent[late] = np.inf
            self._recent[late, 0] = self._log_speeds[late]
            self._count[late] = 1
        self._seen[which] = self._step

    def _try_the_idle(self, rows: NDArray[Any]) -> None:
        """A machine too slow for even one row is never measured: sooner or later, try it."""
        idle = self._available[rows[self._available] == 0]
        if idle.size:
            slow = (self._log_speeds[idle] < 0) | (self._overheads.rows[idle] > 0)
            idle = idle[slow & (self._count[idle] > 0)]
            self._log_speeds[idle] += _CREEP

    def _compare(
        self,
        state: _Kind,
        which: Ints,
        log_rows: Floats,
        log_seconds: Floats,
    ) -> None:
        """Compare each machine with its last step of this kind, if it had other rows then."""
        more = log_rows - state.log_rows[which]
        wide = np.abs(more) > SPREAD  # False where there is no last step
        if wide.any():
            longer = (log_seconds - state.log_seconds[which])[wide]
            self._overheads.take(which[wide], more[wide], longer, (log_rows - more / 2)[wide])
        state.log_rows[which] = log_rows
        state.log_seconds[which] = log_seconds

    def _refresh(self) -> None:
        """Estimates in rows per unit of time, after a change."""
        seen = self._count > 0
        logs = self._log_speeds
        if not seen.all():
            logs = np.where(seen, logs, median(logs[seen]) if seen.any() else 0.0)
        self._speeds = np.exp(logs)
        if self._planned is not None:
            self._planned.fresh = self._planned.checked = False

    def _plan(self, available: tuple[int, ...]) -> _Planned:
        """The best loads of the available machines, remembered until estimates change."""
        planned = self._planned
        if planned is None or planned.available != available:
            planned = self._planned = _Planned(available)
        if not planned.fresh:
            planned.fresh = True
            which = planned.which
            planned.seconds, planned.best = optimum(
                self._speeds[which], self._overheads.rows[which], self._copies, self._rows
            )
        return planned

    def _seconds(self, rows: Floats, which: Ints | slice) -> Floats:
        """Time for these rows, in the unit of the speeds; none without rows."""
        return (self._overheads.rows[which] + rows) / self._speeds[which] * (rows > 0)

    def _effective(self, rows: Floats) -> Floats:
        """Speeds with the overhead counted in, at these loads."""
        rows = np.maximum(rows, _LEAST_ROWS)  # Theorem 1 has no speed 0
        return self._speeds * rows / (self._overheads.rows + rows)


class _Planned:
    """What `SpeedEstimator` remembers of the machines that are available."""

    def __init__(self, available: tuple[int, ...]) -> None:
        self.available = available
        self.which: Ints = np.array(available, dtype=np.int64) - 1
        self.fresh = False  # `seconds` and `best` belong to the current estimates
        self.checked = False  # and the published speeds were compared with them
        self.seconds = 0.0
        self.best = np.zeros(0)
        self.published: tuple[float, ...] = ()  # the speeds that give `loads`
        self.loads = np.zeros(0)
