"""How all ranks leave together, and say once what went wrong.

A rank that leaves early makes mpirun kill the others before they have printed, and one
that raises leaves the others waiting for ever. So errors that one rank finds are told to
all, rank 0 alone prints, and all ranks meet before they leave with the same code.
"""

from __future__ import annotations

import atexit
import gc
import io
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.launch import check_packages, check_world, start_mpi
from cec_mpi.runtime.launchers import Launcher, detect_launcher

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "as_cec_error",
    "check_start",
    "complain",
    "dying_alone",
    "end_job",
    "ending_the_job",
    "leave_now",
    "leave_without_mpi",
    "leaves_without_mpi",
    "let_rank_0_print",
    "note_exit_status",
    "on_master",
    "raised_together",
    "run_together",
    "was_raised_together",
]

T = TypeVar("T")
Error = TypeVar("Error", bound=BaseException)
log = logging.getLogger(__name__)

_FAILED_MACHINE = 3

_LAST_SECONDS = 0.1  # that rank 0 stays when all others have left
_READING_SECONDS = 0.3  # that a launcher has to read what was printed: MPICH's drops the rest
_ENDING_SECONDS = 3.0  # that a launcher has to end all ranks
_PRINTING_SECONDS = 3.0  # that rank 0 has, without MPI, to say why all leave


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
    _flush()
    if leaves_without_mpi():
        _leave_process(comm.rank, code)
    comm.Barrier()
    return _leave(comm.rank, code) if comm.size > 1 else code


def _leave(rank: int, code: int) -> int:
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


def leave_now(code: int = _FAILED_MACHINE) -> NoReturn:
    """Leave at once, as when rank 0 is gone: nothing of MPI can be relied on."""
    _flush()
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
    _leave_process(MPI.COMM_WORLD.rank, max(_codes, default=0))


atexit.register(_leave_in_the_end)  # now: what is registered first is done last


def leaves_without_mpi() -> bool:
    """Whether MPI can no more be ended in order."""
    return bool(_without_mpi)


def _leave_process(rank: int, code: int) -> NoReturn:
    """Rank 0 leaves last, and gives the launcher its code."""
    _flush()
    if rank:
        os._exit(0)
    time.sleep(_LAST_SECONDS)
    if any(_without_mpi):
        end_job(code)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


_without_mpi: list[bool] = []  # whether others are stuck
_codes: list[int] = []


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
        end_job(1 if comm.rank == 0 else _FAILED_MACHINE)


def end_job(code: int) -> NoReturn:
    """End all processes of the job with this exit code.

    It is COMM_WORLD that is aborted: from one that was duplicated, Intel MPI's launcher
    returned 255 in 19 of 20 jobs, and MPICH's 9 in one.
    """
    from mpi4py import MPI

    _flush()
    time.sleep(_READING_SECONDS)
    MPI.COMM_WORLD.Abort(code)
    time.sleep(_ENDING_SECONDS)  # MPICH's returns when it has told the launcher
    os._exit(code)


def _tell_failure(comm: MPI.Intracomm) -> None:
    """Print which rank failed, and the exception that is being handled."""
    sys.stderr.write(f"cec-mpi: rank {comm.rank} on {socket.gethostname()} failed\n")
    traceback.print_exc()
    _flush()


def raised_together(comm: MPI.Intracomm, error: Error) -> Error:
    """Mark an exception that all ranks raise, so that a program shows it once.

    Where nobody catches it, rank 0 alone prints it, and leaves with an exit code that is
    not 0.
    """
    return _shown_by_rank_0(comm.rank, error)


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
    try:
        check_packages(comm)
    except InputError as error:
        raise raised_together(comm, error) from None


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


_SHARED = "_raised_on_all_ranks"
_hooks: list[Callable[..., Any]] = []  # that was there before ours


def was_raised_together(error: BaseException) -> bool:
    """Whether all ranks raise this exception (`raised_together`)."""
    return _SHARED in getattr(error, "__dict__", {})


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
