"""Workarounds for faults of MPI libraries and launchers.

There is one function for each fault; it can be removed when the fault is repaired. The faults were
seen with Open MPI 5.0, MPICH 5.0 and Intel MPI 2021 of PyPI, and mpi4py 4.1, unless another version
is named.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.processes.launcher import INTEL, MPICH, OPEN_MPI, detect_launcher
from cec_mpi.processes.library import library, library_file
from cec_mpi.times import ENDING_SECONDS, LAST_SECONDS, MPI_INIT_SECONDS, READING_SECONDS

log = logging.getLogger(__name__)


_M_PERTURB = -6  # of malloc.h


@contextmanager
def zeros_from_malloc() -> Iterator[None]:
    """Make malloc return zeros in the ``with``: for MPI_Init of MPICH under Slurm.

    MPICH 5 sends addresses with uninitialised bytes to Slurm's PMI server. It shortens zeros; with
    other bytes lines are often longer than the 1,024 bytes that the server reads at once, and
    MPI_Init aborts or hangs.

    In other cases malloc is not changed: a library would write to all memory that it reserves,
    which takes a single process of Intel MPI 1.2 s, and gigabytes of memory.
    """
    launcher, libc = detect_launcher(), ctypes.CDLL(None)
    wanted = library().maker == MPICH or (launcher is not None and launcher.is_srun)
    if not (wanted and hasattr(libc, "mallopt")):  # of glibc alone
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


def init_mpi() -> None:
    """Call MPI_Init_thread while other threads of Python can run.

    mpi4py holds the interpreter's lock in ``MPI.Init_thread``: no thread could end a start that
    hangs.
    """
    from mpi4py import MPI

    path = library_file(Path("/proc/self/maps").read_text())
    try:
        init = ctypes.CDLL(str(path)).MPI_Init_thread if path else None
    except (OSError, AttributeError):
        init = None
    if init is None:
        log.warning("the file of the MPI library is not found: a start that hangs is not ended")
        MPI.Init_thread()
        return
    provided = ctypes.c_int()
    init.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int)]
    error = init(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(provided))
    if error != MPI.SUCCESS:
        raise InputError(f"MPI cannot be started: MPI_Init_thread has returned error {error}")
    for comm in (MPI.COMM_SELF, MPI.COMM_WORLD):  # as mpi4py does: errors become exceptions
        comm.Set_errhandler(MPI.ERRORS_RETURN)


def srun_has_started_open_mpi() -> bool:
    """Whether this process uses Open MPI and was started by srun."""
    launcher = detect_launcher()
    return launcher is not None and launcher.is_srun and library().maker == OPEN_MPI


@cache
def await_others() -> None:
    """Wait a moment for other processes to return from MPI_Init, before the first message.

    In Open MPI 5 a process may return while others cannot receive a message yet, and end with a
    segmentation fault: 5 of 120 starts with ``srun --mpi=pmix``, and none of 120 after a pause of
    0.1 s (https://github.com/open-mpi/ompi/issues/12495). With mpirun it was none of 60 on four
    hosts.
    """
    if srun_has_started_open_mpi():
        time.sleep(MPI_INIT_SECONDS)


def finalize_in_order(rank: int, code: int) -> int:
    """Collective: end MPI on all ranks; only rank 0 gives the launcher an exit code other than 0.

    Open MPI's launcher hung or complained if several ranks left with such a code at once: 5 and 61
    times in 1,631 runs, and never in 1,629 with this function.
    """
    from mpi4py import MPI

    MPI.Finalize()
    if rank or not code:
        return 0
    time.sleep(LAST_SECONDS)
    return code


def abort_world(code: int) -> None:
    """Abort COMM_WORLD, which ends all processes of the job with this exit code.

    With a duplicated communicator Intel MPI's launcher returned 255 in 19 of 20 jobs, and MPICH's 9
    in one. MPICH's Abort returns after it has told the launcher.
    """
    from mpi4py import MPI

    time.sleep(READING_SECONDS)
    MPI.COMM_WORLD.Abort(code)
    time.sleep(ENDING_SECONDS)


def abort_by_launcher(code: int) -> None:
    """Make the launcher end all processes with this exit code, without MPI.

    Most launchers end all processes if one leaves with an exit code other than 0, and return that
    code. Those of MPICH and Intel MPI return another code unless they get this command. (MPI_Abort
    while others are in MPI_Finalize crashed Open MPI's launcher.)
    """
    launcher = detect_launcher()
    if launcher is not None and launcher.maker in (MPICH, INTEL):
        with suppress(KeyError, ValueError, OSError):
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=%d\n" % code)
            time.sleep(ENDING_SECONDS)
