"""What is remembered of a plan until estimates change."""

from __future__ import annotations

import numpy as np

from cec_mpi.core.plan.numbers import Ints

# What these numbers do is said in `SpeedEstimator`.
_GAIN = 0.02  # that a new plan has to promise,
_NOISY_GAIN = 0.4  # this of the noise,
_LEAST_GAIN = 2e-4  # and these seconds: making and sending a plan takes as long
_MANY = 2.0  # times the rows of before


class Planned:
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

    def is_worth_it(self, expected: float, noise: float, unit: float) -> bool:
        """Whether the best plan replaces one of which so much time is expected.

        Parameters
        ----------
        expected : float
            In units of time of the speeds.
        noise : float
            Standard deviation of one measurement.
        unit : float
            Seconds of a unit.
        """
        least = self.seconds * (1 + max(_GAIN, _NOISY_GAIN * noise))
        if expected > least:
            return (expected - self.seconds) * unit > _LEAST_GAIN
        # A machine of few rows is hardly known, and plans without it are hardly worse.
        more = bool((self.best > _MANY * self.loads + 1).any())
        return more and self.seconds * unit > _LEAST_GAIN
