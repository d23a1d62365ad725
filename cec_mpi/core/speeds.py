"""From relative speeds to rows per second."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["SpeedScale"]


class SpeedScale:
    """The factor between relative speeds and rows per second, fitted in the first steps.

    Parameters
    ----------
    speeds : (N,) sequence of float
        Relative speed of each machine.
    steps : int
        How many steps are observed; the scale is then kept.

    Attributes
    ----------
    value : float or None
        Rows per second of a machine of speed 1; None before the first observation.

    Examples
    --------
    >>> scale = SpeedScale([1.0, 2.0])
    >>> scale.observe([100, 200], [0.5, 0.5])
    >>> scale.value
    200.0
    """

    def __init__(self, speeds: Sequence[float], steps: int = 5) -> None:
        self._speeds = np.array(speeds, dtype=np.float64)
        self._left = steps
        self._rates: list[float] = []
        self.value: float | None = None

    def observe(self, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Take the rows and seconds of machines 1..N in a step; 0 where preempted."""
        if not self._left:
            return
        self._left -= 1
        rows, seconds = np.asarray(rows, np.float64), np.asarray(seconds, np.float64)
        took = (rows > 0) & (seconds > 0)
        self._rates.extend((rows[took] / seconds[took] / self._speeds[took]).tolist())
        self.value = median(self._rates) if self._rates else None
