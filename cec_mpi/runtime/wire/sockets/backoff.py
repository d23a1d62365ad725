"""Exponential backoff for a process that is disconnected repeatedly."""

from __future__ import annotations

import math
import time

from cec_mpi.runtime.times import BACKOFF_RESET_SECONDS, RECONNECT_INTERVAL


class Backoff:
    """Exponential backoff before the next connection.

    There is no pause after the first disconnect. A minute without a disconnect resets the pauses.

    Parameters
    ----------
    max_pause : float
        Longest pause, in seconds.

    Examples
    --------
    >>> backoff, pauses = Backoff(max_pause=3.0), []
    >>> for _ in range(5):
    ...     backoff.record_disconnect()
    ...     pauses.append(backoff.pause)
    >>> pauses
    [0.0, 0.5, 1.0, 2.0, 3.0]
    """

    def __init__(self, max_pause: float) -> None:
        self._max_pause = max_pause
        self._disconnects = 0
        self._last_disconnect = -math.inf

    def record_disconnect(self) -> None:
        """Record that a connection has ended."""
        now = time.monotonic()
        if now - self._last_disconnect >= BACKOFF_RESET_SECONDS:
            self._disconnects = 0
        self._disconnects += 1
        self._last_disconnect = now

    @property
    def is_reset(self) -> bool:
        """Whether there is no pause after the next disconnect."""
        return time.monotonic() - self._last_disconnect > BACKOFF_RESET_SECONDS

    @property
    def pause(self) -> float:
        """Seconds between the last disconnect and the use of the next connection."""
        if self._disconnects < 2:
            return 0.0
        exponent = min(self._disconnects - 2, 32)
        return float(min(self._max_pause, RECONNECT_INTERVAL * 2.0**exponent))

    @property
    def next_connection_time(self) -> float:
        """Time from which the next connection can be used, in seconds of `time.monotonic`."""
        return self._last_disconnect + self.pause
