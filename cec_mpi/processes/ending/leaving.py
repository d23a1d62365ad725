"""How processes leave: with MPI ended in order, without it, or all at once.

A rank that leaves early makes mpirun kill the others before they have printed, and
MPI_Finalize waits for ever for a process that is lost.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import time
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

from cec_mpi.errors import CecError
from cec_mpi.processes.ending.siblings import end_siblings
from cec_mpi.processes.launcher import OPEN_MPI, continuity, detect_launcher
from cec_mpi.processes.workarounds import (
    LAST_SECONDS,
    READING_SECONDS,
    abort_by_launcher,
    abort_world,
)
from cec_mpi.terminal import drop, unwritten

FAILED_MACHINE = 3  # the exit code of a job in which one fails

_without_mpi: list[bool] = []  # whether others are stuck
_codes: list[int] = []
_forked: list[bool] = []  # whether this process was forked from one that has MPI
_ending_the_job: list[int] = []  # codes with which this process, whatever its rank, ends all


def leave_now(code: int = FAILED_MACHINE) -> NoReturn:
    """Leave at once, as when rank 0 is gone: nothing of MPI can be relied on."""
    flush()
    os._exit(code)


def end_job(code: int) -> NoReturn:
    """End all processes of the job with this exit code."""
    flush()
    launcher = detect_launcher()
    if launcher and launcher.maker == OPEN_MPI and continuity(launcher).continues:
        end_job_without_mpi(code)  # with --with-ft ulfm others survive an abort, stuck in MPI
    abort_world(code)
    os._exit(code)


def end_job_without_mpi(code: int) -> NoReturn:
    """End this process with a code that the launcher returns, and as far as possible the others."""
    abort_by_launcher(code)
    end_siblings()
    os._exit(code)


def leave_without_mpi(*, others_are_stuck: bool = False) -> None:
    """From now on this process is to end without MPI_Finalize, which waits for lost processes.

    Parameters
    ----------
    others_are_stuck : bool, default False
        Only the launcher can end them: the last process to leave has it do so.
    """
    if not _without_mpi:
        hook, leave = sys.excepthook, sys.exit

        def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            _codes.append(CecError.exit_code)
            hook(kind, error, trace)

        def note_exit(status: Any = None, /) -> NoReturn:
            note_exit_status(status)
            leave(status)

        sys.excepthook, sys.exit = note, note_exit
    _without_mpi.append(others_are_stuck)


@cache
def leave_forks_without_mpi() -> None:
    """Processes that are forked from now on end without MPI, which is not theirs.

    MPI_Finalize there waits for ever, or ends the connections of this process.
    """

    def forked() -> None:
        _without_mpi.clear()
        _forked.append(True)
        leave_without_mpi()

    os.register_at_fork(after_in_child=forked)


def was_forked() -> bool:
    """Whether this process was forked from one that had opened an operator with MPI."""
    return bool(_forked)


def leaves_without_mpi() -> bool:
    """Whether MPI can no more be ended in order."""
    return bool(_without_mpi)


def leave_with_the_job(code: int) -> None:
    """From now on the end of this process, of whatever rank, is that of the job, with this code.

    Others will never meet it in MPI_Finalize.
    """
    leave_without_mpi(others_are_stuck=True)
    note_exit_status(code)
    _ending_the_job.append(code)


def note_exit_status(status: Any) -> None:
    """Remember what this process is to leave with: Python does not say so at its end."""
    _codes.append(0 if status is None else status if isinstance(status, int) else 1)


def _leave_in_the_end() -> None:
    """As the last of what is to be done at exit: in the place of MPI_Finalize."""
    if not _without_mpi:
        return
    from mpi4py import MPI

    for file in gc.get_objects():
        if isinstance(file, io.TextIOWrapper | io.BufferedWriter) and not file.closed:
            with suppress(OSError, ValueError):
                file.flush()
    if _forked:
        flush()
        os._exit(max(_codes, default=0))
    leave_process(MPI.COMM_WORLD.rank, max(_codes, default=0))


atexit.register(_leave_in_the_end)  # now: what is registered first is done last


def leave_process(rank: int, code: int) -> NoReturn:
    """Rank 0 leaves last, and gives the launcher its code."""
    flush()
    if rank and not _ending_the_job:
        os._exit(0)
    time.sleep(LAST_SECONDS)
    if _ending_the_job:
        time.sleep(READING_SECONDS)
        end_job_without_mpi(code)
    if any(_without_mpi):
        end_job(code)
    os._exit(code)


def flush() -> OSError | None:
    """Hand over what was printed, to the launcher or whoever reads it.

    Returns
    -------
    OSError or None
        Why standard output cannot be written; what is left of it then goes nowhere.
    """
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # there is no place left to say so
        drop(sys.stderr)
    return unwritten()
