"""Errors that one rank finds are told to all, and rank 0 alone prints them.

A rank that raises leaves the others waiting for ever. So all ranks raise, meet, and leave with
the same code, or the job is ended.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.launch import await_others, check_packages, check_world, start_mpi
from cec_mpi.runtime.launchers import Launcher, detect_launcher
from cec_mpi.runtime.leaving import (
    FAILED_MACHINE,
    end_job,
    flush,
    leave_in_order,
    leave_process,
    leaves_without_mpi,
)

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "as_cec_error",
    "check_start",
    "complain",
    "dying_alone",
    "ending_the_job",
    "let_rank_0_print",
    "on_master",
    "raised_together",
    "run_together",
    "was_raised_together",
]

T = TypeVar("T")
Error = TypeVar("Error", bound=BaseException)
log = logging.getLogger(__name__)

_PRINTING_SECONDS = 3.0  # that rank 0 has, without MPI, to say why all leave
_SHARED = "_raised_on_all_ranks"

_hooks: list[Callable[..., Any]] = []  # that was there before ours


def run_together(body: Callable[[MPI.Intracomm], int]) -> int:
    """Run `body` on all ranks, and end MPI: returns the code that this rank leaves with.

    Rank 0's code, which the launcher passes on, is that of `body`.

    An exception that all ranks raise is printed once, a `CecError` in one line. Any other
    one ends the whole job: with exit code 1 when it comes from rank 0, else 3.
    """
    launcher = detect_launcher()
    try:
        comm = start_mpi()
    except InputError as error:
        let_rank_0_print(launcher)
        if launcher is None or launcher.rank == 0:
            complain(error)
        return error.exit_code
    # mpirun ends its ranks on Ctrl-C; a traceback of each of them would bury the reason.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with ending_the_job(comm):
            check_packages(comm)
            code = body(comm)
    except CecError as error:
        if comm.rank == 0:
            complain(error)
        code = error.exit_code
    except BaseException:
        if comm.rank == 0:
            traceback.print_exc()
        code = CecError.exit_code
    flush()
    if leaves_without_mpi():
        leave_process(comm.rank, code)
    comm.Barrier()
    return leave_in_order(comm.rank, code) if comm.size > 1 else code


def check_start(comm: MPI.Intracomm) -> None:
    """Collective: refuse a communicator of processes that were not started to work together.

    Raises
    ------
    InputError
        On all ranks alike: processes that the launcher started do not find each other, or
        run different versions of this package.
    """
    try:
        check_world()
    except InputError as error:  # all processes find the same, and cannot tell each other
        launcher = detect_launcher()
        assert launcher is not None
        let_rank_0_print(launcher)
        raise _shown_by_rank_0(launcher.rank, error) from None
    await_others()
    try:
        check_packages(comm)
    except InputError as error:
        raise raised_together(comm, error) from None


@contextmanager
def dying_alone(comm: MPI.Intracomm) -> Iterator[None]:
    """End this process alone on any exception: the others see that it died, and go on.

    It has to be a signal: under ULFM the exit of a process goes unnoticed.
    """
    try:
        yield
    except BaseException:
        log.critical("rank %d ends", comm.rank, exc_info=True)
        _tell_failure(comm)
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def ending_the_job(
    comm: MPI.Intracomm, known: type[BaseException] | tuple[()] = CecError
) -> Iterator[None]:
    """End the job on an exception that the other ranks do not know of, so that none hangs.

    The exit code is 1 when it comes from rank 0, else 3. What all ranks raise passes: what
    is `known` to be such, and what was `raised_together`.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, known) or was_raised_together(error):
            raise
        log.critical("rank %d ends the job", comm.rank, exc_info=True)
        _tell_failure(comm)
        end_job(1 if comm.rank == 0 else FAILED_MACHINE)


def _tell_failure(comm: MPI.Intracomm) -> None:
    """Print which rank failed, and the exception that is being handled."""
    sys.stderr.write(f"cec-mpi: rank {comm.rank} on {socket.gethostname()} failed\n")
    traceback.print_exc()
    flush()


def on_master(comm: MPI.Intracomm, work: Callable[[], T]) -> T:
    """Collective: do `work` on rank 0 and give its result to all, or raise its error on all.

    An error that is no `CecError` is logged with its traceback and raised as one.
    """
    result: T | None = None
    error: CecError | None = None
    if comm.rank == 0:
        try:
            result = work()
        except Exception as caught:
            error = as_cec_error(caught)
    result, error = comm.bcast((result, error), root=0)
    if error is not None:
        raise raised_together(comm, error)
    return result


def raised_together(comm: MPI.Intracomm, error: Error) -> Error:
    """Mark an exception that all ranks raise, so that a program shows it once.

    Where nobody catches it, rank 0 alone prints it, and leaves with an exit code that is
    not 0.
    """
    return _shown_by_rank_0(comm.rank, error)


def was_raised_together(error: BaseException) -> bool:
    """Whether all ranks raise this exception (`raised_together`)."""
    return _SHARED in getattr(error, "__dict__", {})


def let_rank_0_print(launcher: Launcher | None) -> None:
    """Wait for it, without MPI: the first process to leave makes launchers end the others."""
    if launcher is not None and launcher.rank:
        time.sleep(_PRINTING_SECONDS)


def _shown_by_rank_0(rank: int, error: Error) -> Error:
    error.__dict__[_SHARED] = True
    if rank and sys.excepthook is not _leave_quietly:
        _hooks.append(sys.excepthook)
        sys.excepthook = _leave_quietly
    return error


def _leave_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """As `sys.excepthook` on a machine: rank 0 prints, and gives the launcher its code."""
    if was_raised_together(error):
        raise SystemExit(0)
    _hooks[-1](kind, error, trace)


def as_cec_error(error: Exception) -> CecError:
    """An error of a file becomes bad input; an unexpected one is shown with its traceback."""
    if isinstance(error, CecError):
        return error
    if isinstance(error, OSError):
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    log.critical("unexpected error", exc_info=error)
    traceback.print_exception(error)
    return CecError(f"{type(error).__name__}: {error}")


def complain(error: object) -> None:
    """Print one message."""
    if sys.stderr is not None:  # as it is when standard error was closed before
        sys.stderr.write(f"cec-mpi: error: {error}\n")
        sys.stderr.flush()
