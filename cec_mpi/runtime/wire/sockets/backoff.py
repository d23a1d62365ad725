"""Pauses between connections of a process whose connections end again and again."""

from __future__ import annotations

import math
import time

from cec_mpi.runtime.times import BACKOFF_RESET_SECONDS, RECONNECT_INTERVAL


class Backoff:
    """Pauses that grow with each connection that ends.

    The first connection after another has no pause. A minute without an end resets the pauses.

    Parameters
    ----------
    longest : float
        The longest pause, in seconds.

    Examples
    --------
    >>> backoff, pauses = Backoff(longest=3.0), []
    >>> for _ in range(5):
    ...     backoff.note_end()
    ...     pauses.append(backoff.pause)
    >>> pauses
    [0.0, 0.5, 1.0, 2.0, 3.0]
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._ends = 0
        self._last = -math.inf

    def note_end(self) -> None:
        """Note that a connection has ended."""
        now = time.monotonic()
        self._ends = self._ends + 1 if now - self._last < BACKOFF_RESET_SECONDS else 1
        self._last = now

    @property
    def is_over(self) -> bool:
        """Whether the pauses start again."""
        return time.monotonic() - self._last > BACKOFF_RESET_SECONDS

    @property
    def pause(self) -> float:
        """Seconds before the next connection is used."""
        if self._ends < 2:
            return 0.0
        return float(min(self._longest, RECONNECT_INTERVAL * 2.0 ** min(self._ends - 2, 32)))

    @property
    def next(self) -> float:
        """When the next connection can be used, on the clock of `time.monotonic`."""
        return self._last + self.pause
