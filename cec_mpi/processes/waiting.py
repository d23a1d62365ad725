"""Waiting for MPI without burning a core.

Every MPI library burns the whole core of a rank that waits in a blocking call, or wakes
it late where ranks share cores. A request that is tested in a short loop and then between
short sleeps costs a few per cent of a core and wakes within a fraction of a millisecond.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

_SPIN = 30e-6
_SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 500e-6
_LATE = 0.02  # a sleep is at most this part of the time waited so far
_BYTES_PER_SECOND = 1e9  # a slow wire; a transfer is helped along for at least this time


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
    """

    def __init__(self, transfer: int = 0, longest: float = LONGEST_SLEEP) -> None:
        self._begin = time.perf_counter()
        self._spin = _SPIN + transfer / _BYTES_PER_SECOND
        self._longest = longest

    def pause(self) -> None:
        """Wait a little."""
        waited = time.perf_counter() - self._begin
        if waited < self._spin:
            os.sched_yield()
        else:
            time.sleep(min(max(_SHORTEST_SLEEP, _LATE * waited), self._longest))


def wait_for(
    requests: Sequence[Any],
    transfer: int = 0,
    seconds: float = float("inf"),
    longest: float = LONGEST_SLEEP,
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
    """
    pending = list(requests)
    patience, due = Patience(transfer, longest), time.monotonic() + seconds
    while True:
        pending = [request for request in pending if not request.Test()]
        if not pending:
            return True
        if time.monotonic() > due:
            return False
        patience.pause()
