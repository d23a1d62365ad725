"""Exceptions that several ranks raise: where nobody catches them, they are printed once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cec_mpi.errors import CecError
from cec_mpi.processes.ending.leaving import end_job, was_forked
from cec_mpi.processes.launcher import Launcher
from cec_mpi.processes.waiting import Patience

if TYPE_CHECKING:
    from mpi4py import MPI

Error = TypeVar("Error", bound=BaseException)

PRINTING_SECONDS = 3.0  # that rank 0 has, without MPI, to say why all leave
_APART_SECONDS, _MORE_SECONDS = 2.0, 0.3  # until a rank prints what others raise too, perhaps
_SHARED = "_raised_on_all_ranks"  # with this rank
_APART = "_raised_on_some_ranks"  # with the place in the order in which they print

_PRINTED = 32_767  # a tag: the largest that every MPI has
_TELLING_SECONDS = 0.5  # for a word to be on its way

_sent: list[Any] = []  # requests: those who have gone on never take theirs
_hooks: list[Callable[..., Any]] = []  # that was there before ours


def raised_together(comm: MPI.Intracomm, error: Error) -> Error:
    """Mark an exception that all ranks raise, so that a program shows it once.

    Where nobody catches it, rank 0 alone prints it, and leaves with an exit code that is
    not 0.
    """
    return shown_by_rank_0(comm.rank, error)


def raised_apart(place: int, error: Error) -> Error:
    """Mark an exception that several ranks may raise alike, and cannot tell each other.

    Where nobody catches it, it is printed once, and the job ends with exit code 1.

    Parameters
    ----------
    place : int
        Of this rank among those that may raise it: the first one prints at once, and the
        others only if the job has not ended until then.
    error : BaseException
    """
    error.__dict__[_APART] = place
    _handle_uncaught()
    return error


def was_raised_together(error: BaseException) -> bool:
    """Whether all ranks raise this exception (`raised_together`)."""
    return _SHARED in getattr(error, "__dict__", {})


def let_rank_0_print(launcher: Launcher | None) -> None:
    """Wait for it, without MPI: the first process to leave makes launchers end the others."""
    if launcher is not None and launcher.rank:
        time.sleep(PRINTING_SECONDS)


def shown_by_rank_0(rank: int, error: Error) -> Error:
    """Mark an exception that all ranks raise, and that the one with rank 0 is to print."""
    error.__dict__[_SHARED] = rank
    if rank:
        _handle_uncaught()
    return error


def _handle_uncaught() -> None:
    if sys.excepthook is not _print_once:
        _hooks.append(sys.excepthook)
        sys.excepthook = _print_once


def _print_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """As `sys.excepthook`: where rank 0 prints, it gives the launcher its code too."""
    marks = getattr(error, "__dict__", {})
    if was_forked():
        _hooks[-1](kind, error, trace)
        return
    if marks.get(_SHARED) or (_APART in marks and _another_prints(marks[_APART])):
        raise SystemExit(0)
    _hooks[-1](kind, error, trace)
    if _APART in marks:
        _tell_all()
        end_job(CecError.exit_code)


def _another_prints(place: int) -> bool:
    """Wait for the ranks before this one: whether one of them has printed the error."""
    from mpi4py import MPI

    patience, due = Patience(), time.monotonic() + _APART_SECONDS + place * _MORE_SECONDS
    while place and time.monotonic() < due:
        if MPI.COMM_WORLD.Iprobe(tag=_PRINTED):
            time.sleep(PRINTING_SECONDS)  # the abort ends this process first
            return True
        patience.pause()
    return False


def _tell_all() -> None:
    """Tell all other ranks that it is printed, without waiting for them."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    _sent.extend(
        world.Isend(b"", rank, _PRINTED) for rank in range(world.size) if rank != world.rank
    )
    due = time.monotonic() + _TELLING_SECONDS
    while time.monotonic() < due and not all(request.Test() for request in _sent):
        time.sleep(0.01)
