"""An error on one rank of which the others know nothing: they are ended with it."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cec_mpi.errors import CecError, ShortageError
from cec_mpi.processes.ending.leaving import FAILED_MACHINE, end_job, flush
from cec_mpi.processes.ending.limit import give_up, is_limited, leave_after_a_loss
from cec_mpi.processes.ending.raising import was_raised_together
from cec_mpi.processes.library import is_mpi_error
from cec_mpi.terminal import tell
from cec_mpi.text import printable

if TYPE_CHECKING:
    from mpi4py import MPI

_TOO_LITTLE = "can't start new thread", "failed to map segment from shared object"

log = logging.getLogger(__name__)


@contextmanager
def ending_the_job(
    comm: MPI.Intracomm, known: type[BaseException] | tuple[()] = CecError
) -> Iterator[None]:
    """End the job on an exception that the other ranks do not know of, so that none hangs.

    An error of MPI is taken for the loss of a rank, which one rank reports.

    The exit code is 2 for too little memory, otherwise 1 when it comes from rank 0, else 3. What
    all ranks raise passes: what is `known` to be such, and what was `raised_together`.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, known) or was_raised_together(error):
            raise
        _give_up_while_starting(error)
        log.critical("rank %d ends the job", comm.rank, exc_info=True)
        if is_mpi_error(error):
            leave_after_a_loss(comm.rank, comm.size, error)
        shortage = shortage_of(error)
        if shortage is not None:
            tell(f"cec-mpi: error: rank {comm.rank} on {socket.gethostname()}: {shortage}")
            flush()
            end_job(shortage.exit_code)
        _tell_failure(comm, error)
        end_job(1 if comm.rank == 0 else FAILED_MACHINE)


@contextmanager
def starting_together() -> Iterator[None]:
    """End this process on an error of MPI before all have met: one is lost."""
    try:
        yield
    except BaseException as error:
        _give_up_while_starting(error)
        raise


def _give_up_while_starting(error: BaseException) -> None:
    if is_limited() and is_mpi_error(error):
        give_up(error)


def shortage_of(error: BaseException) -> ShortageError | None:
    """Return the error to raise instead if it comes of too little memory, else None."""
    if isinstance(error, MemoryError) or str(error).endswith(_TOO_LITTLE):
        return ShortageError(f"too little memory: {error}")
    return None


def _tell_failure(comm: MPI.Intracomm, error: BaseException) -> None:
    """Print which rank failed, and how."""
    tell(f"cec-mpi: rank {comm.rank} on {socket.gethostname()} failed\n{_traceback_of(error)}")
    flush()


def show_traceback(error: BaseException) -> None:
    """Print it to standard error."""
    tell(_traceback_of(error))


def _traceback_of(error: BaseException) -> str:
    return printable("".join(traceback.format_exception(error)).rstrip("\n"), kept="\n\t")
