"""The log speed of each machine, followed through noise, drift, jumps and absence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.speeds.averages import Averages
from cec_mpi.core.speeds.given import Bools, Floats, Which
from cec_mpi.core.speeds.medians import DEVIATION, median
from cec_mpi.core.speeds.surprises import Surprises

# What these numbers do is said in `Tracked`.
_FAR = 4.0  # standard deviations
_NEAREST = 0.02
_SOON, _LONG = 8, 32  # steps
_DOUBT = math.log(3.0)
_FEWER = 0.4  # of the log of rows: two thirds of the usual ones
_HABIT = 0.3  # weight of the last rows in the usual ones
_FIRST_NOISE = 0.1  # standard deviation of a log speed
_LEAST_NOISE = 1e-4
_FEWEST = 3  # machines
_SMOOTHING = 0.1  # of the noise of all machines
_OWN = 0.05  # and of that of one,
_MOST_OWN = 3.0  # where an error counts as so many standard deviations at most
_MOST = 14.0  # of a log speed: a million times faster or slower than the others is enough


class Tracked:
    """Log speeds of machines, from noisy measurements.

    What is within 4 standard deviations of what was expected goes into `Averages`; what is not,
    and not within 2 % either, is one of the `Surprises`. The first measurement of a machine is
    doubted: if the second is much faster, it counts alone.

    A machine that was not measured for long is doubted too: after 8 steps a little, from 32 on so
    much that it is planned with a third of its speed, and the first measurement replaces what was
    known of it. So one that comes back slow does not hold up the others.

    A machine with less than two thirds of its usual rows looks slow if it has an overhead. While
    it is done long before the others, that does not count against it.

    Parameters
    ----------
    machines : int
        N.

    Attributes
    ----------
    logs : (N,) ndarray
        Log speeds as they are known; 0 of machines that were never measured.
    known : (N,) ndarray of bool
        Whether they were.
    all_known : bool
        Whether all were.
    noise : float
        Standard deviation of one measurement of the median machine.
    """

    def __init__(self, machines: int) -> None:
        self.logs = np.zeros(machines)
        self.known = np.zeros(machines, dtype=bool)
        self.all_known = False
        self.noise = _FIRST_NOISE
        self._averages = Averages(machines)
        self._surprises = Surprises(machines)
        self._ages = np.zeros(machines)  # measurements since the last change
        self._seen = np.zeros(machines, dtype=np.int64)  # step of the last measurement
        self._variances = np.zeros(machines)  # of the noise of each
        self._usual = np.zeros(machines)  # log of the rows that a speed was learned with

    @property
    def columns(self) -> list[NDArray[Any]]:
        """What is known of each machine."""
        own = [self.logs, self.known, self._ages, self._seen, self._variances, self._usual]
        return [*own, *self._averages.columns, *self._surprises.columns]

    def moved(self) -> None:
        """What is known of machines has been replaced."""
        self.all_known = bool(self.known.all())
        self._surprises.moved()

    def shift(self, which: Ints, by: Floats | float) -> None:
        """The unit of speeds has changed by this log."""
        self.logs[which] = np.minimum(np.maximum(self.logs[which] + by, -_MOST), _MOST)
        self._averages.shift(which, by)
        self._surprises.shift(which, by)

    def to_plan_with(self, step: int) -> Floats:
        """Log speeds for the plan of the step after this one."""
        logs = self.logs
        if self._surprises.pending:
            unsure = np.sqrt(1 + 1 / np.maximum(self._ages, 1))
            limits = np.maximum(_FAR * self._spread(slice(None)) * unsure, _NEAREST)
            logs = self._surprises.to_plan_with(logs, limits)
        away = step - self._seen
        if (away > _SOON).any():
            doubt = np.clip((away - _SOON) / (_LONG - _SOON), 0.0, 1.0)
            logs = logs - _DOUBT * doubt * self.known
        return logs

    def take(self, which: Ints, logs: Floats, log_rows: Floats, early: Bools, step: int) -> None:
        """Take what these machines showed in a step.

        Parameters
        ----------
        which : (n,) ndarray of int
            From 0.
        logs, log_rows : (n,) ndarray
            Their log speeds, and logs of rows.
        early : (n,) ndarray of bool
            Whether they had answered long before the others, and have no overhead that is known.
        step : int
            From 1.
        """
        logs = np.minimum(np.maximum(logs, -_MOST), _MOST)
        if not self.all_known and not (old := self.known[which]).all():
            new = which[~old]
            self.known[new] = True
            self.all_known = bool(self.known.all())
            self._seen[new] = step
            self._begin(new, logs[~old], log_rows[~old], 1.0)
            which, logs, log_rows, early = which[old], logs[old], log_rows[old], early[old]
        if which.size:
            self._follow(which, logs, log_rows, early, step)

    def _follow(self, which: Ints, logs: Floats, log_rows: Floats, early: Bools, step: int) -> None:
        where: Which = slice(None) if which.size == self.logs.size else which
        away = step - 1 - self._seen[where]
        self._seen[where] = step
        ages, recent = self._ages[where], away <= _SOON
        all_recent = bool(recent.all())
        if not all_recent:
            most = np.where(recent, np.inf, np.maximum(_LONG / np.maximum(away, 1), 1.0))
            ages = np.minimum(ages, most)
        shown = errors = logs - self.logs[where]
        fewer = log_rows - self._usual[where]
        if fewer.min() < -_FEWER:
            excused = early & (fewer < -_FEWER) & (errors < 0)
            errors = np.where(excused, 0.0, errors)
        self._usual[where] += _HABIT * fewer
        sizes, unsure = np.abs(errors), np.sqrt(1 + 1 / ages)
        spread = self._measure(where, sizes / unsure, ages, None if all_recent else recent)
        limits = np.maximum(_FAR * spread * unsure, _NEAREST)
        usual = sizes <= limits
        if self._surprises.pending or not usual.all():
            sure = ((ages <= 1) & (errors > 0)) | (away >= _LONG)
            changed, levels, seen = self._surprises.take(which, logs, shown, errors, limits, sure)
            self._begin(which[changed], levels, log_rows[changed], seen)
            usual[changed] = False
            where, errors, ages, spread = which[usual], errors[usual], ages[usual], spread[usual]
        if errors.size:
            self._ages[where] = ages = ages + 1
            logs = self.logs[where] + errors
            self.logs[where] = self._averages.take(where, logs, ages, spread)

    def _begin(self, which: Ints, logs: Floats, log_rows: Floats, ages: Floats | float) -> None:
        self.logs[which] = logs
        self._usual[which] = log_rows
        self._averages.begin(which, logs)
        self._ages[which] = ages

    def _spread(self, which: Which) -> Floats:
        """Standard deviations of the noise of these machines."""
        least = max(self.noise, _LEAST_NOISE) ** 2
        return np.asarray(np.sqrt(np.maximum(self._variances[which], least)))

    def _measure(self, which: Which, sizes: Floats, ages: Floats, recent: Bools | None) -> Floats:
        """Learn the noise of all machines, and then of each, from the sizes of errors.

        Of those that were `recent`: None stands for all.
        """
        if recent is None or recent.any():
            of_these = sizes if recent is None else sizes[recent]
            noise, gain = DEVIATION * median(of_these), float(1 / ages.max())
            if sizes.size < _FEWEST:  # so few may all have changed
                noise, gain = min(noise, 2 * max(self.noise, _LEAST_NOISE)), 0.0
            self.noise += max(gain, _SMOOTHING) * (noise - self.noise)
        spread, own = self._spread(which), self._variances[which]
        most = np.minimum(sizes, _MOST_OWN * spread)
        self._variances[which] = own + _OWN * (most * most - own)
        return spread
