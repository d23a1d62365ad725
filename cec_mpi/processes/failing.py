"""Errors of processes that work together: they are printed once and reach all ranks, or end all."""

from __future__ import annotations

import logging
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cec_mpi.errors import CecError, InputError, ShortageError
from cec_mpi.processes.ending import (
    FAILED_MACHINE,
    end_job,
    flush,
    give_up_start,
    leave_after_a_loss,
    this_process,
)
from cec_mpi.processes.launcher import Launcher
from cec_mpi.processes.library import is_mpi_error
from cec_mpi.processes.waiting import Patience
from cec_mpi.terminal import tell
from cec_mpi.text import one_message, printable
from cec_mpi.times import APART_SECONDS, MORE_APART_SECONDS, PRINTING_SECONDS, TELLING_SECONDS

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)

Error = TypeVar("Error", bound=BaseException)

_SHARED = "_raised_on_all_ranks"  # with this rank
_APART = "_raised_on_some_ranks"  # with the place in the order in which they print

_PRINTED = 32_767  # a tag: the largest that every MPI has

_TOO_LITTLE = "can't start new thread", "failed to map segment from shared object"


def raised_together(comm: MPI.Intracomm, error: Error) -> Error:
    """Mark an exception that all ranks raise, so that it is printed once.

    If the program does not catch it, rank 0 prints it and leaves with an exit code other than 0.
    """
    return shown_by_rank_0(comm.rank, error)


def raised_apart(place: int, error: Error) -> Error:
    """Mark an exception that several ranks may raise without knowing of each other.

    If the program does not catch it, it is printed once, and the job ends with exit code 1.

    Parameters
    ----------
    place : int
        Place of this rank among those that may raise it: the first one prints at once, and the
        others only if the job has not ended by then.
    error : BaseException
    """
    error.__dict__[_APART] = place
    _handle_uncaught()
    return error


def was_raised_together(error: BaseException) -> bool:
    """Whether all ranks raise this exception (`raised_together`)."""
    return _SHARED in getattr(error, "__dict__", {})


def let_rank_0_print(launcher: Launcher | None) -> None:
    """Wait until rank 0 has printed, because launchers end all when a process leaves."""
    if launcher is not None and launcher.rank:
        time.sleep(PRINTING_SECONDS)


def shown_by_rank_0(rank: int, error: Error) -> Error:
    """Mark an exception that all ranks raise and rank 0 prints."""
    error.__dict__[_SHARED] = rank
    if rank:
        _handle_uncaught()
    return error


def _handle_uncaught() -> None:
    if sys.excepthook is not _print_once:
        this_process.hook = sys.excepthook
        sys.excepthook = _print_once


def _print_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Handle uncaught exceptions: one rank prints."""
    marks, show = getattr(error, "__dict__", {}), this_process.hook or sys.__excepthook__
    if this_process.forked:
        show(kind, error, trace)
        return
    if marks.get(_SHARED) or (_APART in marks and _another_prints(marks[_APART])):
        raise SystemExit(0)
    show(kind, error, trace)
    if _APART in marks:
        _tell_all()
        end_job(CecError.exit_code)


def _another_prints(place: int) -> bool:
    """Wait for the ranks before this one; whether one of them has printed the error."""
    from mpi4py import MPI

    patience, due = Patience(), time.monotonic() + APART_SECONDS + place * MORE_APART_SECONDS
    while place and time.monotonic() < due:
        if MPI.COMM_WORLD.Iprobe(tag=_PRINTED):
            time.sleep(PRINTING_SECONDS)  # the abort ends this process first
            return True
        patience.pause()
    return False


def _tell_all() -> None:
    """Tell all other ranks that the error is printed, without waiting for them."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    others = (rank for rank in range(world.size) if rank != world.rank)
    sent = [world.Isend(b"", rank, _PRINTED) for rank in others]
    this_process.kept.append(sent)  # some ranks may never receive it
    due = time.monotonic() + TELLING_SECONDS
    while time.monotonic() < due and not all(request.Test() for request in sent):
        time.sleep(0.01)


@contextmanager
def ending_the_job(
    comm: MPI.Intracomm, known: type[BaseException] | tuple[()] = CecError
) -> Iterator[None]:
    """End the job on an exception of one rank, so that the others do not hang.

    An error of MPI is taken for the loss of a rank, which one rank reports. The exit code is 2 for
    too little memory, otherwise 1 from rank 0 and 3 from others. Exceptions that all ranks raise
    pass: those of the classes `known`, and those marked by `raised_together`.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, known) or was_raised_together(error):
            raise
        lost = is_mpi_error(error)
        if lost:
            give_up_start(error)
        log.critical("rank %d ends the job", comm.rank, exc_info=True)
        if lost:
            leave_after_a_loss(comm.rank, comm.size, error)
        shortage = shortage_of(error)
        if shortage is not None:
            tell(f"cec-mpi: error: rank {comm.rank} on {socket.gethostname()}: {shortage}")
            flush()
            end_job(shortage.exit_code)
        tell(f"cec-mpi: rank {comm.rank} on {socket.gethostname()} failed\n{_traceback_of(error)}")
        flush()
        end_job(1 if comm.rank == 0 else FAILED_MACHINE)


@contextmanager
def starting_together() -> Iterator[None]:
    """End this process on an error of MPI before all ranks have met."""
    try:
        yield
    except BaseException as error:
        if is_mpi_error(error):
            give_up_start(error)
        raise


def shortage_of(error: BaseException) -> ShortageError | None:
    """Return the error to raise instead if it comes of too little memory, else None."""
    if isinstance(error, MemoryError) or words_of(error).endswith(_TOO_LITTLE):
        return ShortageError(f"too little memory{words_of(error)}")
    return None


def words_of(error: BaseException) -> str:
    """Return the text of an error after a colon; empty if it has none, or cannot be converted."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f": {printable(text)}" if text else ""


def _traceback_of(error: BaseException) -> str:
    return printable("".join(traceback.format_exception(error)).rstrip("\n"), kept="\n\t")


def as_cec_error(error: Exception) -> CecError:
    """Return an exception as a `CecError`.

    Errors of files become `InputError`, too little memory becomes `ShortageError`. The traceback of
    an unexpected error is printed.
    """
    if isinstance(error, CecError):
        return error
    if isinstance(error, OSError):
        if error.filename is None and not _has_working_directory():
            return InputError("the working directory has been removed: change to another one")
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if (shortage := shortage_of(error)) is not None:
        return shortage
    log.critical("unexpected error", exc_info=error)
    tell(_traceback_of(error))
    return CecError(f"{type(error).__name__}{words_of(error)}")


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def complain_unexpected(error: BaseException) -> None:
    """Print the traceback of an unexpected error, and one message."""
    tell(_traceback_of(error))
    complain(f"unexpected {type(error).__name__}{words_of(error)}")


def complain(error: object) -> None:
    """Print one message."""
    tell(f"cec-mpi: error: {one_message(error)}")


@dataclass(frozen=True)
class Failure:
    """An exception of another process.

    Attributes
    ----------
    kinds : tuple of (str, str)
        Module and name of its class and of the bases of that.
    text : str
    exit_code : int
        Of a `CecError` or `SystemExit`, otherwise 1.
    """

    kinds: tuple[tuple[str, str], ...]
    text: str
    exit_code: int

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception.

        Examples
        --------
        >>> Failure.of(InputError("no such store")).error()
        InputError('no such store')
        """
        kinds = tuple((base.__module__, base.__qualname__) for base in type(error).__mro__)
        if isinstance(error, SystemExit) and isinstance(error.code or 0, int):
            return cls(kinds, "", int(error.code or 0))
        (text,) = error.args if len(error.args) == 1 else (None,)
        if not isinstance(text, str):
            text = words_of(error).removeprefix(": ")
        return cls(kinds, text, error.exit_code if isinstance(error, CecError) else 1)

    def error(self) -> BaseException:
        """Return the exception with this text.

        Its class is that of the other process if this process has it, and no module is imported.
        Otherwise it is a `CecError`.
        """
        found = [_loaded_class(module, name) for module, name in self.kinds]
        if found[0] is SystemExit:
            return SystemExit(self.text or self.exit_code)
        kind, text = found[0], self.text
        if kind is None:
            kind = next((base for base in found if base and issubclass(base, CecError)), None)
        if kind is None:
            kind, text = CecError, f"{self.kinds[0][1]}: {self.text}"
        error = kind.__new__(kind, text)
        error.args = (text,) if text else ()
        if isinstance(error, CecError):
            error.exit_code = self.exit_code
        return error


def _loaded_class(module: str, name: str) -> type[BaseException] | None:
    """Return a class of exceptions of a module that is loaded."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
