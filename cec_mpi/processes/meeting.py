"""The meeting of all ranks, which a start with a time limit is for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from cec_mpi.errors import InputError, MachineError
from cec_mpi.processes.ending.limit import all_have_met
from cec_mpi.processes.waiting import wait_for

if TYPE_CHECKING:
    from mpi4py import MPI

_SECONDS = 60.0
_SECONDS_PER_RANK = 1.0  # ranks that share cores start one after the other

_unfinished: list[Any] = []  # of meetings: MPI may still write there


def seconds_to_meet(seconds: object, ranks: int) -> float:
    """Seconds that so many ranks have to meet: as given, by default 60 and one more per rank.

    Raises
    ------
    InputError
        What was given is no positive number.

    Examples
    --------
    >>> seconds_to_meet(None, 7), seconds_to_meet(10, 7)
    (67.0, 10.0)
    """
    if seconds is None:
        return _SECONDS + _SECONDS_PER_RANK * ranks
    try:
        limit = float(seconds)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        limit = 0.0
    if not limit > 0:
        raise InputError(f"start_timeout {seconds!r}: expected a positive number of seconds")
    return limit


def meet(comm: MPI.Intracomm, seconds: float = float("inf")) -> None:
    """Collective: wait until all ranks have come, which ends a start that is limited.

    Rank 0 hears of each, and only its word lets the others go: so a rank that goes on while
    another waits in vain never waits for rank 0 in vain.

    Raises
    ------
    MachineError
        So many seconds were not enough.
    """
    here, word = np.ones(1, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    came = np.zeros(comm.size if comm.rank == 0 else 0, dtype=np.uint8)
    due = time.monotonic() + seconds
    requests = [comm.Igather(here, came if comm.rank == 0 else None, root=0)]
    if comm.rank or wait_for(requests, seconds=seconds):
        requests.append(comm.Ibcast(word, root=0))
        if wait_for(requests, seconds=due - time.monotonic()):
            all_have_met()
            return
    _unfinished.append((requests, here, word, came))
    who = f"not all of {comm.size} ranks have come"
    if comm.rank == 0:  # some hand on together what others have sent them
        who = f"{max(1, int(came.sum()))} of {comm.size} ranks are known to have come"
    raise MachineError(
        f"{who} within {seconds:g} s to open the operator: expected all, but one has died, is busy "
        "or does something else; start_timeout gives them more seconds"
    )
