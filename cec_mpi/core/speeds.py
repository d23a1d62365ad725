"""Speeds of machines: fixed by the user, or estimated from measured times."""

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

_MIN_SECONDS, _MAX_SECONDS = 1e-9, 1e9  # range of a measurement
_SCALE_STEPS = 5  # steps of each kind to which the scale of fixed speeds is fitted
# `SpeedEstimator` describes the following parameters.
_GAIN, _MIN_GAIN, _MAX_GAIN = 0.2, 0.05, 0.6
_GROWTH = 0.2  # of the log of the gain, if all differences keep their sign
_OUTLIER_SIGMAS, _MIN_OUTLIER = 4.5, 0.02
_MAX_OUTLIER, _MIN_HIT_RATE = math.log(8.0), 0.2
_STALE_AFTER, _FORGET_AFTER, _STALE_DISCOUNT = 8, 32, math.log(3.0)
_NOISE, _SMOOTHING = 0.1, 0.1  # initial noise of a log speed; weight of a new estimate of it
_MAD_TO_SIGMA = 1.4826  # standard deviation of normal numbers over their median deviation
_RATE_STEPS = 5  # the rate of a kind is the median over this many steps
_PAIR_WEIGHT, _COST_SIGMAS = 0.96, 3.0  # forgetting factor of the fit; standard errors
_MIN_IMPROVEMENT, _MIN_IMPROVEMENT_IN_NOISE, _MIN_IMPROVEMENT_SECONDS = 0.02, 0.5, 2e-4
_DRIFT_ALLOWANCE, _DRIFT_THRESHOLD = 0.7, 4.0  # of the cumulative sums, in standard deviations
# Short steps (seconds of the slowest machine) are averaged, up to a maximum number of steps, after
# enough measurements of each machine.
_SUMMED_SECONDS, _MAX_SUMMED_STEPS, _MIN_MEASUREMENTS = 5e-3, 16, 16
_SIGNS = np.array([[1.0], [-1.0]])  # faster, slower
_CREEP = 0.02  # growth per step of the log speed of an available machine without rows
_MAX_ABS_LOG_SPEED = 14.0  # a factor of a million between machines


class Speeds(Protocol):
    """The speeds of machines, for plans and predictions of times.

    Products of one *kind* (a hashable label) take the same time for the same rows. Machines count
    from 1; arrays have one entry per machine. For a sparse X, nonzeros replace rows.

    Attributes
    ----------
    demand : Demand
        The work of a step.
    """

    demand: Demand

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, or None."""

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Set the hosts of machines (from 1)."""

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the speeds of all machines; the same object while nothing changes."""

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Return the predicted makespan in seconds; None if not known yet."""

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """Return a lower bound of the makespan in seconds; None if not known yet."""

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Record the rows and seconds of each machine in a step; 0 for unavailable machines."""


class FixedSpeeds:
    """Relative speeds from the user; only their scale is fitted.

    Seconds are ``rows / (scale * speed)``. The scale of each kind of product is the median over the
    measurements of all machines in the first 5 steps of that kind.

    Parameters
    ----------
    speeds : (N,) sequence of float
        Relative speed of each machine.
    demand : Demand
        The work of a step.

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
        """Do nothing: fixed speeds do not depend on the host."""

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first kind of product, or None."""
        return next(iter(self._scales.values()), None)

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the fixed speeds."""
        return self._plan_speeds

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Return ``max(rows / speeds) / scale``; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        if rows is not self._prediction_cache[0]:
            self._prediction_cache = rows, float(np.max(np.asarray(rows) / self._speeds))
        return self._prediction_cache[1] / scale

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """Return ``c* R / scale`` of Theorem 1; see `Speeds`."""
        scale = self._scales.get(kind)
        if scale is None:
            return None
        known, rows = self._bound_cache
        if known != available:
            machines = np.array(available) - 1
            rows = self.demand.optimal_loads(
                self._speeds[machines], np.zeros(machines.size), machines
            )[0]
            self._bound_cache = available, rows
        return rows / scale

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Fit the scale of a kind to its first steps; see `Speeds`."""
        rates = self._rates.setdefault(kind, [])
        if len(rates) == _SCALE_STEPS:
            return
        machines, counts, times = valid_measurements(rows, seconds)
        rates.append(counts / times / self._speeds[machines])
        if any(step.size for step in rates):
            self._scales[kind] = float(np.median(np.concatenate(rates)))


def hindsight_makespan(
    rows: NDArray[np.number] | Sequence[float],
    seconds: NDArray[np.number] | Sequence[float],
    demand: Demand,
) -> float | None:
    """Return the minimum makespan at the speeds that were measured in the same step.

    It is the makespan of Theorem 1 with speeds ``rows / seconds``, fractions of rows allowed. The
    regret of a step is its measured makespan divided by this, minus 1.

    Parameters
    ----------
    rows : (N,) sequence of float
        Rows of each machine, 0 for unavailable ones.
    seconds : (N,) sequence of float
        Seconds of each machine. Machines without rows or time are ignored.
    demand : Demand

    Returns
    -------
    float or None
        Seconds; None if the machines with a measured speed cannot do all the work.

    Examples
    --------
    Machines of speeds 2, 2, 3, 3, 4 and 4 with equal loads; three machines compute each of 420
    rows:

    >>> from cec_mpi.core.demand import CodedDemand
    >>> seconds = [105, 105, 70, 70, 52.5, 52.5]
    >>> round(hindsight_makespan([210] * 6, seconds, CodedDemand(6, 3, 420)), 9)
    70.0
    """
    amounts = rows.tolist() if isinstance(rows, np.ndarray) else rows
    times = seconds.tolist() if isinstance(seconds, np.ndarray) else seconds
    return demand.makespan(
        [
            amount / min(max(time, _MIN_SECONDS), _MAX_SECONDS)
            if amount > 0 and 0 < time < math.inf
            else 0
            for amount, time in zip(amounts, times, strict=True)
        ]
    )


def valid_measurements(rows: ArrayLike, seconds: ArrayLike) -> tuple[Ints, Floats, Floats]:
    """Return the machines (from 0) with a measured speed, their rows and their seconds.

    A time of 0 is below the resolution of the clock and gives no speed.
    """
    counts, times = np.asarray(rows, np.float64), np.asarray(seconds, np.float64)
    (machines,) = ((np.minimum(counts, times) > 0) & (np.maximum(counts, times) < np.inf)).nonzero()
    if machines.size < counts.size:
        counts, times = counts[machines], times[machines]
    return machines, counts, np.minimum(np.maximum(times, _MIN_SECONDS), _MAX_SECONDS)


class _SteadySteps:
    """Times of consecutive steps without an outlier, to average.

    Attributes
    ----------
    rows : array_like
        Argument of `Speeds.observe`.
    steps, max_steps : int
        Number of recorded steps, and its maximum.
    """

    def __init__(
        self,
        rows: ArrayLike,
        machines: Ints,
        counts: Floats,
        expected: Floats,
        max_deviation: float,
        max_steps: int,
    ) -> None:
        self.rows, self.steps, self.max_steps = rows, 0, max_steps
        self._machines, self._counts, self._expected, self._max_deviation = (
            machines,
            counts,
            expected,
            max_deviation,
        )
        seconds = np.exp(expected)
        self._earliest = np.minimum(
            np.exp(expected - max_deviation), seconds - _MIN_IMPROVEMENT_SECONDS / 2
        )
        self._latest = np.maximum(
            np.exp(expected + max_deviation), seconds + _MIN_IMPROVEMENT_SECONDS / 2
        )
        self._predicted_times = np.empty((max_steps, machines.size))

    def add(self, seconds: Floats) -> bool:
        """Record the times of a step; return False if one deviates too much."""
        times = seconds if self._machines.size == seconds.size else seconds[self._machines]
        if np.logical_or.reduce((times < self._earliest) | (times > self._latest)):
            return False
        self._predicted_times[self.steps] = times
        self.steps += 1
        return True

    def means(self) -> tuple[Ints, Floats, Floats]:
        """Return the machines, their rows, and the means of their log times."""
        times = np.log(np.maximum(self._predicted_times[: self.steps], _MIN_SECONDS))
        lower, upper = self._expected - self._max_deviation, self._expected + self._max_deviation
        return self._machines, self._counts, np.clip(times, lower, upper).mean(axis=0)


class SpeedEstimator:
    """Speeds estimated from the times that machines measure.

    The model of machine n in a product of kind k, with ``m`` rows, is ::

        seconds = (cost + m) / speed[n] / rate[k]

    The cost of a call is in rows, and equal for all machines. Each step updates the model:

    1. Machines whose number of rows has changed determine the cost.
    2. The median over the machines of measured over expected rate updates the rate of the kind. So
       kinds can be mixed, and a slowdown of all machines does not change their speeds.
    3. The remaining differences of the machines are averaged: a log speed moves by
       ``max(gain, 1 / age)`` of its difference, where the age counts measurements. The gain is
       equal for all machines, at first 0.2, and between 0.05 and 0.6. It grows while differences
       keep their signs (drift), and shrinks while signs change (noise).
    4. A difference above 4.5 standard deviations and 2 % is an outlier, and waits for the next
       measurement of the machine. If that is nearer to the outlier than to the average, the speed
       has changed; the faster of both measurements replaces it, because disturbances only slow
       down. Until then plans use the outlier, unless it is a change by a factor of 8 or more, or
       fewer than a fifth of recent outliers were changes.
    5. Differences of one sign are summed, each reduced by 0.7 standard deviations. If the sum
       exceeds 4 standard deviations, the speed has changed to the mean since the sum was 0 (the
       cumulative sums of Page, Continuous inspection schemes, 1954).

    If the slowest machine takes less than 5 ms, the times of several steps are averaged, and their
    mean counts as that many measurements. An outlier of more than 0.1 ms ends the averaging.

    The first measurement of a machine may be disturbed: if the second is much faster, only the
    second counts. After 8 steps without a measurement, plans discount the speed of a machine, after
    32 steps to a third, and the next measurement replaces the estimate. So a machine that returns
    slower does not delay the others.

    Plans use the speeds ``m / seconds`` at the loads m of the best plan; Theorem 1 reproduces these
    loads. A plan is replaced if the new one is predicted to be faster by more than 2 %, by more
    than half of the noise of a measurement, and by more than 0.2 ms, because a new plan takes time.
    It is also replaced if a machine would get more than twice the rows, because few rows measure a
    speed badly.

    Parameters
    ----------
    demand : Demand
        The work of a step. All speeds are equal at first.

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
        self.demand, self._machine_count = demand, demand.machines
        self._host_of: dict[int, str] = {}
        self._reset()

    def _reset(self) -> None:
        """Discard all estimates."""
        self._step = 0
        self._last_rate = 0.0  # of the kind of the last step
        self._noise, self._gain = _NOISE, _GAIN
        self._outlier_hit_rate = 0.5  # share of recent outliers that were changes
        self._levels: dict[Hashable, deque[float]] = {}  # logs of rates
        self._cost = self._weight = self._sum = 0.0  # of a call, in rows; of its fit
        # By machine: log speed, measurements, sign of the last difference, waiting outlier; step,
        # rows and log seconds (at rate 1) of the last measurement.
        self._estimates = np.full((7, self._machine_count), np.nan)
        self._logs, self._ages, self._signs, self._outliers = self._estimates[:4]
        self._last_steps, self._last_rows, self._last_log_seconds = self._estimates[4:]
        self._signs[:] = 0
        # By sign and machine: cumulative sum, measurements since it was 0, and sum of their log
        # speeds.
        self._evidence, self._evidence_steps, self._evidence_sums = np.zeros(
            (3, 2, self._machine_count)
        )
        self._last_rows[:] = self.demand.total / self._machine_count
        self._initial_estimates = self._estimates[:, 0].copy()
        self._estimates_by_host: dict[str, Floats] = {}
        self._speeds = np.ones(self._machine_count)
        self._available: Ints = np.arange(0)
        self._plan_speeds = (1.0,) * self._machine_count
        self._best: tuple[tuple[int, ...], float, Floats] | None = None
        self._loads: tuple[tuple[int, ...], tuple[float, ...], Floats] | None = None
        self._decided_machines: tuple[int, ...] | None = None  # for which the plan was decided
        self._sums: dict[Hashable, _SteadySteps] = {}
        self._prediction_cache: dict[Hashable, tuple[ArrayLike, float]] = {}
        self._is_updating = False  # still set after an interrupt: estimates may be inconsistent

    def _begin_update(self) -> None:
        if self._is_updating:
            self._reset()
        self._is_updating = True

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Set the hosts of machines; see `Speeds`.

        A machine that has moved starts with the last estimate of its new host, which ages like that
        of an unavailable machine.
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
                self._last_log_seconds[n - 1] = np.nan  # measured on another host
        self._recompute_speeds()

    @property
    def scale(self) -> float | None:
        """Rows per second of the median machine in the first kind of product, or None.

        The speeds of plans are relative to the median machine.
        """
        kind = next(iter(self._levels), None)
        return (
            None
            if kind is None
            else self._rate(kind) * median(self._effective_speeds(self._last_rows))
        )

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the speeds of all machines, relative to the median; see `Speeds`."""
        if self._is_updating:
            self._reset()
        if self._decided_machines == available:
            return self._plan_speeds
        machines = np.array(available, dtype=np.int64) - 1
        if not self.demand.is_feasible(machines):
            return self._plan_speeds
        self._available = machines
        if self._loads is None or self._loads[:2] != (available, self._plan_speeds):
            present = np.array(self._plan_speeds)[machines]
            self._loads = (
                available,
                self._plan_speeds,
                self._minimise_makespan(present, 0.0, machines)[1],
            )
        loads, (seconds, best) = self._loads[2], self._best_loads(available)
        gain = float(self._predicted_times(loads, machines).max()) - seconds
        is_better = gain > seconds * max(_MIN_IMPROVEMENT, _MIN_IMPROVEMENT_IN_NOISE * self._noise)
        if not is_better and (best > 2 * loads + 1).any():
            is_better, gain = True, seconds
        if is_better and gain > _MIN_IMPROVEMENT_SECONDS * self._last_rate:
            rows = self._last_rows.copy()
            rows[machines] = best
            speeds = self._effective_speeds(rows)
            self._plan_speeds = tuple((speeds / median(speeds)).tolist())
        self._decided_machines = available
        return self._plan_speeds

    def predict(self, kind: Hashable, rows: ArrayLike) -> float | None:
        """Return the makespan in seconds by the current estimates; see `Speeds`."""
        if kind not in self._levels:
            return None
        known, seconds = self._prediction_cache.get(kind, (None, 0.0))
        if known is not rows:
            loads = np.asarray(rows, np.float64)
            seconds = float(self._predicted_times(loads, slice(None)).max()) / self._rate(kind)
            self._prediction_cache[kind] = rows, seconds
        return seconds

    def bound(self, kind: Hashable, available: tuple[int, ...]) -> float | None:
        """Return the minimum makespan in seconds by the current estimates; see `Speeds`."""
        if kind not in self._levels:
            return None
        return self._best_loads(available)[0] / self._rate(kind)

    def observe(self, kind: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Update the estimates from a step; see `Speeds`. A time of 0 is ignored.

        Short steps without outliers are averaged while `rows` is the same object.
        """
        self._begin_update()
        sums = self._sums.get(kind)
        if sums is not None:
            if sums.rows is rows and sums.add(np.asarray(seconds)):
                if sums.steps == sums.max_steps:
                    self._update_from_mean(kind, rows, *sums.means(), sums.steps)
                self._is_updating = False
                return
            if sums.steps:
                self._update_from_mean(kind, sums.rows, *sums.means(), sums.steps)
        machines, counts, times = valid_measurements(rows, seconds)
        self._update_from_mean(kind, rows, machines, counts, np.log(times), 1)

    def _update_from_mean(
        self,
        kind: Hashable,
        rows: ArrayLike,
        machines: Ints,
        counts: Floats,
        log_seconds: Floats,
        steps: int,
    ) -> None:
        """Update the estimates from the mean of some steps with these rows."""
        self._step += steps
        self._sums.pop(kind, None)
        if machines.size:
            self._update(kind, machines, counts, log_seconds, steps)
            if self._available.size > machines.size:  # machines too slow to get rows
                idle = np.setdiff1d(self._available, machines)
                creep = _CREEP * steps
                self._logs[idle] = np.minimum(self._logs[idle] + creep, np.nanmax(self._logs))
            longest = math.exp(log_seconds.max())
            max_steps = math.ceil(_SUMMED_SECONDS / longest)
            if max_steps > 1 and self._is_steady(machines, longest):
                logs = self._logs[machines] + math.log(self._rate(kind))
                expected = np.log(counts + self._cost) - logs
                max_deviation = max(_OUTLIER_SIGMAS * self._noise, _MIN_OUTLIER)
                self._sums[kind] = _SteadySteps(
                    rows,
                    machines,
                    counts,
                    expected,
                    max_deviation,
                    min(max_steps, _MAX_SUMMED_STEPS),
                )
        self._recompute_speeds()

    def _is_steady(self, machines: Ints, longest: float) -> bool:
        """Return whether no machine seems to change its speed, or steps are too short to matter."""
        if longest < _MIN_IMPROVEMENT_SECONDS:
            return self._step >= _MIN_MEASUREMENTS
        if self._ages[machines].min() < _MIN_MEASUREMENTS:
            return False
        calm = self._evidence[:, machines].max() < _DRIFT_THRESHOLD / 2
        return calm and not np.isfinite(self._outliers[machines]).any()

    def _update(
        self, kind: Hashable, machines: Ints, rows: Floats, log_seconds: Floats, steps: int
    ) -> None:
        """Update the rate of the kind and the speeds of these machines."""
        expected, away = self._logs[machines], self._step - steps - self._last_steps[machines]
        old = np.isfinite(expected)
        levels = self._levels.get(kind, deque(maxlen=_RATE_STEPS))
        logs = np.log(rows + self._cost) - log_seconds
        # With one or two machines, a change is more likely in a machine than in the kind.
        many = np.count_nonzero(old) > 2
        if many or not levels or (old.any() and len(levels) < _RATE_STEPS):
            levels.append(median((logs - expected)[old] if old.any() else logs))
            self._levels[kind] = levels
        level = levels[-1] if many else math.log(self._rate(kind))
        self._last_rate = self._rate(kind)
        times = log_seconds + level
        self._fit_cost(machines, rows, times)
        self._last_rows[machines], self._last_log_seconds[machines], self._last_steps[machines] = (
            rows,
            times,
            self._step,
        )
        logs = np.minimum(
            np.maximum(np.log(rows + self._cost) - times, -_MAX_ABS_LOG_SPEED), _MAX_ABS_LOG_SPEED
        )
        self._ages[machines[away > _STALE_AFTER]] = 1
        new = ~old | (away > _FORGET_AFTER)
        if new.any():
            self._reset_machines(machines[new], logs[new], 1)
            machines, logs = machines[~new], logs[~new]
        if machines.size:
            self._update_averages(machines, logs, steps)

    def _reset_machines(self, machines: Ints, logs: Floats, age: int) -> None:
        self._logs[machines], self._ages[machines], self._outliers[machines] = logs, age, np.nan
        self._evidence[:, machines] = self._evidence_steps[:, machines] = self._evidence_sums[
            :, machines
        ] = 0

    def _update_averages(self, machines: Ints, logs: Floats, steps: int) -> None:
        """Average measurements near the estimate; outliers wait for a second measurement."""
        errors, ages, odd = (
            logs - self._logs[machines],
            self._ages[machines],
            self._outliers[machines],
        )
        sizes = np.abs(errors)
        max_deviation = sizes > max(_OUTLIER_SIGMAS * self._noise / math.sqrt(steps), _MIN_OUTLIER)
        sizes = sizes * math.sqrt(steps)  # those of single steps
        noise = min(_MAD_TO_SIGMA * median(sizes), 2 * max(self._noise, 1e-4))
        self._noise += max(_SMOOTHING, 1 / ages.max()) * (noise - self._noise)
        again = np.abs(logs - odd) < np.abs(errors)  # False without an outlier
        waited = np.isfinite(odd)
        if waited.any():
            self._outlier_hit_rate += _SMOOTHING * (again[waited].mean() - self._outlier_hit_rate)
        changed = again | (
            max_deviation & (ages <= 1) & (errors > 0)
        )  # the first may have been disturbed
        self._outliers[machines] = np.where(max_deviation & ~changed, logs, np.nan)
        self._reset_machines(machines[changed], np.fmax(odd, logs)[changed], 2)
        usual = ~max_deviation & ~changed
        machines, logs, errors, ages = machines[usual], logs[usual], errors[usual], ages[usual]
        ages = ages + steps
        signs = np.sign(errors)
        if machines.size:
            change = math.exp(_GROWTH * float((signs * self._signs[machines]).mean()))
            self._gain = min(max(self._gain * change, _MIN_GAIN), _MAX_GAIN)
        self._ages[machines], self._signs[machines] = ages, signs
        self._logs[machines] += np.maximum(1 - (1 - self._gain) ** steps, steps / ages) * errors
        self._detect_drift(machines, logs, errors, steps)

    def _detect_drift(self, machines: Ints, logs: Floats, errors: Floats, steps: int) -> None:
        """Detect changes that are smaller than the noise, by Page's cumulative sums."""
        sizes = (
            _SIGNS * errors / max(self._noise, _MIN_OUTLIER / _OUTLIER_SIGMAS) - _DRIFT_ALLOWANCE
        )
        evidence = np.maximum(self._evidence[:, machines] + steps * sizes, 0.0)
        begun = evidence > 0
        since = (self._evidence_steps[:, machines] + steps) * begun
        shown = (self._evidence_sums[:, machines] + steps * logs) * begun
        self._evidence[:, machines], self._evidence_steps[:, machines] = evidence, since
        self._evidence_sums[:, machines] = shown
        side, machine = (evidence > _DRIFT_THRESHOLD).nonzero()
        if machine.size:
            self._reset_machines(machines[machine], shown[side, machine] / since[side, machine], 1)
            self._ages[machines[machine]] = since[side, machine]

    def _fit_cost(self, machines: Ints, rows: Floats, times: Floats) -> None:
        """Fit the cost of a call to pairs of steps with different numbers of rows.

        Two steps measure ``log((cost + m') / (cost + m))``, which is linear in small changes of the
        cost. They are fitted by least squares with exponential forgetting, without the median over
        the machines. The cost shrinks by ``(3 standard errors / cost)**2``, so that noise does not
        look like a cost.
        """
        before, longer = self._last_rows[machines], times - self._last_log_seconds[machines]
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
            spread = _MAD_TO_SIGMA * median(np.abs(left))
            left = np.minimum(np.maximum(left, -3 * spread), 3 * spread)
            weight = _PAIR_WEIGHT * self._weight + float(slopes @ slopes)
            total = _PAIR_WEIGHT * self._sum + float(slopes @ (left + cost * slopes))
            if weight <= 0:
                return
            least = _COST_SIGMAS * max(spread, self._noise) / math.sqrt(weight)
            found = min(total / weight, 4 * self.demand.total / self._machine_count)
            cost = found * (1 - (least / found) ** 2) if found > least else 0.0
        shift = np.log((cost + self._last_rows) / (self._cost + self._last_rows))
        self._logs[:] = np.clip(self._logs + shift, -_MAX_ABS_LOG_SPEED, _MAX_ABS_LOG_SPEED)
        self._outliers += shift
        self._cost, self._weight, self._sum = cost, weight, total

    def _recompute_speeds(self) -> None:
        """Recompute the speeds of plans after a change of the estimates."""
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
        """Return the minimum makespan and the optimal loads, cached until estimates change."""
        if self._best is None or self._best[0] != available:
            machines = np.array(available, dtype=np.int64) - 1
            self._best = (
                available,
                *self._minimise_makespan(self._speeds[machines], self._cost, machines),
            )
        return self._best[1:]

    def _minimise_makespan(
        self, speeds: Floats, cost: float, machines: Ints
    ) -> tuple[float, Floats]:
        return self.demand.optimal_loads(speeds, np.full(machines.size, cost), machines)

    def _rate(self, kind: Hashable) -> float:
        """Return the median of the last rates of a kind; of two medians the faster."""
        levels = sorted(self._levels[kind])
        return math.exp(levels[len(levels) // 2])

    def _predicted_times(self, rows: Floats, machines: Ints | slice) -> Floats:
        """Return the times for these rows in the unit of the speeds; 0 without rows."""
        return (self._cost + rows) / self._speeds[machines] * (rows > 0)

    def _effective_speeds(self, rows: Floats) -> Floats:
        """Return the speeds at these loads, which include the cost of a call."""
        rows = np.maximum(rows, 0.5)
        return self._speeds * rows / (self._cost + rows)


def median(values: Floats) -> float:
    """Return the median, five times as fast as `numpy.median` for few values."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)
