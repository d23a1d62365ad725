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

_MIN_SECONDS, _MAX_SECONDS = 1e-9, 1e9  # of a measurement
_SCALE_STEPS = 5  # steps of each operation to which the scale of fixed speeds is fitted
# `SpeedEstimator` explains the following parameters.
_INITIAL_GAIN, _MIN_GAIN, _MAX_GAIN = 0.2, 0.05, 0.6
_MAX_GAIN_GROWTH = 0.2  # of the log of the gain, if all differences keep their signs
_OUTLIER_SIGMAS, _MIN_OUTLIER = 4.5, 0.02
_MAX_OUTLIER, _MIN_CONFIRMATION_RATE = math.log(8.0), 0.2
_STALE_AFTER, _FORGET_AFTER, _STALE_DISCOUNT = 8, 32, math.log(3.0)
_INITIAL_NOISE, _NOISE_GAIN = 0.1, 0.1  # of log speeds
_MAD_TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, if normal
_RATE_STEPS = 5  # the rate of an operation is the median over this many steps
_FIT_FORGETTING, _COST_SIGMAS, _MIN_ROW_CHANGE = 0.96, 3.0, 0.02  # see `_fit_cost`
_MIN_IMPROVEMENT, _MIN_IMPROVEMENT_IN_NOISE, _MIN_IMPROVEMENT_SECONDS = 0.02, 0.5, 2e-4
_DRIFT_ALLOWANCE, _DRIFT_THRESHOLD = 0.7, 4.0  # in standard deviations
# Steps in which the slowest machine takes a short time are averaged.
_MAX_AVERAGED_SECONDS, _MAX_AVERAGED_STEPS, _MIN_MEASUREMENTS = 5e-3, 16, 16
_DRIFT_SIGNS = np.array([[1.0], [-1.0]])  # faster, slower
_IDLE_GROWTH = 0.02  # per step, of the log speed of an available machine without rows
_MAX_ABS_LOG_SPEED = 14.0  # speeds from about a millionth to a million


class Speeds(Protocol):
    """The speeds of machines, for plans and predictions of times.

    Products of the same *operation* (a hashable label) take the same time for the same rows.
    Machines are counted from 1; arrays have one entry per machine. For a sparse X, nonzeros replace
    rows.

    Attributes
    ----------
    demand : Demand
        The work of a step.
    """

    demand: Demand

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first operation; None if unmeasured."""

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Set the hosts of machines."""

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the speeds of all machines; the same object while nothing changes."""

    def predict(self, operation: Hashable, rows: ArrayLike) -> float | None:
        """Return the predicted makespan in seconds; None before the first measurement."""

    def bound(self, operation: Hashable, available: tuple[int, ...]) -> float | None:
        """Return a lower bound on the makespan in seconds; None before the first measurement."""

    def observe(self, operation: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Record the rows and seconds of each machine in a step; 0 for unavailable machines."""


class FixedSpeeds:
    """Relative speeds from the user; only their scale is fitted.

    Seconds are ``rows / (scale * speed)``. The scale of each operation is the median over the
    measurements of all machines in its first 5 steps.

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
        self._prediction_cache: tuple[ArrayLike, float] = (), 0.0  # at a scale of 1

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Do nothing: fixed speeds do not depend on the host."""

    @property
    def scale(self) -> float | None:
        """Rows per second of a machine of speed 1 in the first operation; None if unmeasured."""
        return next(iter(self._scales.values()), None)

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the fixed speeds."""
        return self._plan_speeds

    def predict(self, operation: Hashable, rows: ArrayLike) -> float | None:
        """Return ``max(rows / speeds) / scale``; see `Speeds`."""
        scale = self._scales.get(operation)
        if scale is None:
            return None
        if rows is not self._prediction_cache[0]:
            self._prediction_cache = rows, float(np.max(np.asarray(rows) / self._speeds))
        return self._prediction_cache[1] / scale

    def bound(self, operation: Hashable, available: tuple[int, ...]) -> float | None:
        """Return ``c* R / scale`` of Theorem 1; see `Speeds`."""
        scale = self._scales.get(operation)
        if scale is None:
            return None
        cached_machines, makespan = self._bound_cache
        if cached_machines != available:
            machines = np.array(available) - 1
            makespan = self.demand.optimal_loads(
                self._speeds[machines], np.zeros(machines.size), machines
            )[0]
            self._bound_cache = available, makespan
        return makespan / scale

    def observe(self, operation: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Fit the scale of an operation to its first steps; see `Speeds`."""
        rates = self._rates.setdefault(operation, [])
        if len(rates) == _SCALE_STEPS:
            return
        machines, counts, times = valid_measurements(rows, seconds)
        rates.append(counts / times / self._speeds[machines])
        if any(step.size for step in rates):
            self._scales[operation] = float(np.median(np.concatenate(rates)))


def hindsight_makespan(
    rows: NDArray[np.number] | Sequence[float],
    seconds: NDArray[np.number] | Sequence[float],
    demand: Demand,
) -> float | None:
    """Return the minimum makespan at the speeds that were measured in the same step.

    It is the makespan of Theorem 1 with speeds ``rows / seconds`` and fractional rows. The regret
    of a step is its measured makespan divided by this makespan, minus 1.

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
    """Return the machines (counted from 0) with a measured speed, their rows and their seconds.

    A time of 0 is below the resolution of the clock, and gives no speed.
    """
    counts, times = np.asarray(rows, np.float64), np.asarray(seconds, np.float64)
    (machines,) = ((np.minimum(counts, times) > 0) & (np.maximum(counts, times) < np.inf)).nonzero()
    if machines.size < counts.size:
        counts, times = counts[machines], times[machines]
    return machines, counts, np.minimum(np.maximum(times, _MIN_SECONDS), _MAX_SECONDS)


class _SteadySteps:
    """Consecutive steps without outliers, whose times are averaged.

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
        expected_log_seconds: Floats,
        max_deviation: float,
        max_steps: int,
    ) -> None:
        self.rows, self.steps, self.max_steps = rows, 0, max_steps
        self._machines, self._counts = machines, counts
        self._min_log_seconds = expected_log_seconds - max_deviation
        self._max_log_seconds = expected_log_seconds + max_deviation
        seconds, margin = np.exp(expected_log_seconds), _MIN_IMPROVEMENT_SECONDS / 2
        self._min_seconds = np.minimum(np.exp(self._min_log_seconds), seconds - margin)
        self._max_seconds = np.maximum(np.exp(self._max_log_seconds), seconds + margin)
        self._seconds = np.empty((max_steps, machines.size))

    def add(self, seconds: Floats) -> bool:
        """Record the times of a step; return False if a time deviates too much."""
        times = seconds if self._machines.size == seconds.size else seconds[self._machines]
        if np.logical_or.reduce((times < self._min_seconds) | (times > self._max_seconds)):
            return False
        self._seconds[self.steps] = times
        self.steps += 1
        return True

    def means(self) -> tuple[Ints, Floats, Floats]:
        """Return the machines, their rows, and their mean log times."""
        log_seconds = np.log(np.maximum(self._seconds[: self.steps], _MIN_SECONDS))
        means = np.clip(log_seconds, self._min_log_seconds, self._max_log_seconds).mean(axis=0)
        return self._machines, self._counts, means


class SpeedEstimator:
    """Speeds estimated from the times that machines measure.

    The model of the time of machine n for m rows in operation k is ::

        seconds = (cost + m) / speed[n] / rate[k]

    The cost of a call is counted in rows, and equal for all machines. Each step updates the model:

    1. Machines whose number of rows has changed determine the cost.
    2. The median over the machines of ``(cost + m) / seconds / speed[n]`` updates the rate of the
       operation. So operations can alternate, and a slowdown of all machines does not change
       their speeds.
    3. The remaining differences of the machines are averaged: a log speed moves by
       ``max(gain, 1 / age)`` of its difference, where the age counts measurements. The gain is
       the same for all machines, 0.2 at first, and stays between 0.05 and 0.6. It grows while
       differences keep their signs (drift), and shrinks while signs change (noise).
    4. A difference above 4.5 standard deviations and 2 % is an outlier, and waits for the next
       measurement of the machine. If that is nearer to the outlier than to the average, the speed
       has changed; the faster of the two measurements replaces the average, because a
       disturbance only makes a measurement slower. Until then plans use the outlier, unless it is
       a change by a factor of 8 or more, or fewer than a fifth of recent outliers were changes.
    5. Differences of one sign are summed, each reduced by 0.7 standard deviations. If the sum
       exceeds 4 standard deviations, the speed has changed to the mean since the sum was 0 (the
       cumulative sums of Page, Continuous inspection schemes, 1954).

    If the slowest machine takes less than 5 ms, the times of several steps are averaged, and their
    mean counts as that many measurements. An outlier of more than 0.1 ms ends the averaging.

    The first measurement of a machine may be disturbed: if the second is much faster, only the
    second counts. From 8 to 32 steps without a measurement, plans discount the speed of a machine
    increasingly, down to a third; then the next measurement replaces the estimate. So a machine
    that is slower when it returns does not delay the others.

    Plans use the speeds ``m / seconds`` at the loads m of the best plan; Theorem 1 reproduces these
    loads. A plan is replaced if the new one is predicted to be faster by more than 2 %, by more
    than half of the noise of a measurement, and by more than 0.2 ms, because a new plan takes time.
    It is also replaced if a machine would get more than twice the rows, because a speed is measured
    badly with few rows.

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
        self._last_rate = 0.0  # rate of the operation of the last step
        self._noise, self._gain = _INITIAL_NOISE, _INITIAL_GAIN
        self._confirmation_rate = 0.5  # fraction of recent outliers that were changes
        self._log_rates: dict[Hashable, deque[float]] = {}  # of the last steps
        self._cost = self._fit_weight = self._fit_sum = 0.0  # cost of a call in rows; its fit
        # By machine: log speed, number of measurements, sign of the last difference, outlier that
        # waits for confirmation; step, rows and log time (at rate 1) of the last measurement.
        self._estimates = np.full((7, self._machine_count), np.nan)
        self._log_speeds, self._ages, self._signs, self._outliers = self._estimates[:4]
        self._last_steps, self._last_rows, self._last_log_times = self._estimates[4:]
        self._signs[:] = 0
        # By sign and machine: cumulative sum of differences, number of measurements since it was
        # 0, and sum of their log speeds.
        self._drift_sums, self._drift_steps, self._drift_speed_sums = np.zeros(
            (3, 2, self._machine_count)
        )
        self._last_rows[:] = self.demand.total_work / self._machine_count
        self._initial_estimates = self._estimates[:, 0].copy()
        self._estimates_by_host: dict[str, Floats] = {}
        self._speeds = np.ones(self._machine_count)
        self._available_machines: Ints = np.arange(0)  # counted from 0
        self._plan_speeds = (1.0,) * self._machine_count
        self._optimum_cache: tuple[tuple[int, ...], float, Floats] | None = None
        self._plan_loads_cache: tuple[tuple[int, ...], tuple[float, ...], Floats] | None = None
        self._plan_machines: tuple[int, ...] | None = None  # available at the last choice of speeds
        self._steady_steps: dict[Hashable, _SteadySteps] = {}
        self._prediction_cache: dict[Hashable, tuple[ArrayLike, float]] = {}
        self._is_updating = False  # still set after an interrupt: estimates may be inconsistent

    def _begin_update(self) -> None:
        if self._is_updating:
            self._reset()
        self._is_updating = True

    def set_hosts(self, hosts: Mapping[int, str]) -> None:
        """Set the hosts of machines; see `Speeds`.

        A machine that has moved starts with the last estimate for its new host, which ages like the
        estimate of an unavailable machine.
        """
        old_hosts, self._host_of = self._host_of, {**self._host_of, **hosts}
        self._begin_update()
        self._steady_steps.clear()
        for n, host in old_hosts.items():
            if np.isfinite(self._log_speeds[n - 1]):
                self._estimates_by_host[host] = self._estimates[:, n - 1].copy()
        for n, host in hosts.items():
            if old_hosts.get(n) != host:
                self._estimates[:, n - 1] = self._estimates_by_host.get(
                    host, self._initial_estimates
                )
                self._last_log_times[n - 1] = np.nan  # measured on another host
        self._recompute_speeds()

    @property
    def scale(self) -> float | None:
        """Rows per second of the median machine in the first operation; None if unmeasured.

        The speeds of plans are relative to the median machine.
        """
        operation = next(iter(self._log_rates), None)
        if operation is None:
            return None
        return self._rate(operation) * median(self._effective_speeds(self._last_rows))

    def plan_speeds(self, available: tuple[int, ...]) -> tuple[float, ...]:
        """Return the speeds of all machines, relative to the median; see `Speeds`."""
        if self._is_updating:
            self._reset()
        if self._plan_machines == available:
            return self._plan_speeds
        machines = np.array(available, dtype=np.int64) - 1
        if not self.demand.is_feasible(machines):
            return self._plan_speeds
        self._available_machines = machines
        key = available, self._plan_speeds
        if self._plan_loads_cache is None or self._plan_loads_cache[:2] != key:
            available_speeds = np.array(self._plan_speeds)[machines]
            _, loads = self._minimise_makespan(available_speeds, 0.0, machines)
            self._plan_loads_cache = *key, loads
        loads, (optimum, best_loads) = self._plan_loads_cache[2], self._optimum(available)
        saving = float(self._predicted_times(loads, machines).max()) - optimum
        min_improvement = max(_MIN_IMPROVEMENT, _MIN_IMPROVEMENT_IN_NOISE * self._noise)
        is_better = saving > optimum * min_improvement
        if not is_better and (best_loads > 2 * loads + 1).any():
            is_better, saving = True, optimum  # the saving is unknown
        if is_better and saving > _MIN_IMPROVEMENT_SECONDS * self._last_rate:
            rows = self._last_rows.copy()
            rows[machines] = best_loads
            speeds = self._effective_speeds(rows)
            self._plan_speeds = tuple((speeds / median(speeds)).tolist())
        self._plan_machines = available
        return self._plan_speeds

    def predict(self, operation: Hashable, rows: ArrayLike) -> float | None:
        """Return the makespan in seconds by the current estimates; see `Speeds`."""
        if operation not in self._log_rates:
            return None
        cached_rows, seconds = self._prediction_cache.get(operation, (None, 0.0))
        if cached_rows is not rows:
            loads = np.asarray(rows, np.float64)
            seconds = float(self._predicted_times(loads, slice(None)).max()) / self._rate(operation)
            self._prediction_cache[operation] = rows, seconds
        return seconds

    def bound(self, operation: Hashable, available: tuple[int, ...]) -> float | None:
        """Return the minimum makespan in seconds by the current estimates; see `Speeds`."""
        if operation not in self._log_rates:
            return None
        return self._optimum(available)[0] / self._rate(operation)

    def observe(self, operation: Hashable, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Update the estimates from a step; see `Speeds`. A time of 0 is ignored.

        Short steps without outliers are averaged while `rows` is the same object.
        """
        self._begin_update()
        steady = self._steady_steps.get(operation)
        if steady is not None:
            if steady.rows is rows and steady.add(np.asarray(seconds)):
                if steady.steps == steady.max_steps:
                    self._update_from_mean(operation, rows, *steady.means(), steady.steps)
                self._is_updating = False
                return
            if steady.steps:
                self._update_from_mean(operation, steady.rows, *steady.means(), steady.steps)
        machines, counts, times = valid_measurements(rows, seconds)
        self._update_from_mean(operation, rows, machines, counts, np.log(times), 1)

    def _update_from_mean(
        self,
        operation: Hashable,
        rows: ArrayLike,
        machines: Ints,
        counts: Floats,
        log_seconds: Floats,
        steps: int,
    ) -> None:
        """Update the estimates from the mean times of this many steps with these rows."""
        self._step += steps
        self._steady_steps.pop(operation, None)
        if machines.size:
            self._update(operation, machines, counts, log_seconds, steps)
            if self._available_machines.size > machines.size:  # some are too slow to get rows
                idle = np.setdiff1d(self._available_machines, machines)
                increased = self._log_speeds[idle] + _IDLE_GROWTH * steps
                self._log_speeds[idle] = np.minimum(increased, np.nanmax(self._log_speeds))
            makespan = math.exp(log_seconds.max())
            max_steps = math.ceil(_MAX_AVERAGED_SECONDS / makespan)
            if max_steps > 1 and self._is_steady(machines, makespan):
                log_rates = self._log_speeds[machines] + math.log(self._rate(operation))
                expected_log_seconds = np.log(counts + self._cost) - log_rates
                max_deviation = max(_OUTLIER_SIGMAS * self._noise, _MIN_OUTLIER)
                self._steady_steps[operation] = _SteadySteps(
                    rows,
                    machines,
                    counts,
                    expected_log_seconds,
                    max_deviation,
                    min(max_steps, _MAX_AVERAGED_STEPS),
                )
        self._recompute_speeds()

    def _is_steady(self, machines: Ints, makespan: float) -> bool:
        """Return whether no speed seems to change, or steps are too short to matter."""
        if makespan < _MIN_IMPROVEMENT_SECONDS:
            return self._step >= _MIN_MEASUREMENTS
        if self._ages[machines].min() < _MIN_MEASUREMENTS:
            return False
        has_drift = self._drift_sums[:, machines].max() >= _DRIFT_THRESHOLD / 2
        return not has_drift and not np.isfinite(self._outliers[machines]).any()

    def _update(
        self, operation: Hashable, machines: Ints, rows: Floats, log_seconds: Floats, steps: int
    ) -> None:
        """Update the rate of the operation and the speeds of these machines."""
        old_log_speeds = self._log_speeds[machines]
        unmeasured_steps = self._step - steps - self._last_steps[machines]
        has_estimate = np.isfinite(old_log_speeds)
        log_rates = self._log_rates.get(operation, deque(maxlen=_RATE_STEPS))
        measured_log_rates = np.log(rows + self._cost) - log_seconds
        # With one or two machines, a change of a machine is likelier than one of the operation.
        estimate_count = np.count_nonzero(has_estimate)
        if estimate_count > 2 or not log_rates or (estimate_count and len(log_rates) < _RATE_STEPS):
            log_ratios = measured_log_rates
            if estimate_count:
                log_ratios = (measured_log_rates - old_log_speeds)[has_estimate]
            log_rates.append(median(log_ratios))
            self._log_rates[operation] = log_rates
        log_rate = log_rates[-1] if estimate_count > 2 else math.log(self._rate(operation))
        self._last_rate = self._rate(operation)
        log_times = log_seconds + log_rate  # in the unit of the speeds
        self._fit_cost(machines, rows, log_times)
        self._last_rows[machines], self._last_log_times[machines] = rows, log_times
        self._last_steps[machines] = self._step
        log_speeds = np.log(rows + self._cost) - log_times
        log_speeds = np.minimum(np.maximum(log_speeds, -_MAX_ABS_LOG_SPEED), _MAX_ABS_LOG_SPEED)
        self._ages[machines[unmeasured_steps > _STALE_AFTER]] = 1
        is_new = ~has_estimate | (unmeasured_steps > _FORGET_AFTER)
        if is_new.any():
            self._set_estimates(machines[is_new], log_speeds[is_new], 1)
            machines, log_speeds = machines[~is_new], log_speeds[~is_new]
        if machines.size:
            self._update_averages(machines, log_speeds, steps)

    def _set_estimates(self, machines: Ints, log_speeds: Floats, age: int) -> None:
        self._log_speeds[machines], self._ages[machines] = log_speeds, age
        self._outliers[machines] = np.nan
        for sums in (self._drift_sums, self._drift_steps, self._drift_speed_sums):
            sums[:, machines] = 0

    def _update_averages(self, machines: Ints, log_speeds: Floats, steps: int) -> None:
        """Average regular measurements; outliers wait for a second measurement."""
        errors, ages = log_speeds - self._log_speeds[machines], self._ages[machines]
        outliers, deviations = self._outliers[machines], np.abs(errors)
        max_deviation = max(_OUTLIER_SIGMAS * self._noise / math.sqrt(steps), _MIN_OUTLIER)
        is_outlier = deviations > max_deviation
        step_deviations = deviations * math.sqrt(steps)
        noise = min(_MAD_TO_SIGMA * median(step_deviations), 2 * max(self._noise, 1e-4))
        self._noise += max(_NOISE_GAIN, 1 / ages.max()) * (noise - self._noise)
        has_outlier = np.isfinite(outliers)
        is_confirmed = np.abs(log_speeds - outliers) < deviations
        if has_outlier.any():
            rate = is_confirmed[has_outlier].mean()
            self._confirmation_rate += _NOISE_GAIN * (rate - self._confirmation_rate)
        was_disturbed = is_outlier & (ages <= 1) & (errors > 0)  # in the first measurement
        is_replaced = is_confirmed | was_disturbed
        self._outliers[machines] = np.where(is_outlier & ~is_replaced, log_speeds, np.nan)
        self._set_estimates(machines[is_replaced], np.fmax(outliers, log_speeds)[is_replaced], 2)
        is_regular = ~is_outlier & ~is_replaced
        machines, log_speeds = machines[is_regular], log_speeds[is_regular]
        errors, ages = errors[is_regular], ages[is_regular] + steps
        signs = np.sign(errors)
        if machines.size:
            growth = math.exp(_MAX_GAIN_GROWTH * float((signs * self._signs[machines]).mean()))
            self._gain = min(max(self._gain * growth, _MIN_GAIN), _MAX_GAIN)
        self._ages[machines], self._signs[machines] = ages, signs
        self._log_speeds[machines] += (
            np.maximum(1 - (1 - self._gain) ** steps, steps / ages) * errors
        )
        self._detect_drift(machines, log_speeds, errors, steps)

    def _detect_drift(self, machines: Ints, log_speeds: Floats, errors: Floats, steps: int) -> None:
        """Detect changes that are smaller than the noise, by Page's cumulative sums."""
        sigmas = _DRIFT_SIGNS * errors / max(self._noise, _MIN_OUTLIER / _OUTLIER_SIGMAS)
        increments = steps * (sigmas - _DRIFT_ALLOWANCE)
        sums = np.maximum(self._drift_sums[:, machines] + increments, 0.0)
        drift_steps = (self._drift_steps[:, machines] + steps) * (sums > 0)
        speed_sums = (self._drift_speed_sums[:, machines] + steps * log_speeds) * (sums > 0)
        self._drift_sums[:, machines], self._drift_steps[:, machines] = sums, drift_steps
        self._drift_speed_sums[:, machines] = speed_sums
        sign, index = (sums > _DRIFT_THRESHOLD).nonzero()
        if index.size:
            means = speed_sums[sign, index] / drift_steps[sign, index]
            self._set_estimates(machines[index], means, 1)
            self._ages[machines[index]] = drift_steps[sign, index]

    def _fit_cost(self, machines: Ints, rows: Floats, log_times: Floats) -> None:
        """Fit the cost of a call to pairs of steps with different numbers of rows.

        Two steps measure ``log((cost + m') / (cost + m))``, which is linear in small changes of the
        cost. The cost is fitted by least squares with exponential forgetting, after subtraction of
        the median over the machines. It is multiplied by ``1 - (3 standard errors / cost)**2``, so
        that noise does not look like a cost.
        """
        last_rows = self._last_rows[machines]
        increases = log_times - self._last_log_times[machines]
        is_pair = np.isfinite(increases)
        last_rows, rows, increases = last_rows[is_pair], rows[is_pair], increases[is_pair]
        if rows.size < 3 or (np.abs(rows - last_rows) <= _MIN_ROW_CHANGE * last_rows).all():
            return
        cost = self._cost
        for _ in range(2):
            slopes = 1 / (cost + rows) - 1 / (cost + last_rows)
            slopes -= slopes.mean()
            residuals = increases - np.log((cost + rows) / (cost + last_rows))
            residuals -= median(residuals)
            spread = _MAD_TO_SIGMA * median(np.abs(residuals))
            residuals = np.minimum(np.maximum(residuals, -3 * spread), 3 * spread)
            weight = _FIT_FORGETTING * self._fit_weight + float(slopes @ slopes)
            fit_sum = _FIT_FORGETTING * self._fit_sum + float(slopes @ (residuals + cost * slopes))
            if weight <= 0:
                return
            error = _COST_SIGMAS * max(spread, self._noise) / math.sqrt(weight)
            fitted = min(fit_sum / weight, 4 * self.demand.total_work / self._machine_count)
            cost = fitted * (1 - (error / fitted) ** 2) if fitted > error else 0.0
        shift = np.log((cost + self._last_rows) / (self._cost + self._last_rows))
        self._log_speeds[:] = np.clip(
            self._log_speeds + shift, -_MAX_ABS_LOG_SPEED, _MAX_ABS_LOG_SPEED
        )
        self._outliers += shift
        self._cost, self._fit_weight, self._fit_sum = cost, weight, fit_sum

    def _recompute_speeds(self) -> None:
        """Recompute the speeds of plans after a change of the estimates."""
        log_speeds, outliers = self._log_speeds, self._outliers
        has_estimate = np.isfinite(log_speeds)
        if self._confirmation_rate > _MIN_CONFIRMATION_RATE:
            is_plausible = np.abs(outliers - log_speeds) < _MAX_OUTLIER
            log_speeds = np.where(is_plausible, outliers, log_speeds)
        unmeasured_steps = self._step - self._last_steps
        staleness = (unmeasured_steps - _STALE_AFTER) / (_FORGET_AFTER - _STALE_AFTER)
        log_speeds = log_speeds - _STALE_DISCOUNT * np.minimum(np.maximum(staleness, 0), 1)
        if not has_estimate.all():
            estimates = self._log_speeds[has_estimate]
            default = median(estimates) if estimates.size else 0.0
            log_speeds = np.where(has_estimate, log_speeds, default)
        self._speeds = np.exp(log_speeds)
        self._optimum_cache = self._plan_machines = None
        self._prediction_cache.clear()
        self._is_updating = False

    def _optimum(self, available: tuple[int, ...]) -> tuple[float, Floats]:
        """Return the minimum makespan and the optimal loads, cached until estimates change."""
        if self._optimum_cache is None or self._optimum_cache[0] != available:
            machines = np.array(available, dtype=np.int64) - 1
            self._optimum_cache = (
                available,
                *self._minimise_makespan(self._speeds[machines], self._cost, machines),
            )
        return self._optimum_cache[1:]

    def _minimise_makespan(
        self, speeds: Floats, cost: float, machines: Ints
    ) -> tuple[float, Floats]:
        return self.demand.optimal_loads(speeds, np.full(machines.size, cost), machines)

    def _rate(self, operation: Hashable) -> float:
        """Return the (upper) median of the last rates of an operation."""
        log_rates = sorted(self._log_rates[operation])
        return math.exp(log_rates[len(log_rates) // 2])

    def _predicted_times(self, rows: Floats, machines: Ints | slice) -> Floats:
        """Return the times for these rows in the unit of the speeds; 0 without rows."""
        return (self._cost + rows) / self._speeds[machines] * (rows > 0)

    def _effective_speeds(self, rows: Floats) -> Floats:
        """Return the speeds at these loads, reduced by the cost of a call."""
        rows = np.maximum(rows, 0.5)
        return self._speeds * rows / (self._cost + rows)


def median(values: Floats) -> float:
    """Return the median; for few values five times as fast as `numpy.median`."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)
