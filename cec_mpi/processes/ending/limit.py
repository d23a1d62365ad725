"""A start that does not end: each process ends itself at a time limit, and one says why.

Where a process dies while MPI starts, most launchers end the others. Some do not, and no launcher
notices one that is stopped: MPI_Init then waits for ever, in a call that knows no time limit.
Nothing of MPI can be asked then, so that processes agree by time, and by what those of one
node can see of each other.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import NoReturn

from cec_mpi.processes.ending.leaving import FAILED_MACHINE, end_job_without_mpi, flush
from cec_mpi.processes.ending.siblings import claim
from cec_mpi.processes.workarounds import READING_SECONDS
from cec_mpi.terminal import tell
from cec_mpi.text import plural

_TURN = 1.0  # seconds that a rank waits for the one before it to say why all leave
_LAST_TURN = 5  # a thousand ranks do not wait for each other
ALL_TURNS = _TURN * _LAST_TURN
"""Seconds after which all ranks have had their turn."""

_AFTER_OTHERS = 1.0  # seconds that one who says nothing stays longer

_watches: list[_Watch] = []  # of the start that goes on, if one does


def watch_start(seconds: float, ranks: int, rank: int) -> None:
    """From now on, end this process when it has not met the others after so many seconds."""
    all_have_met()
    _watches.append(_Watch(seconds, ranks, rank))


def is_limited() -> bool:
    """Whether a start goes on that will be ended."""
    return bool(_watches)


def all_have_met() -> None:
    """The start is over."""
    while _watches:
        _watches.pop().stop()


def give_up(error: object) -> NoReturn:
    """End this process, as at the time limit, because MPI has reported an error.

    Other ranks wait in a call that need not end.
    """
    _watches[-1].give_up(error)


def leave_after_a_loss(rank: int, ranks: int, error: object) -> NoReturn:
    """End this process, which works in lockstep, because MPI has reported a lost rank.

    Other ranks get the same error or wait for ever: the first that has the word says why.
    """
    _leave(
        takes_the_word(rank),
        f"one of {plural(ranks, 'rank')} was lost ({error}), and the others cannot continue in "
        "lockstep; with --elastic a run continues",
    )


class _Watch:
    """A time limit, kept by a thread: this process waits in a call that does not end."""

    def __init__(self, seconds: float, ranks: int, rank: int) -> None:
        self._seconds, self._ranks, self._rank = seconds, ranks, rank
        self._over = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True, name="start limit").start()

    def stop(self) -> None:
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        if self._over.wait(min(self._seconds, threading.TIMEOUT_MAX)):
            return
        speaks = takes_the_word(self._rank, self._over)
        with self._lock:
            if self._over.is_set():  # all have met in the last moment
                return
            started = f"MPI has not started within {self._seconds:g} s"
            if self._ranks > 1:
                started = f"{self._ranks} ranks have not met within {self._seconds:g} s"
            _leave(
                speaks,
                f"{started}: one has died or was stopped while MPI started, or hosts cannot reach "
                "each other; start again, with --start-timeout SECONDS (start_timeout in Python) "
                "if it needs more time",
            )

    def give_up(self, error: object) -> NoReturn:
        speaks = takes_the_word(self._rank, self._over)
        with self._lock:
            _leave(
                speaks,
                f"one of {plural(self._ranks, 'rank')} was lost before all had met ({error}): "
                "start again",
            )


def takes_the_word(rank: int, over: threading.Event | None = None) -> bool:
    """Wait for one's turn, and see whether it is still to be said why all leave.

    Rank 0's turn is now, the next rank's a second later.

    Parameters
    ----------
    rank : int
    over : threading.Event, optional
        Ends the wait.
    """
    (over or threading.Event()).wait(_TURN * min(rank, _LAST_TURN))
    claimed = claim("start")
    return rank < _LAST_TURN if claimed is None else claimed


def _leave(speaks: bool, reason: str) -> NoReturn:
    if speaks:
        tell(f"cec-mpi: error: {reason}")
    with suppress(ValueError):  # who reads it may be gone; this process has to end
        flush()
    time.sleep(READING_SECONDS if speaks else _AFTER_OTHERS)
    end_job_without_mpi(FAILED_MACHINE)
