"""Errors that one rank finds are told to all, and rank 0 alone prints them.

A rank that raises leaves the others waiting for ever. So all ranks raise, meet, and leave with
the same code, or the job is ended.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from cec_mpi.errors import CecError, InputError, MachineError
from cec_mpi.processes.ending import (
    all_have_met,
    flush,
    is_limited,
    leave_process,
    leave_with_the_job,
    leaves_without_mpi,
    takes_the_word,
    watch_start,
)
from cec_mpi.processes.failing import (
    as_cec_error,
    complain,
    complain_unexpected,
    ending_the_job,
    let_rank_0_print,
    raised_together,
    shown_by_rank_0,
)
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.processes.library import is_mpi_error
from cec_mpi.processes.start import (
    check_packages,
    check_world,
    meet,
    seconds_to_meet,
    start_mpi,
)
from cec_mpi.processes.workarounds import await_others, finalize_in_order
from cec_mpi.times import MEETING_SECONDS, PRINTING_SECONDS

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
log = logging.getLogger(__name__)


def run_together(body: Callable[[MPI.Intracomm], int], start_timeout: float | None = None) -> int:
    """Run `body` on all ranks, and end MPI: returns the code that this rank leaves with.

    Rank 0's code, which the launcher passes on, is that of `body`.

    An exception that all ranks raise is printed once, a `CecError` in one line. Any other
    one ends the whole job: with exit code 1 when it comes from rank 0, else 3.

    After `start_timeout` seconds (see `seconds_to_meet`) `body` has to have called
    `meet`, or have left.
    """
    launcher = detect_launcher()
    try:
        comm = start_mpi(start_timeout)
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
    except BaseException as error:
        if comm.rank == 0:
            complain_unexpected(error)
        code = CecError.exit_code
    problem = flush()
    if problem is not None and not code:
        complain(f"standard output cannot be written: {problem.strerror}")
        code = InputError.exit_code
    if leaves_without_mpi():
        leave_process(comm.rank, code)
    try:
        comm.Barrier()
    except Exception as error:
        if is_mpi_error(error):  # a rank was lost when all was done: MPI_Finalize would wait for it
            leave_process(comm.rank, code)
        raise
    all_have_met()
    return finalize_in_order(comm.rank, code) if comm.size > 1 else code


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
        raise shown_by_rank_0(launcher.rank, error) from None
    await_others()
    try:
        check_packages(comm)
    except InputError as error:
        raise raised_together(comm, error) from None


@contextmanager
def all_coming(comm: MPI.Intracomm, start_timeout: float | None) -> Iterator[None]:
    """Collective: go on when all ranks have come, and let what follows meet them in time too.

    Where the start has a time limit already, as in `run_together`, it holds on.

    Raises
    ------
    MachineError
        In each rank that has come, when others have not in time. Leaving then ends the job.
    InputError
        `start_timeout` is no positive number.
    """
    if is_limited():
        yield
        return
    try:
        limit = seconds_to_meet(start_timeout, comm.size)
    except InputError as error:
        raise raised_together(comm, error) from None
    watch_start(limit + MEETING_SECONDS, comm.size, comm.rank)  # where MPI does not even answer
    try:
        meet(comm, limit)
    except MachineError as error:
        all_have_met()
        speaks = takes_the_word(comm.rank)
        if not speaks:
            time.sleep(PRINTING_SECONDS)
        leave_with_the_job(error.exit_code)
        raise shown_by_rank_0(0 if speaks else 1, error) from None
    watch_start(limit, comm.size, comm.rank)
    try:
        yield
    finally:
        all_have_met()


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
