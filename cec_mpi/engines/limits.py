"""How often machines are started again, so that a broken image is not started forever."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

START_WINDOW = 600.0  # seconds in which starts are counted


class StartLimit:
    """Counts starts, and allows a number of them within 10 minutes.

    Parameters
    ----------
    most : int
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> seconds = iter([0, 10, 20, 601])
    >>> limit = StartLimit(2, clock=lambda: next(seconds))
    >>> [limit.allow_start() for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._starts: deque[float] = deque()

    def allow_start(self) -> bool:
        """Count one more start if it is allowed; returns whether it is."""
        now = self._clock()
        while self._starts and self._starts[0] < now - START_WINDOW:
            self._starts.popleft()
        if len(self._starts) >= self._most:
            return False
        self._starts.append(now)
        return True
