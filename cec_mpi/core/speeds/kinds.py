"""What is known of one kind of product: how fast it goes, and its last step."""

from __future__ import annotations

from collections import deque

import numpy as np

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.speeds.given import Floats, Which

_WINDOW = 5  # measurements that a rate is the median of
_RECENT = 8  # steps: over more of them a machine may have changed
_OTHER = 0.02  # rows differ by this share, or tell nothing


class Kind:
    """The rate of a kind of product, and what each machine did in its last step of it.

    Attributes
    ----------
    level : float
        Log of rows per second of a machine whose log speed is 0: the median of the last 5.
    """

    def __init__(self, machines: int) -> None:
        self.level = 0.0
        self._levels: deque[float] = deque(maxlen=_WINDOW)
        self._rows = np.ones(machines)
        self._log_seconds = np.zeros(machines)
        self._steps = np.full(machines, -_RECENT - 1)

    @property
    def settled(self) -> bool:
        """Whether the level is of as many steps as it can be."""
        return len(self._levels) == _WINDOW

    def take(self, level: float) -> None:
        """Take the level that a step showed."""
        self._levels.append(level)
        # Of two the faster: what disturbs makes slower.
        self.level = sorted(self._levels)[len(self._levels) // 2]

    def pairs(
        self, which: Ints, where: Which, rows: Floats, log_seconds: Floats, step: int
    ) -> tuple[Ints, Floats, Floats, Floats] | None:
        """Machines whose last step was not long ago, with their rows then and now.

        Parameters
        ----------
        which : (n,) ndarray of int
        where : slice or (n,) ndarray of int
            The same.
        rows, log_seconds : (n,) ndarray
        step : int

        Returns
        -------
        which : (n,) ndarray of int
        before, rows : (n,) ndarray
        longer : (n,) ndarray
            By how much the logs of seconds differ.
        None where no machine had other rows, which is most of the time.
        """
        before = self._rows[where]
        if (rows == before).all():
            return None
        recent = step - self._steps[which] <= _RECENT
        if not (recent & (np.abs(rows - before) > _OTHER * before)).any():
            return None
        longer = log_seconds - self._log_seconds[which]
        return which[recent], before[recent], rows[recent], longer[recent]

    def forget(self, which: Ints) -> None:
        """The last steps of these machines were those of others."""
        self._steps[which] = -_RECENT - 1

    def remember(self, where: Which, rows: Floats, log_seconds: Floats, step: int) -> None:
        """Keep a step to compare the next one with."""
        self._rows[where] = rows
        self._log_seconds[where] = log_seconds
        self._steps[where] = step
