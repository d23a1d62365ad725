"""Wait for MPI without using a whole core.

A blocking MPI call keeps its core busy, or returns late if ranks share cores. Testing a request
between short sleeps uses a few per cent of a core, and returns a fraction of a millisecond late. If
the last wait was shorter than a millisecond, the process does not sleep during the first
millisecond, but spins in a loop that yields the core to others.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

_MIN_SPIN = 30e-6  # seconds without a sleep at the beginning of a wait
_CONTENTION_GAP = 0.7e-3  # seconds; a longer gap between polls indicates a shared core
_CONTENTION_SECONDS = 0.1  # seconds after such a gap during which waits hardly spin
_SHORT_WAIT = 1e-3  # seconds; after a shorter wait, another short wait is expected
_MIN_SLEEP_SECONDS, MAX_SLEEP_SECONDS = 20e-6, 600e-6
_SLEEP_FRACTION = 0.02  # length of a sleep, as a fraction of the time waited so far
_BYTES_PER_SECOND = 1e9  # of a slow network; no sleep before a transfer could be complete

_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of Linux
_TIMER_SLACK = 1000  # ns, by which sleeps may end late; by default 50 us
_thread_state = threading.local()


class Clock(Protocol):
    """A clock: the module `time`, or the clock of a test or simulation."""

    def monotonic(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float, /) -> None:
        """Sleep for this number of seconds."""


class JumpingClock:
    """Base of the clock of a simulation, whose sleeps take no real time."""


def sleep_at_most(clock: Clock, seconds: float, limit: float) -> None:
    """Sleep for this time, but at most `limit` seconds unless the clock is simulated."""
    clock.sleep(seconds if isinstance(clock, JumpingClock) else min(seconds, limit))


class WaitHistory:
    """Duration of the last wait of one kind: after a short wait, the next wait spins longer.

    If another process computes on this core, a process that yields gets the core back late, while
    one that sleeps wakes on time. Then, for a tenth of a second, waits of this process hardly spin.
    """

    _contended_until = 0.0  # on the clock `time.monotonic`

    def __init__(self) -> None:
        self.last_wait = 0.0  # seconds

    @property
    def spin(self) -> float:
        """Seconds before the first sleep."""
        if self.last_wait >= _SHORT_WAIT or time.monotonic() < WaitHistory._contended_until:
            return _MIN_SPIN
        return _SHORT_WAIT

    def record_contention(self) -> None:
        """Record that another process computes on this core."""
        WaitHistory._contended_until = time.monotonic() + _CONTENTION_SECONDS


class PollTimer:
    """Timer of a polling loop, with growing sleeps.

    Sleeps grow with the time waited: they prolong a wait by at most 2 % (or the shortest sleep),
    and a long wait uses hardly any CPU time.

    Parameters
    ----------
    transfer : int
        Bytes that are being transferred. MPI makes progress only during calls, so the loop does not
        sleep before they could have arrived.
    max_sleep : float
        Longest sleep in seconds.
    history : WaitHistory, optional
        History of the waits of this kind. Without it, waits are assumed to be long.

    Attributes
    ----------
    spin : float
        Seconds before the first sleep.
    last_poll : float
        Time of the last poll, on the clock `time.monotonic`.
    """

    def __init__(
        self,
        transfer: int = 0,
        max_sleep: float = MAX_SLEEP_SECONDS,
        history: WaitHistory | None = None,
    ) -> None:
        self._history = history
        self._spin_without_transfer = _MIN_SPIN if history is None else history.spin
        self.spin = self._spin_without_transfer + transfer / _BYTES_PER_SECOND
        self._max_sleep = max_sleep
        self._begin = self.last_poll = time.monotonic()

    def pause(self) -> None:
        """Sleep or yield until the next poll."""
        waited = self._record_poll()
        if waited < self.spin:
            os.sched_yield()
            return
        if not getattr(_thread_state, "has_short_slack", False):
            _reduce_timer_slack()
        time.sleep(min(max(_MIN_SLEEP_SECONDS, _SLEEP_FRACTION * waited), self._max_sleep))

    def finish(self) -> None:
        """End the wait, and record it in the history."""
        waited = self._record_poll()
        if self._history is not None:
            self._history.last_wait = waited

    def _record_poll(self) -> float:
        """Record a poll, and detect contention; return the time waited so far."""
        previous_poll, self.last_poll = self.last_poll, time.monotonic()
        is_late = (
            self.last_poll - previous_poll > _CONTENTION_GAP
            and previous_poll - self._begin < self._spin_without_transfer
        )
        if is_late and self._history is not None:
            self._history.record_contention()
        return self.last_poll - self._begin


def wait_for(
    requests: Sequence[Any],
    transfer: int = 0,
    max_sleep: float = MAX_SLEEP_SECONDS,
    history: WaitHistory | None = None,
) -> None:
    """Wait until all requests are complete.

    Parameters
    ----------
    requests : sequence of mpi4py.MPI.Request
    transfer : int
        See `PollTimer`.
    max_sleep : float
        See `PollTimer`.
    history : WaitHistory, optional
        See `PollTimer`.
    """
    timer = PollTimer(transfer, max_sleep, history)
    monotonic, yield_core = time.monotonic, os.sched_yield
    spin_until = timer.last_poll + timer.spin
    for request in requests:
        while not request.Test():
            now = monotonic()
            # Fast path: `pause`, inlined.
            if now < spin_until and now - timer.last_poll < _CONTENTION_GAP:
                timer.last_poll = now
                yield_core()
                continue
            timer.pause()
    timer.finish()


def _reduce_timer_slack() -> None:
    """Reduce the timer slack of this thread, so that sleeps end on time (Linux)."""
    _thread_state.has_short_slack = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _TIMER_SLACK, 0, 0, 0)
