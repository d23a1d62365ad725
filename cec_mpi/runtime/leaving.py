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
from typing import Any, NoReturn

from cec_mpi.errors import CecError

__all__ = [
    "FAILED_MACHINE",
    "end_job",
    "flush",
    "leave_in_order",
    "leave_now",
    "leave_process",
    "leave_without_mpi",
    "leaves_without_mpi",
    "note_exit_status",
]

FAILED_MACHINE = 3  # the exit code of a job in which one fails

_LAST_SECONDS = 0.1  # that rank 0 stays when all others have left
_READING_SECONDS = 0.3  # that a launcher has to read what was printed: MPICH's drops the rest
_ENDING_SECONDS = 3.0  # that a launcher has to end all ranks

_without_mpi: list[bool] = []  # whether others are stuck
_codes: list[int] = []


def leave_now(code: int = FAILED_MACHINE) -> NoReturn:
    """Leave at once, as when rank 0 is gone: nothing of MPI can be relied on."""
    flush()
    os._exit(code)


def end_job(code: int) -> NoReturn:
    """End all processes of the job with this exit code.

    It is COMM_WORLD that is aborted: from one that was duplicated, Intel MPI's launcher
    returned 255 in 19 of 20 jobs, and MPICH's 9 in one.
    """
    from mpi4py import MPI

    flush()
    time.sleep(_READING_SECONDS)
    MPI.COMM_WORLD.Abort(code)
    time.sleep(_ENDING_SECONDS)  # MPICH's returns when it has told the launcher
    os._exit(code)


def leave_in_order(rank: int, code: int) -> int:
    """Collective: end MPI on all ranks; rank 0 alone gives the launcher a code that is not 0.

    Open MPI's launcher hung, or complained, when several ranks left with such a code at
    once: 5 and 61 times in 1,631 runs, and never in 1,629 when they left like this.
    """
    from mpi4py import MPI

    MPI.Finalize()
    if rank or not code:
        return 0
    time.sleep(_LAST_SECONDS)
    return code


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


def leaves_without_mpi() -> bool:
    """Whether MPI can no more be ended in order."""
    return bool(_without_mpi)


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
    leave_process(MPI.COMM_WORLD.rank, max(_codes, default=0))


atexit.register(_leave_in_the_end)  # now: what is registered first is done last


def leave_process(rank: int, code: int) -> NoReturn:
    """Rank 0 leaves last, and gives the launcher its code."""
    flush()
    if rank:
        os._exit(0)
    time.sleep(_LAST_SECONDS)
    if any(_without_mpi):
        end_job(code)
    os._exit(code)


def flush() -> None:
    """Hand over what was printed, to the launcher or whoever reads it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
