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

__all__ = ["LONGEST_SLEEP", "LONGEST_SLEEP_OPEN_MPI", "wait_for"]

_SPIN = 30e-6
_FIRST_SLEEP = 50e-6
_GROWTH = 1.25
_BYTES_PER_SECOND = 1e9  # a slow wire; a transfer is helped along for at least this time

LONGEST_SLEEP_OPEN_MPI = 100e-6
LONGEST_SLEEP = 500e-6
"""Seconds. A test costs more in MPICH and Intel MPI, so they are tested less often."""


def wait_for(requests: Sequence[Any], longest_sleep: float, transfer: int = 0) -> None:
    """Wait until all requests are complete.

    Parameters
    ----------
    requests : sequence of mpi4py.MPI.Request
    longest_sleep : float
        Seconds; sleeps grow up to this.
    transfer : int
        Bytes that are on their way already: MPI moves them only while it is called, so
        no sleep begins before they can have arrived.
    """
    pending = list(requests)
    spin_until = time.perf_counter() + _SPIN + transfer / _BYTES_PER_SECOND
    sleep = _FIRST_SLEEP
    while True:
        pending = [request for request in pending if not request.Test()]
        if not pending:
            return
        if time.perf_counter() < spin_until:
            os.sched_yield()
        else:
            time.sleep(sleep)
            sleep = min(sleep * _GROWTH, longest_sleep)
