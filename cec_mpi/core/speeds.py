"""Speeds of machines: given by users, or learned from measured times."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.demand import Demand, Floats
from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.plan.load import check_speeds

_SHORTEST, _LONGEST = 1e-9, 1e9  # seconds that a measurement can be
_NEVER = math.inf
_SCALE_STEPS = 5  # of each kind, that the scale of given speeds is fitted to
# What these numbers do is said in `SpeedEstimator`.
_GAIN, _LEAST_GAIN, _MOST_GAIN = 0.2, 0.05, 0.6
_GROWTH = 0.2  # of the log of the gain, if all differences keep their sign in a step
_OUTLIER_SIGMAS, _MIN_OUTLIER = 4.5, 0.02
_MAX_OUTLIER, _MIN_HIT_RATE = math.log(8.0), 0.2
_STALE_AFTER, _FORGET_AFTER, _STALE_DISCOUNT = 8, 32, math.log(3.0)
_NOISE, _SMOOTHING = 0.1, 0.1  # of a log speed at first; weight of the newest estimate of it
_DEVIATION = 1.4826  # standard deviation of normal numbers over their median deviation
_LEVELS = 5  # steps that the rate of a kind is the median of
_MEMORY, _ERRORS = 0.96, 3.0  # weight of older pairs of steps; standard errors
_MIN_GAIN, _MIN_GAIN_IN_NOISE, _MIN_GAIN_SECONDS = 0.02, 0.5, 2e-4
# Evidence of a change, in standard deviations: of each difference so much less, and so much in all.
_SLACK, _EVIDENCE = 0.7, 4.0
# Of steps in which the slowest machine takes less than so many seconds, several are learned from at
# once, at most so many, after so many measurements of each machine.
_SUMMED_SECONDS, _MAX_SUMMED_STEPS, _MIN_MEASUREMENTS = 5e-3, 16, 16
_SIDES = np.array([[1.0], [-1.0]])  # faster, slower
_CREEP = 0.02  # growth of the log speed of an available machine that gets no rows, per step
_MOST = 14.0  # of a log speed: a million times faster or slower than the others is enough


class Speeds(Protocol):
    """The speeds of machines: for plans, and for the expected seconds.

    A *kind* of product is anything hashable: products of one kind take the same time for
    the same rows. Machines have numbers from 1; arrays have one entry per machine. Of a sparse X
    nonzeros take the place of rows.

    Attributes
    ----------
    demand : Demand
        What machines have to do together.
    """

    demand: Demand

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, if known."""

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Note the hosts of machines (from 1)."""

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the speeds of all machines; the same object while nothing changes."""

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Return the seconds of the slowest machine with these rows; None if not known yet."""

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """Return a lower bound of the seconds on these machines; None if not known yet."""

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Take the rows and seconds of each machine in a step; 0 if preempted."""


class FixedSpeeds:
    """Relative speeds that the user has given; only rows per second are fitted.

    Seconds are ``rows / (scale * speed)``, where the scale of each kind of product is the
    median of what all machines showed in the first 5 steps of that kind.

    Parameters
    ----------
    speeds : (N,) sequence of float
        Relative speed of each machine.
    demand : Demand
        What machines have to do together.

    Raises
    ------
    InputError
        A speed is not positive and finite.

    Examples
    --------
    >>> from cec_mpi.core.demand import CodedDemand
    >>> speeds = FixedSpeeds([1.0, 2.0], CodedDemand(2, 2, 200))
    >>> speeds.observe("matvec", [100, 200], [0.5, 0.5])
    >>> speeds.plan_speeds((1, 2)), speeds.scale
    ((1.0, 2.0), 200.0)
    >>> speeds.predict("matvec", [0, 100]), speeds.bound("matvec", (1, 2))
    (0.25, 1.0)
    """

    def __init__(self, speeds: Sequence[float], demand: Demand) -> None:
        self._speeds, self.demand = check_speeds(speeds), demand
        self._plan_speeds = tuple(self._speeds.tolist())
        self._rates: dict[Hashable, list[Floats]] = {}
        self._scales: dict[Hashable, float] = {}
        self._bound_cache: tuple[tuple[int, ...], float] = ((), 0.0)
        self._prediction_cache: tuple[ArrayLike, float] = (), 0.0  # at a rate of 1

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Do nothing: machines have the given speeds on any host."""

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, if known."""
        return next(iter(self._scales.values()), None)

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the given speeds."""
        return self._plan_speeds

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine: ``max(rows / speeds) / scale``; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        if rows is not self._prediction_cache[0]:
            self._prediction_cache = rows, float(np.max(np.asarray(rows) / self._speeds))
        return self._prediction_cache[1] / scale

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """``c* R / scale`` of Theorem 1, in seconds; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        known, rows = self._bound_cache
        if known != available:
            which = np.array(available) - 1
            rows = self.demand.optimal_loads(self._speeds[which], np.zeros(which.size), which)[0]
            self._bound_cache = available, rows
        return rows / scale

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Fit the scale of a kind in its first steps; see `Speeds`."""
        rates = self._rates.setdefault(kind, [])
        if len(rates) == _SCALE_STEPS:
            return
        which, counts, times = valid_measurements(rows, seconds)
        rates.append(counts / times / self._speeds[which])
        if any(step.size for step in rates):
            self._scales[kind] = float(np.median(np.concatenate(rates)))


def hindsight_makespan(
    rows: NDArray[np.number] | Sequence[float],
    seconds: NDArray[np.number] | Sequence[float],
    demand: Demand,
) -> float | None:
    """Makespan of the best assignment at the speeds that machines showed in this very step.

    That of Theorem 1 with the speeds ``rows / seconds``, in fractions of rows. The regret of a
    step is its measured makespan over this, less 1.

    Parameters
    ----------
    rows : (N,) sequence of float
        Rows that each machine computed, 0 where preempted.
    seconds : (N,) sequence of float
        Seconds that it took. A machine without rows or time showed no speed, and is left out.
    demand : Demand

    Returns
    -------
    float or None
        Seconds; None when the machines that showed a speed cannot do all of it.

    Examples
    --------
    Machines of speeds 2, 2, 3, 3, 4 and 4 with equal loads; three of them compute each of 420 rows:

    >>> from cec_mpi.core.demand import CodedDemand
    >>> seconds = [105, 105, 70, 70, 52.5, 52.5]
    >>> round(hindsight_makespan([210] * 6, seconds, CodedDemand(6, 3, 420)), 9)
    70.0
    """
    amounts = rows.tolist() if isinstance(rows, np.ndarray) else rows
    times = seconds.tolist() if isinstance(seconds, np.ndarray) else seconds
    return demand.makespan(
        [
            amount / min(max(time, _SHORTEST), _LONGEST) if amount > 0 and 0 < time < _NEVER else 0
            for amount, time in zip(amounts, times, strict=True)
        ]
    )


def valid_measurements(rows: ArrayLike, seconds: ArrayLike) -> tuple[Ints, Floats, Floats]:
    """Return the machines (from 0) that showed a speed, with their rows and seconds.

    A time of 0 is below the resolution of the clock and shows no speed.
    """
    counts, times = np.asarray(rows, np.float64), np.asarray(seconds, np.float64)
    (which,) = ((np.minimum(counts, times) > 0) & (np.maximum(counts, times) < np.inf)).nonzero()
    if which.size < counts.size:
        counts, times = counts[which], times[which]
    return which, counts, np.minimum(np.maximum(times, _SHORTEST), _LONGEST)


class _LogTimeSums:
    """The times of steps in which nothing happened.

    Attributes
    ----------
    rows : array_like
        As given to `Speeds.observe`.
    steps, most : int
        How many steps were kept, and at the most.
    """

    def __init__(
        self, rows: ArrayLike, which: Ints, counts: Floats, expected: Floats, far: float, most: int
    ) -> None:
        self.rows, self.steps, self.most = rows, 0, most
        self._which, self._counts, self._expected, self._far = which, counts, expected, far
        seconds = np.exp(expected)
        self._earliest = np.minimum(np.exp(expected - far), seconds - _MIN_GAIN_SECONDS / 2)
        self._latest = np.maximum(np.exp(expected + far), seconds + _MIN_GAIN_SECONDS / 2)
        self._predicted_times = np.empty((most, which.size))

    def take(self, seconds: Floats) -> bool:
        """Keep the times of a step; False if one is too far from what is expected."""
        times = seconds if self._which.size == seconds.size else seconds[self._which]
        if np.logical_or.reduce((times < self._earliest) | (times > self._latest)):
            return False
        self._predicted_times[self.steps] = times
        self.steps += 1
        return True

    def taken(self) -> tuple[Ints, Floats, Floats]:
        """Return the machines, their rows, and the means of the logs of their times."""
        times = np.log(np.maximum(self._predicted_times[: self.steps], _SHORTEST))
        near = np.clip(times, self._expected - self._far, self._expected + self._far)
        return self._which, self._counts, near.mean(axis=0)


class SpeedEstimator:
    """Speeds learned from the times that machines measure.

    The model of machine n in a product of kind k, with ``m`` rows::

        seconds = (cost + m) / speed[n] / rate[k]

    where the cost of a call is in rows, the same number for all machines. From each step:

    1. Machines that had other rows in their last step show the cost.
    2. What all machines have in common (the median over them of measured rate over expected
       rate) goes to the rate of the kind. So kinds can be mixed, and machines that slow down
       together keep their speeds.
    3. What is left of each machine is averaged: its log speed moves by ``max(gain, 1 / age)`` of
       the difference, where the age counts measurements. The gain is the same for all machines,
       at first 0.2, and between 0.05 and 0.6. It grows while differences keep their sign, as
       they do when speeds drift, and shrinks while they change it, as noise does.
    4. A difference above 4.5 standard deviations, and 2 %, waits for the next measurement of the
       machine. If that is nearer to it than to the average, the speed has changed, and the faster
       of both is taken, since what disturbs makes slower. Until then plans count with the change,
       unless it is by a factor of 8 or more, or fewer than a fifth of the last ones were changes.
    5. Differences of one sign are added up, less 0.7 standard deviations each. When the sum is
       above 4 standard deviations, the speed has changed, and becomes the mean since the sum was 0
       (the cumulative sums of Page, Continuous inspection schemes, 1954).

    Where the slowest machine takes less than 5 ms, the times of several steps are added up, and
    their mean counts as so many measurements. A time that is far from what is expected, by more
    than 0.1 ms, ends that at once.

    The first measurement of a machine may be disturbed: if the second is much faster, only the
    second counts. After 8 steps without a measurement a machine is planned with less than its
    speed, after 32 with a third of it, and the next measurement replaces the estimate. So a machine
    that is slow when it returns does not delay the others.

    Plans are made with ``m / seconds`` at the loads m of the best plan, for which Theorem 1
    gives these same loads. They are replaced when a new plan promises to be faster by more than
    2 %, by more than half of the noise of a measurement, and by more than 0.2 ms, because a new
    plan takes time. They are also replaced when a machine would get more than twice the rows,
    because a machine with few rows shows little of its speed.

    Parameters
    ----------
    demand : Demand
        What machines have to do together. All speeds are equal at first.

    Examples
    --------
    >>> from cec_mpi.core.demand import CodedDemand
    >>> speeds = SpeedEstimator(CodedDemand(3, 2, 300))
    >>> speeds.plan_speeds((1, 2, 3))
    (1.0, 1.0, 1.0)
    >>> speeds.observe("matvec", [200, 200, 200], [1.0, 1.0, 0.5])
    >>> speeds.plan_speeds((1, 2, 3))
    (1.0, 1.0, 2.0)
    >>> round(speeds.predict("matvec", [150, 150, 300]), 6)
    0.75
    """

    def __init__(self, demand: Demand) -> None:
        self.demand, self._machines = demand, demand.machines
        self._host_of: dict[int, str] = {}
        self._reset()

    def _reset(self) -> None:
        """Start without any knowledge."""
        self._step = 0
        self._last_rate = 0.0  # of the kind of the last step
        self._noise, self._gain = _NOISE, _GAIN
        self._outlier_hit_rate = 0.5  # share of the last surprises that were changes
        self._levels: dict[Hashable, deque[float]] = {}  # logs of rates
        self._cost = self._weight = self._sum = 0.0  # of a call, in rows; of its fit
        # Of each machine: log speed, measurements, sign of the last difference, the surprise that
        # waits, and of the last measurement the step, the rows, and the log of seconds at rate 1.
        self._estimates = np.full((7, self._machines), np.nan)
        self._logs, self._ages, self._signs, self._outliers = self._estimates[:4]
        self._last_steps, self._last_rows, self._last_log_seconds = self._estimates[4:]
        self._signs[:] = 0
        # Of each machine, for faster and slower: the evidence of a change, the measurements since
        # it began, and the sum of what they showed.
        self._evidence, self._evidence_steps, self._evidence_sums = np.zeros((3, 2, self._machines))
        self._last_rows[:] = self.demand.total / self._machines
        self._initial_estimates = self._estimates[:, 0].copy()
        self._estimates_by_host: dict[str, Floats] = {}
        self._speeds = np.ones(self._machines)
        self._available: Ints = np.arange(0)
        self._plan_speeds = (1.0,) * self._machines
        self._best: tuple[tuple[int, ...], float, Floats] | None = None
        self._loads: tuple[tuple[int, ...], tuple[float, ...], Floats] | None = None
        self._decided_machines: tuple[int, ...] | None = (
            None  # whose plan is the best, or near enough
        )
        self._sums: dict[Hashable, _LogTimeSums] = {}
        self._prediction_cache: dict[Hashable, tuple[ArrayLike, float]] = {}
        self._is_updating = False  # because of an interrupt: estimates may be inconsistent

    def _begin_update(self) -> None:
        if self._is_updating:
            self._reset()
        self._is_updating = True

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Note the hosts of machines; see `Speeds`.

        A machine that has moved starts with what was learned on its host, which counts like the
        estimate of a machine that was away.
        """
        before, self._host_of = self._host_of, {**self._host_of, **hosts}
        self._begin_update()
        self._sums.clear()
        for n, host in before.items():
            if np.isfinite(self._logs[n - 1]):
                self._estimates_by_host[host] = self._estimates[:, n - 1].copy()
        for n, host in hosts.items():
            if before.get(n) != host:
                self._estimates[:, n - 1] = self._estimates_by_host.get(
                    host, self._initial_estimates
                )
                self._last_log_seconds[n - 1] = np.nan  # other steps than those of its neighbours
        self._recompute_speeds()

    @property
    def scale(self) -> float | None:
        """Rows per second of the median machine in the first kind of product, if known.

        The speeds to plan with are relative to the median machine.
        """
        kind = next(iter(self._levels), None)
        return (
            None
            if kind is None
            else self._rate(kind) * median(self._effective_speeds(self._last_rows))
        )

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Speeds of all machines, relative to the median one; see `Speeds`."""
        if self._is_updating:
            self._reset()
        if self._decided_machines == available:
            return self._plan_speeds
        which = np.array(available, dtype=np.int64) - 1
        if not self.demand.is_feasible(which):
            return self._plan_speeds
        self._available = which
        if self._loads is None or self._loads[:2] != (available, self._plan_speeds):
            present = np.array(self._plan_speeds)[which]
            self._loads = (
                available,
                self._plan_speeds,
                self._minimise_makespan(present, 0.0, which)[1],
            )
        loads, (seconds, best) = self._loads[2], self._best_loads(available)
        gain = float(self._predicted_times(loads, which).max()) - seconds
        is_better = gain > seconds * max(_MIN_GAIN, _MIN_GAIN_IN_NOISE * self._noise)
        if not is_better and (best > 2 * loads + 1).any():
            is_better, gain = True, seconds
        if is_better and gain > _MIN_GAIN_SECONDS * self._last_rate:
            rows = self._last_rows.copy()
            rows[which] = best
            speeds = self._effective_speeds(rows)
            self._plan_speeds = tuple((speeds / median(speeds)).tolist())
        self._decided_machines = available
        return self._plan_speeds

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Seconds of the slowest machine by the current estimates; see `Speeds`."""
        if kind not in self._levels:
            return None
        known, seconds = self._prediction_cache.get(kind, (None, 0.0))
        if known is not rows:
            loads = np.asarray(rows, np.float64)
            seconds = float(self._predicted_times(loads, slice(None)).max()) / self._rate(kind)
            self._prediction_cache[kind] = rows, seconds
        return seconds

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """The least makespan by the current estimates, in fractions of rows; see `Speeds`."""
        if kind not in self._levels:
            return None
        return self._best_loads(available)[0] / self._rate(kind)

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Learn from a step; see `Speeds`. A time of 0 says nothing, and is left out.

        If nothing happens in short steps, only their times are added up. The same object for the
        rows stands for the same rows.
        """
        self._begin_update()
        sums = self._sums.get(kind)
        if sums is not None:
            if sums.rows is rows and sums.take(np.asarray(seconds)):
                if sums.steps == sums.most:
                    self._update_from_mean(kind, rows, *sums.taken(), sums.steps)
                self._is_updating = False
                return
            if sums.steps:
                self._update_from_mean(kind, sums.rows, *sums.taken(), sums.steps)
        which, counts, times = valid_measurements(rows, seconds)
        self._update_from_mean(kind, rows, which, counts, np.log(times), 1)

    def _update_from_mean(
        self,
        kind: Hashable,
        rows: ArrayLike,
        which: Ints,
        counts: Floats,
        log_seconds: Floats,
        steps: int,
    ) -> None:
        """Learn from the mean of some steps of machines that computed these rows."""
        self._step += steps
        self._sums.pop(kind, None)
        if which.size:
            self._update(kind, which, counts, log_seconds, steps)
            if self._available.size > which.size:  # too slow for a row: tried again later
                idle = np.setdiff1d(self._available, which)
                creep = _CREEP * steps
                self._logs[idle] = np.minimum(self._logs[idle] + creep, np.nanmax(self._logs))
            longest = math.exp(log_seconds.max())
            most = math.ceil(_SUMMED_SECONDS / longest)
            if most > 1 and self._is_steady(which, longest):
                logs = self._logs[which] + math.log(self._rate(kind))
                expected = np.log(counts + self._cost) - logs
                far = max(_OUTLIER_SIGMAS * self._noise, _MIN_OUTLIER)
                self._sums[kind] = _LogTimeSums(
                    rows, which, counts, expected, far, min(most, _MAX_SUMMED_STEPS)
                )
        self._recompute_speeds()

    def _is_steady(self, which: Ints, longest: float) -> bool:
        """Whether nothing suggests a change of these machines, or steps are too short to matter."""
        if longest < _MIN_GAIN_SECONDS:
            return self._step >= _MIN_MEASUREMENTS
        if self._ages[which].min() < _MIN_MEASUREMENTS:
            return False
        calm = self._evidence[:, which].max() < _EVIDENCE / 2
        return calm and not np.isfinite(self._outliers[which]).any()

    def _update(
        self, kind: Hashable, which: Ints, rows: Floats, log_seconds: Floats, steps: int
    ) -> None:
        """Split what these machines showed into the rate of the kind and their speeds."""
        expected, away = self._logs[which], self._step - steps - self._last_steps[which]
        old = np.isfinite(expected)
        levels = self._levels.get(kind, deque(maxlen=_LEVELS))
        logs = np.log(rows + self._cost) - log_seconds
        # With one or two machines, a change is more likely theirs than that of the kind.
        many = np.count_nonzero(old) > 2
        if many or not levels or (old.any() and len(levels) < _LEVELS):
            levels.append(median((logs - expected)[old] if old.any() else logs))
            self._levels[kind] = levels
        level = levels[-1] if many else math.log(self._rate(kind))
        self._last_rate = self._rate(kind)
        times = log_seconds + level
        self._fit_cost(which, rows, times)
        self._last_rows[which], self._last_log_seconds[which], self._last_steps[which] = (
            rows,
            times,
            self._step,
        )
        logs = np.minimum(np.maximum(np.log(rows + self._cost) - times, -_MOST), _MOST)
        self._ages[which[away > _STALE_AFTER]] = 1
        new = ~old | (away > _FORGET_AFTER)
        if new.any():
            self._reset_machines(which[new], logs[new], 1)
            which, logs = which[~new], logs[~new]
        if which.size:
            self._update_averages(which, logs, steps)

    def _reset_machines(self, which: Ints, logs: Floats, age: int) -> None:
        self._logs[which], self._ages[which], self._outliers[which] = logs, age, np.nan
        self._evidence[:, which] = self._evidence_steps[:, which] = self._evidence_sums[
            :, which
        ] = 0

    def _update_averages(self, which: Ints, logs: Floats, steps: int) -> None:
        """Average measurements near the estimate; others wait for a second measurement."""
        errors, ages, odd = logs - self._logs[which], self._ages[which], self._outliers[which]
        sizes = np.abs(errors)
        far = sizes > max(_OUTLIER_SIGMAS * self._noise / math.sqrt(steps), _MIN_OUTLIER)
        sizes = sizes * math.sqrt(steps)  # which those of single steps have
        noise = min(_DEVIATION * median(sizes), 2 * max(self._noise, 1e-4))
        self._noise += max(_SMOOTHING, 1 / ages.max()) * (noise - self._noise)
        again = np.abs(logs - odd) < np.abs(errors)  # False where there is none
        waited = np.isfinite(odd)
        if waited.any():
            self._outlier_hit_rate += _SMOOTHING * (again[waited].mean() - self._outlier_hit_rate)
        changed = again | (far & (ages <= 1) & (errors > 0))  # the first may have been disturbed
        self._outliers[which] = np.where(far & ~changed, logs, np.nan)
        self._reset_machines(which[changed], np.fmax(odd, logs)[changed], 2)
        usual = ~far & ~changed
        which, logs, errors, ages = which[usual], logs[usual], errors[usual], ages[usual]
        ages = ages + steps
        signs = np.sign(errors)
        if which.size:
            change = math.exp(_GROWTH * float((signs * self._signs[which]).mean()))
            self._gain = min(max(self._gain * change, _LEAST_GAIN), _MOST_GAIN)
        self._ages[which], self._signs[which] = ages, signs
        self._logs[which] += np.maximum(1 - (1 - self._gain) ** steps, steps / ages) * errors
        self._detect_drift(which, logs, errors, steps)

    def _detect_drift(self, which: Ints, logs: Floats, errors: Floats, steps: int) -> None:
        """Find changes that noise hides in each single measurement: Page's cumulative sums."""
        sizes = _SIDES * errors / max(self._noise, _MIN_OUTLIER / _OUTLIER_SIGMAS) - _SLACK
        evidence = np.maximum(self._evidence[:, which] + steps * sizes, 0.0)
        begun = evidence > 0
        since = (self._evidence_steps[:, which] + steps) * begun
        shown = (self._evidence_sums[:, which] + steps * logs) * begun
        self._evidence[:, which], self._evidence_steps[:, which] = evidence, since
        self._evidence_sums[:, which] = shown
        side, machine = (evidence > _EVIDENCE).nonzero()
        if machine.size:
            self._reset_machines(which[machine], shown[side, machine] / since[side, machine], 1)
            self._ages[which[machine]] = since[side, machine]

    def _fit_cost(self, which: Ints, rows: Floats, times: Floats) -> None:
        """Fit the cost of a call to pairs of steps, in which machines had different rows.

        Two steps show ``log((cost + m') / (cost + m))``, which is linear in small changes of the
        cost: least squares, in which older pairs count for less. What machines have in common
        tells nothing. The cost shrinks by ``(3 standard errors / cost)**2``, so that noise is
        not taken for one.
        """
        before, longer = self._last_rows[which], times - self._last_log_seconds[which]
        some = np.isfinite(longer)
        before, rows, longer = before[some], rows[some], longer[some]
        if rows.size < 3 or (np.abs(rows - before) <= _MIN_OUTLIER * before).all():
            return
        cost = self._cost
        for _ in range(2):
            slopes = 1 / (cost + rows) - 1 / (cost + before)
            slopes -= slopes.mean()
            left = longer - np.log((cost + rows) / (cost + before))
            left -= median(left)
            spread = _DEVIATION * median(np.abs(left))
            left = np.minimum(np.maximum(left, -3 * spread), 3 * spread)
            weight = _MEMORY * self._weight + float(slopes @ slopes)
            total = _MEMORY * self._sum + float(slopes @ (left + cost * slopes))
            if weight <= 0:
                return
            least = _ERRORS * max(spread, self._noise) / math.sqrt(weight)
            found = min(total / weight, 4 * self.demand.total / self._machines)
            cost = found * (1 - (least / found) ** 2) if found > least else 0.0
        shift = np.log((cost + self._last_rows) / (self._cost + self._last_rows))
        self._logs[:] = np.clip(self._logs + shift, -_MOST, _MOST)
        self._outliers += shift
        self._cost, self._weight, self._sum = cost, weight, total

    def _recompute_speeds(self) -> None:
        """Estimates in rows per unit of time, after a change."""
        known, logs, odd = np.isfinite(self._logs), self._logs, self._outliers
        if self._outlier_hit_rate > _MIN_HIT_RATE:
            logs = np.where(np.abs(odd - logs) < _MAX_OUTLIER, odd, logs)
        away = (self._step - self._last_steps - _STALE_AFTER) / (_FORGET_AFTER - _STALE_AFTER)
        logs = logs - _STALE_DISCOUNT * np.minimum(np.maximum(away, 0), 1)
        if not known.all():
            logs = np.where(known, logs, median(self._logs[known]) if known.any() else 0.0)
        self._speeds = np.exp(logs)
        self._best = self._decided_machines = None
        self._prediction_cache.clear()
        self._is_updating = False

    def _best_loads(self, available: tuple[int, ...]) -> tuple[float, Floats]:
        """The least time and the best loads of these machines, until estimates change."""
        if self._best is None or self._best[0] != available:
            which = np.array(available, dtype=np.int64) - 1
            self._best = available, *self._minimise_makespan(self._speeds[which], self._cost, which)
        return self._best[1:]

    def _minimise_makespan(self, speeds: Floats, cost: float, which: Ints) -> tuple[float, Floats]:
        return self.demand.optimal_loads(speeds, np.full(which.size, cost), which)

    def _rate(self, kind: Hashable) -> float:
        """Return the median of the last five rates; of two the faster one."""
        levels = sorted(self._levels[kind])
        return math.exp(levels[len(levels) // 2])

    def _predicted_times(self, rows: Floats, which: Ints | slice) -> Floats:
        """Return the time for these rows in the unit of the speeds; 0 without rows."""
        return (self._cost + rows) / self._speeds[which] * (rows > 0)

    def _effective_speeds(self, rows: Floats) -> Floats:
        """Return the speeds at these loads, including the cost of a call."""
        rows = np.maximum(rows, 0.5)
        return self._speeds * rows / (self._cost + rows)


def median(values: Floats) -> float:
    """Return the median; five times as fast as NumPy's for few values."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)
