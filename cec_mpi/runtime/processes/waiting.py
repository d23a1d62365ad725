"""Waiting for MPI without using a whole core.

A blocking MPI call keeps its core busy, or returns late if ranks share cores. Testing a request
between short sleeps takes a few per cent of a core, and wakes a fraction of a millisecond late. If
the last wait was shorter than a millisecond, the process stays awake in a loop that yields the core
to others.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

_SPIN = 30e-6
# Seconds without the core, after which so many are slept.
_CONTENTION_GAP, _CONTENTION_SECONDS = 0.7e-3, 0.1
_SHORT_WAIT = 1e-3  # waits below this many seconds predict another short wait
_MIN_SLEEP_SECONDS, MAX_SLEEP_SECONDS = 50e-6, 600e-6
_SLEEP_FRACTION = 0.02  # a sleep is at most this part of the time waited so far
_BYTES_PER_SECOND = 1e9  # a slow network: no sleep before a transfer at this rate could be complete

_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of Linux
_TIMER_SLACK = 1000  # ns; by default sleeps end up to 50 us late
_threads = threading.local()


class Clock(Protocol):
    """A clock: the module `time`, or that of a test or simulation."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for this number of seconds."""


class JumpingClock(ABC):
    """A clock of a simulation: waits take no time, because it jumps to what happens next."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds since some moment."""

    @abstractmethod
    def sleep(self, seconds: float, /) -> None:
        """Let this number of seconds pass."""

    @abstractmethod
    def jump(self, until: float) -> None:
        """Go on to the next event, or to this moment if nothing happens before."""


def sleep_at_most(clock: Clock, left: float, longest: float) -> None:
    """Sleep for the time that is left, at most for the longest sleep if that takes time."""
    clock.sleep(left if isinstance(clock, JumpingClock) else min(left, longest))


def never() -> float:
    """Return a moment that does not come."""
    return float("inf")


class WaitHistory:
    """How long the waits at one place last: after a short wait, the next one stays awake.

    If another process computes on this core, a rank that yields gets the core back late, while one
    that sleeps wakes in time. Then all waits of this process sleep for a tenth of a second.
    """

    _crowded_until = 0.0  # of `time.monotonic`

    def __init__(self) -> None:
        self.last = 0.0  # seconds

    @property
    def spin(self) -> float:
        """Seconds before the first sleep."""
        if self.last >= _SHORT_WAIT or time.monotonic() < WaitHistory._crowded_until:
            return _SPIN
        return _SHORT_WAIT

    def note_contention(self) -> None:
        """Note that another process computes on this core."""
        WaitHistory._crowded_until = time.monotonic() + _CONTENTION_SECONDS


class PollTimer:
    """Polls with growing sleeps.

    Sleeps grow with the time waited: a wait is prolonged by at most 2 % (or a shortest sleep), and
    a long wait takes hardly any time of the core.

    Parameters
    ----------
    transfer : int
        Bytes that are being transferred. MPI moves them only while it is called, so there is no
        sleep before they can have arrived.
    longest : float
        Seconds of the longest sleep.
    history : WaitHistory, optional
        History of the waits at this place. Without it no wait is expected to be short.
    clock : Clock, optional
        By default `time`.

    Attributes
    ----------
    spin : float
        Seconds before the first sleep.
    last_poll : float
        When `pause` was called last, on the clock.
    """

    def __init__(
        self,
        transfer: int = 0,
        longest: float = MAX_SLEEP_SECONDS,
        history: WaitHistory | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = time if clock is None else clock
        jumps = clock is not None and isinstance(clock, JumpingClock)
        self._history = None if jumps else history
        self._awake = _SPIN if self._history is None else self._history.spin
        self.spin = self._awake + transfer / _BYTES_PER_SECOND
        self._longest = longest
        self._longest_wait = 0.0
        self._begin = self.last_poll = self._clock.monotonic()

    def pause(self, until: float = float("inf")) -> None:
        """Wait a little; a clock that jumps goes on to its next event, or to `until`."""
        if isinstance(self._clock, JumpingClock):
            self._clock.jump(until)
            return
        waited = self._note_poll() - self._begin
        if waited < self.spin:
            os.sched_yield()
            return
        if not getattr(_threads, "on_time", False):
            _sleep_on_time()
        self._clock.sleep(min(max(_MIN_SLEEP_SECONDS, _SLEEP_FRACTION * waited), self._longest))

    def elapsed(self) -> float:
        """Return the seconds waited so far."""
        return self._clock.monotonic() - self._begin

    def restart(self) -> None:
        """Start again, because something has arrived and more is expected."""
        now = self._note_poll()
        self._longest_wait = max(self._longest_wait, now - self._begin)
        self._begin = now

    def finish(self) -> None:
        """End the wait; the rhythm expects the longest part for the next wait."""
        self.restart()
        if self._history is not None:
            self._history.last = self._longest_wait

    def _note_poll(self) -> float:
        """Return the time; notes if another process had the core."""
        before, self.last_poll = self.last_poll, self._clock.monotonic()
        late = self.last_poll - before > _CONTENTION_GAP and before - self._begin < self._awake
        if late and self._history is not None:
            self._history.note_contention()
        return self.last_poll


def wait_for(
    requests: Sequence[Any],
    transfer: int = 0,
    seconds: float = float("inf"),
    longest: float = MAX_SLEEP_SECONDS,
    history: WaitHistory | None = None,
) -> bool:
    """Wait until all requests are complete; False if the time is over.

    Parameters
    ----------
    requests : sequence of mpi4py.MPI.Request
    transfer : int
        See `PollTimer`.
    seconds : float
        Longest wait.
    longest : float
        See `PollTimer`.
    history : WaitHistory, optional
        See `PollTimer`.
    """
    timer = PollTimer(transfer, longest, history)
    monotonic, yield_core = time.monotonic, os.sched_yield
    awake_until = timer.last_poll + min(timer.spin, seconds)
    for request in requests:
        while not request.Test():
            now = monotonic()
            if (
                now < awake_until and now - timer.last_poll < _CONTENTION_GAP
            ):  # as in nearly every wait
                timer.last_poll = now
                yield_core()
                continue
            if timer.elapsed() > seconds:
                return False
            timer.pause()
    timer.finish()
    return True


def _sleep_on_time() -> None:
    """Make the sleeps of this thread end on time (Linux)."""
    _threads.on_time = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _TIMER_SLACK, 0, 0, 0)
