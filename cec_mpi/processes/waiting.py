"""Waiting for MPI without burning a core.

Every MPI library burns the whole core of a rank that waits in a blocking call, or wakes
it late where ranks share cores. A request that is tested between short sleeps costs a few per
cent of a core, and wakes a fraction of a millisecond late. What comes within a millisecond, as
it did the last time, is better waited for awake, in a loop that gives the core to whoever
else can use it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

_SPIN = 30e-6
_LOST, _CROWDED = 0.7e-3, 0.1  # seconds without the core, after which so many are slept
_SOON = 1e-3  # seconds that a wait may take for the next one to be expected as short
_SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 600e-6
_LATE = 0.02  # a sleep is at most this part of the time waited so far
_BYTES_PER_SECOND = 1e9  # a slow wire; a transfer is helped along for at least this time

_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of Linux
_TIMER_SLACK = 1000  # ns; by default sleeps end up to 50 us late
_threads = threading.local()


class Clock(Protocol):
    """Where time comes from: `time`, or what a test or a simulation has in its place."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for so long."""


class Rhythm:
    """How long the waits at one place last: after a short one, the next is waited for awake.

    But not where somebody else computes on this core for as long as the kernel lets it: then a
    rank that gives the core away has it back late, and one that wakes from a sleep at once. So
    for a tenth of a second all waits of this process sleep.
    """

    _crowded_until = 0.0  # of `time.monotonic`

    def __init__(self) -> None:
        self.last = 0.0  # seconds

    @property
    def spin(self) -> float:
        """Seconds before the first sleep."""
        if self.last >= _SOON or time.monotonic() < Rhythm._crowded_until:
            return _SPIN
        return _SOON

    def lost_core(self) -> None:
        """Awake, and others ran for long: somebody computes here who does not wait."""
        Rhythm._crowded_until = time.monotonic() + _CROWDED


class Patience:
    """Pauses between two looks at something.

    Sleeps grow with the time waited: a short wait ends promptly, a long one costs next to
    nothing, and neither is prolonged by more than 2 % (or a shortest sleep).

    Parameters
    ----------
    transfer : int
        Bytes that are on their way already: MPI moves them only while it is called, so
        no sleep begins before they can have arrived.
    longest : float
        Seconds of the longest sleep.
    rhythm : Rhythm, optional
        Of the waits at this place. Without it none is expected to be short.
    clock : Clock, optional
        By default `time`.
    """

    def __init__(
        self,
        transfer: int = 0,
        longest: float = LONGEST_SLEEP,
        rhythm: Rhythm | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = time if clock is None else clock
        self._rhythm = rhythm
        self._awake = _SPIN if rhythm is None else rhythm.spin
        self._spin = self._awake + transfer / _BYTES_PER_SECOND
        self._longest = longest
        self._longest_wait = 0.0
        self._begin = self._before = self._clock.monotonic()

    def pause(self) -> None:
        """Wait a little."""
        waited = self._looked() - self._begin
        if waited < self._spin:
            os.sched_yield()
        else:
            _sleep_on_time()
            self._clock.sleep(min(max(_SHORTEST_SLEEP, _LATE * waited), self._longest))

    def waited(self) -> float:
        """Seconds so far."""
        return self._clock.monotonic() - self._begin

    def again(self) -> None:
        """Something is there, and more is waited for: from now on."""
        now = self._looked()
        self._longest_wait = max(self._longest_wait, now - self._begin)
        self._begin = now

    def over(self) -> None:
        """All is there; the longest wait is what the rhythm expects of the next ones."""
        self.again()
        if self._rhythm is not None:
            self._rhythm.last = self._longest_wait

    def _looked(self) -> float:
        """The time; if it took long to look again, others have the core."""
        before, self._before = self._before, self._clock.monotonic()
        late = self._before - before > _LOST and before - self._begin < self._awake
        if late and self._rhythm is not None:
            self._rhythm.lost_core()
        return self._before


def wait_for(
    requests: Sequence[Any],
    transfer: int = 0,
    seconds: float = float("inf"),
    longest: float = LONGEST_SLEEP,
    rhythm: Rhythm | None = None,
) -> bool:
    """Wait until all requests are complete; False when so many seconds were not enough.

    Parameters
    ----------
    requests : sequence of mpi4py.MPI.Request
    transfer : int
        As in `Patience`.
    seconds : float
    longest : float
        As in `Patience`.
    rhythm : Rhythm, optional
        As in `Patience`.
    """
    patience = Patience(transfer, longest, rhythm)
    pending = list(requests)
    while pending := [request for request in pending if not request.Test()]:
        if patience.waited() > seconds:
            return False
        patience.pause()
    patience.over()
    return True


def _sleep_on_time() -> None:
    """Have the sleeps of this thread end when they should, where the kernel can be asked."""
    if getattr(_threads, "on_time", False):
        return
    _threads.on_time = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _TIMER_SLACK, 0, 0, 0)
