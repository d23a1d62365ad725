"""Averages of log speeds over shorter and longer pasts, and which of them to believe."""

from __future__ import annotations

import numpy as np

from cec_mpi.core.speeds.given import Floats, Which

# What these numbers do is said in `Averages`.
_GAINS = np.array([[0.03], [0.15], [0.35], [0.65]])
_MEMORY = 0.95  # of errors, per measurement
_TOGETHER = 5.0  # weight of the mean error of all machines beside that of one
_CLIP = 2.5  # standard deviations: larger errors count as these
_LIGHT = 0.3  # gains above this take errors in full: they are meant to follow
_FOLLOW = _GAINS > _LIGHT
_OLD = 1 / _GAINS.min() + 1  # measurements from which on no average is one of equal weights


class Averages:
    """Exponential averages of the log speed of each machine, with four gains.

    Each says what the next measurement will be. Where speeds stay, the errors of all keep
    changing their sign, and those of the longest memory are smallest; where they drift, errors
    keep their sign, and those of short memories are smaller. So the averages are weighed by
    ``exp(-errors / 2)``, with squared errors in variances of the noise, over the last 20
    measurements, of this machine and, because one alone tells little, of all.

    Parameters
    ----------
    machines : int
        N.
    """

    def __init__(self, machines: int) -> None:
        self._levels = np.zeros((_GAINS.size, machines))
        self._errors = np.zeros((_GAINS.size, machines))
        self._common = np.zeros((_GAINS.size, 1))  # of all machines

    @property
    def columns(self) -> list[Floats]:
        """What is known of each machine."""
        return [self._levels, self._errors]

    def begin(self, which: Which, logs: Floats) -> None:
        """Forget what was before these measurements."""
        self._levels[:, which] = logs

    def shift(self, which: Which, by: Floats | float) -> None:
        """The unit of speeds has changed by this log."""
        self._levels[:, which] += by

    def take(self, which: Which, logs: Floats, ages: Floats, spread: Floats) -> Floats:
        """The averages after one more measurement, weighed.

        Parameters
        ----------
        which : slice or (n,) ndarray of int
            Machines, from 0.
        logs : (n,) ndarray
            Log speeds that they showed.
        ages : (n,) ndarray
            Measurements since the last change, with this one; the first few have equal weights.
        spread : (n,) ndarray
            Standard deviation of the noise of a measurement.
        """
        levels = self._levels[:, which]
        errors = logs - levels
        clipped = np.minimum(np.maximum(errors / spread, -_CLIP), _CLIP)
        squares = clipped * clipped
        gains, follow = _GAINS, _FOLLOW
        if ages.min() < _OLD:
            gains = np.maximum(_GAINS, 1 / ages)
            follow = gains > _LIGHT
            squares *= ages > 2
        self._levels[:, which] = levels = levels + gains * np.where(
            follow, errors, clipped * spread
        )
        self._errors[:, which] = past = _MEMORY * self._errors[:, which] + squares
        self._common = (
            _MEMORY * self._common + np.add.reduce(squares, axis=1, keepdims=True) / logs.size
        )
        score = past + _TOGETHER * self._common
        weights = np.exp((np.minimum.reduce(score) - score) / 2)
        weighed: Floats = np.add.reduce(weights * levels) / np.add.reduce(weights)
        return weighed
