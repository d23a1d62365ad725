"""Exit of processes: orderly, or by an exception.

**Orderly**, with exit code 0 or that of an error: all ranks know the outcome. Rank 0 prints one
message, exits last and returns the exit code; the others return 0 (`finalize_mpi`). An error that
all ranks raise is marked by `mark_shared_error`.

**By an exception** on one rank: the other ranks and MPI_Finalize would wait for it forever.
Therefore the rank prints the error, waits until the launcher has read it, and aborts the job
(`abort_job`). Ranks other than 0 wait for their turn before they print, so that the message and
exit code of rank 0 take precedence. Commands use `abort_on_error`; programs use the excepthook that
is set if a launcher has started the process (`abort_job_on_exceptions`).

=====================================  =========  =================================================
event                                  exit code  handled by
=====================================  =========  =================================================
exception on one rank                  its own    `abort_on_error`: 3 for a machine of a command, 2
                                                  for too little memory, 130 for Ctrl-C, else 1
ranks do not start in time             3          `limit_start`, in a thread, because MPI may hang
one rank calls sys.exit(code) early    its own    `_abort_if_ranks_wait`, if others do not exit
MPI reports a lost rank                3          `abort_on_error` (mpirun --with-ft ulfm)
a mapped shard is truncated            3          `files.mapping`; the launcher ends the others
a process is killed                    launcher   the launcher ends the others
the launcher is killed                 3          `exit_with_launcher`
exit of a fork of a process with MPI   its own    `skip_mpi_in_forks`
=====================================  =========  =================================================

In an elastic run no process waits for the exit of another. The master orders machines to leave, and
they exit with 0; machines that have lost the master exit with 3. `kill_ranks` kills those on this
node that do not exit in time, and ``session.elastic`` those that it has started. If a machine on
another node does not exit, the master aborts the job with 3.

SIGTERM or SIGUSR1 ends a run on rank 0 with exit code 6 at the next step, and makes a machine leave
(`SignalRecorder`). A second SIGTERM on rank 0, and Ctrl-C, have their usual effect.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from cec_mpi.errors import CecError, InputError, MachineError, ShortageError
from cec_mpi.runtime.processes.launcher import (
    INTEL,
    MPICH,
    OPEN_MPI,
    Launcher,
    detect_launcher,
    detect_rank,
    job_id,
    launcher_of_ranks,
    loss_policy,
)
from cec_mpi.runtime.times import (
    ABORT_SECONDS,
    EXIT_SECONDS,
    MAX_PRINT_TURNS,
    OUTPUT_DRAIN_SECONDS,
    PARENT_POLL_SECONDS,
    PRINT_SECONDS,
    PRINT_TURN_SECONDS,
    RANK_0_EXIT_DELAY,
    SRUN_TIMEOUT,
)
from cec_mpi.text import format_message, plural, printable
from cec_mpi.text.terminal import discard_output, pop_output_error, print_stderr

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)

Error = TypeVar("Error", bound=BaseException)

_SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_SHARED_ATTRIBUTE = "_raised_on_all_ranks"  # of an error; its value is the rank of this process
_MEMORY_ERRORS = "can't start new thread", "failed to map segment from shared object"


@dataclass
class ThisProcess:
    """State of this process that affects its exit: `this_process`.

    Attributes
    ----------
    is_elastic : bool
        Whether it has taken part in an elastic run; then its exit does not abort the job.
    is_forked : bool
        Whether it was forked from a process with MPI.
    exit_code : int
        Exit code of the last call of `sys.exit`, since `record_exit_codes`.
    ranks_started : bool
        Whether all ranks have started; then they know the outcome of this process.
    start_limit : threading.Timer or None
        Time limit of the start, until all ranks have started.
    keep_alive : list
        Objects that must live as long as the process: requests and buffers that MPI may still use,
        and in a forked process the operator of its parent.
    operator_groups : list of mpi4py.MPI.Group
        Groups of processes with an open lockstep operator.
    finished_connection_files : list
        Connection files of finished elastic runs that this process has served as a rank.
    """

    is_elastic: bool = False
    is_forked: bool = False
    exit_code: int = 0
    ranks_started: bool = False
    start_limit: threading.Timer | None = None
    keep_alive: list[Any] = field(default_factory=list)
    operator_groups: list[MPI.Group] = field(default_factory=list)
    finished_connection_files: list[Any] = field(default_factory=list)


this_process = ThisProcess()


# --- exit by an exception -------------------------------------------------------------------------


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an exception."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit):
        code = error.code
        return 0 if code is None else code if isinstance(code, int) else CecError.exit_code
    if as_shortage_error(error) is not None:
        return ShortageError.exit_code
    return error.exit_code if isinstance(error, CecError) else CecError.exit_code


def mark_shared_error(rank: int, error: Error) -> Error:
    """Mark an exception that all ranks raise, so that only rank 0 prints it if it is uncaught."""
    error.__dict__[_SHARED_ATTRIBUTE] = rank
    return error


def is_shared_error(error: BaseException) -> bool:
    """Return whether all ranks raise this exception."""
    return _SHARED_ATTRIBUTE in getattr(error, "__dict__", {})


@cache
def abort_job_on_exceptions() -> None:
    """Make an uncaught exception abort the job if a launcher has started several processes."""
    if launcher_of_ranks() is None:
        return
    print_exception = sys.excepthook

    def exit_after_exception(type_: type[BaseException], error: BaseException, trace: Any) -> None:
        if this_process.is_forked:
            print_exception(type_, error, trace)
            exit_now(exit_code_of(error))
        is_shared, rank = is_shared_error(error), detect_rank()
        if is_shared and error.__dict__[_SHARED_ATTRIBUTE]:
            raise SystemExit(0)
        if not is_shared:
            await_turn(rank)
        print_exception(type_, error, trace)
        if is_shared or this_process.is_elastic:
            raise SystemExit(exit_code_of(error))
        abort_job(exit_code_of(error))

    sys.excepthook = exit_after_exception
    record_exit_codes()
    atexit.register(_abort_if_ranks_wait)


def _abort_if_ranks_wait() -> None:
    """Abort the job if this rank exits with a code other than 0 and the others do not exit.

    Otherwise they would wait for this rank, and this rank for them in MPI_Finalize.
    """
    code, rank = this_process.exit_code, detect_rank()
    if not code or this_process.ranks_started or this_process.is_forked or not is_mpi_running():
        return

    def abort() -> None:
        print_error(f"rank {rank} exited with exit code {code} while other ranks wait for it")
        abort_job(code, by_mpi=False)

    timer = threading.Timer(EXIT_SECONDS, abort)
    timer.daemon = True
    with suppress(RuntimeError):  # Python 3.12.0 and 3.12.1 cannot start threads at exit
        timer.start()
        mpi_function("MPI_Finalize")()


@contextmanager
def abort_on_error(
    comm: MPI.Intracomm, shared_errors: type[BaseException] | tuple[()] = CecError
) -> Iterator[None]:
    """Abort the job on an exception of one rank, because the others would wait for it.

    The exit code is 3 if MPI reports a lost rank, 2 for too little memory, otherwise that of the
    exception on rank 0 (`exit_code_of`) and 3 on other ranks. Exceptions that all ranks raise are
    passed on: `shared_errors`, and marked ones.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, shared_errors) or is_shared_error(error):
            raise
        report_and_abort(comm, error)


def report_and_abort(comm: MPI.Intracomm, error: BaseException) -> NoReturn:
    """Print an exception of this rank and abort the job (see `abort_on_error`)."""
    log.critical("rank %d aborts the job", comm.rank, exc_info=error)
    code = exit_code_of(error) if comm.rank == 0 else MachineError.exit_code
    shortage, this_rank = as_shortage_error(error), f"rank {comm.rank} on {socket.gethostname()}"
    text = f"{this_rank} failed\n{_traceback_of(error)}"
    if is_mpi_error(error):
        code = MachineError.exit_code
        text = (
            f"error: one of {plural(comm.size, 'rank')} was lost ({error}), and the others cannot "
            "continue in lockstep; with --elastic a run continues"
        )
    elif shortage is not None:
        code, text = shortage.exit_code, f"error: {this_rank}: {shortage}"
    elif isinstance(error, CecError):
        text = f"error: {format_message(error)}"
    await_turn(comm.rank)
    print_stderr(f"cec-mpi: {text}")
    abort_job(code or CecError.exit_code)


def await_turn(rank: int) -> None:
    """Wait for the turn of this rank to print; rank 0 prints first, and then aborts the job."""
    time.sleep(PRINT_TURN_SECONDS * min(rank, MAX_PRINT_TURNS))


def abort_job(code: int, by_mpi: bool = True) -> NoReturn:
    """Abort all processes of the job with an exit code.

    Parameters
    ----------
    code : int
    by_mpi : bool
        Whether MPI can be used.
    """
    flush()
    time.sleep(OUTPUT_DRAIN_SECONDS)
    launcher, module = detect_launcher(), sys.modules.get("mpi4py.MPI")
    # With --with-ft ulfm other ranks survive MPI_Abort and hang in MPI.
    ranks_survive_abort = (
        launcher and launcher.implementation == OPEN_MPI and loss_policy(launcher).others_continue
    )
    if by_mpi and not ranks_survive_abort and is_mpi_running():
        # With a duplicated communicator Intel MPI's launcher returned 255 in 19 of 20 jobs.
        assert module is not None
        module.COMM_WORLD.Abort(code)
    elif launcher is not None:
        _abort_by_launcher(launcher, code)
        if loss_policy(launcher).others_continue:
            kill_ranks(set(range(launcher.size)) - {launcher.rank})
        os._exit(code)
    time.sleep(ABORT_SECONDS)  # MPICH's Abort returns after it has notified the launcher
    os._exit(code)


def abort_job_at_exit() -> None:
    """Abort all processes of the job when this process exits, but not when a fork of it does."""
    process = os.getpid()

    def abort() -> None:
        if os.getpid() == process:
            abort_job(MachineError.exit_code, by_mpi=False)

    atexit.register(abort)


def _abort_by_launcher(launcher: Launcher, code: int) -> None:
    """Make the launcher end all processes with an exit code, without MPI.

    Most launchers do so if a process exits with an exit code other than 0. Those of MPICH and Intel
    MPI leave the others in MPI_Init, or return another code, unless they receive this command.
    """
    if launcher.implementation in (MPICH, INTEL):
        with suppress(KeyError, ValueError, OSError):
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=%d\n" % code)
            time.sleep(ABORT_SECONDS)
    if launcher.is_srun:  # leaves the others in MPI_Init
        import subprocess  # imported here, because few ranks start a program

        with suppress(KeyError, OSError, subprocess.SubprocessError):
            step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
            subprocess.run(["scancel", step], timeout=SRUN_TIMEOUT, check=False)


def is_mpi_running() -> bool:
    """Return whether MPI is initialized and not finalized, without starting MPI."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and module.Is_initialized() and not module.Is_finalized()


def mpi_function(name: str) -> Any:
    """Return a function of the MPI library that runs without Python's global interpreter lock.

    mpi4py holds the lock while it initializes and finalizes MPI.
    """
    from mpi4py import MPI

    return getattr(ctypes.CDLL(MPI.__file__), name)


def is_mpi_error(error: BaseException) -> bool:
    """Return whether an exception comes from MPI, for example after the loss of a rank."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and isinstance(error, module.Exception)


def limit_start(seconds: float, ranks: int, rank: int) -> None:
    """Abort the job unless `end_start_limit` is called within this number of seconds."""

    def give_up() -> None:
        await_turn(rank)
        if this_process.start_limit is not timer:  # all ranks have started in the meantime
            return
        problem = f"MPI has not started within {seconds:g} s"
        if ranks > 1:
            problem = f"{ranks} ranks have not connected within {seconds:g} s"
        if rank <= MAX_PRINT_TURNS:
            print_error(
                f"{problem}: a rank may have been killed or suspended, may not have made this "
                "call, or nodes cannot connect to each other; --start-timeout SECONDS "
                "(start_timeout in Python) allows more time"
            )
        abort_job(MachineError.exit_code, by_mpi=False)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), give_up)
    timer.daemon = True
    this_process.start_limit = timer
    timer.start()


def end_start_limit() -> None:
    """Cancel the time limit of the start, because all ranks have started."""
    this_process.ranks_started = True
    timer, this_process.start_limit = this_process.start_limit, None
    if timer is not None:
        timer.cancel()


@cache
def exit_with_launcher() -> None:
    """Make this process exit soon after its launcher is killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(MachineError.exit_code)

    if launcher_of_ranks():
        threading.Thread(target=watch, daemon=True, name="launcher").start()


def kill_ranks(ranks: Collection[int]) -> set[int]:
    """Kill the processes with these ranks on this node; return the ranks that were killed.

    They are identified by their environment, because process IDs may belong to another namespace.
    """
    job, killed = job_id(), set[int]()
    if not (ranks and job):
        return killed
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            entries = os.fsdecode((directory / "environ").read_bytes()).split("\0")
        except OSError:  # it has exited, or belongs to another user
            continue
        environ = dict(entry.partition("=")[::2] for entry in entries)
        launcher = detect_launcher(environ)
        if launcher is not None and launcher.rank in ranks and job_id(environ) == job:
            with suppress(OSError):
                os.kill(int(directory.name), signal.SIGKILL)
                killed.add(launcher.rank)
    return killed


# --- orderly exit ---------------------------------------------------------------------------------


def finalize_mpi(comm: MPI.Intracomm, code: int) -> int:
    """Finalize MPI and return the exit code of this rank, which is 0 except on rank 0 (collective).

    If several ranks exited at once with another code, Open MPI's launcher hung in 5 of 1,631 runs
    and printed an error in 61; with this function it did so in none of 1,629.
    """
    from mpi4py import MPI

    if comm.size == 1:
        end_start_limit()
        return code
    code = 0 if comm.rank else code
    try:
        comm.Barrier()
        end_start_limit()
        MPI.Finalize()
    except MPI.Exception:  # a rank was lost after the run: MPI_Finalize would wait for it
        time.sleep(0 if comm.rank else RANK_0_EXIT_DELAY)
        exit_now(code)
    if code:
        time.sleep(RANK_0_EXIT_DELAY)
    return code


def exit_now(code: int) -> NoReturn:
    """Exit at once, without finalizing MPI."""
    flush()
    os._exit(code)


def exit_despite_threads(code: int) -> None:
    """Exit at once if threads of a task still run, because Python would wait for them."""
    others = set(threading.enumerate()) - {threading.main_thread()}
    if any(not thread.daemon for thread in others):
        if launcher_of_ranks():  # MPICH's launcher kills the others if rank 0 exits first
            time.sleep(PRINT_SECONDS)
        exit_now(code)


def wait_for_rank_0(launcher: Launcher | None) -> None:
    """Wait until rank 0 has printed, because launchers end all processes when one exits."""
    if launcher is not None and launcher.rank:
        time.sleep(PRINT_SECONDS)


@cache
def skip_mpi_in_forks() -> None:
    """Make processes that are forked from now on exit without MPI_Finalize.

    In a fork MPI_Finalize would hang, or close the connections of this process.
    """
    record_exit_codes()

    def mark_fork() -> None:
        this_process.is_forked, this_process.exit_code = True, 0

    os.register_at_fork(after_in_child=mark_fork)


@cache
def record_exit_codes() -> None:
    """Make `sys.exit` record its exit code, which exit handlers cannot see otherwise."""
    original = sys.exit

    def record_exit(status: Any = None, /) -> NoReturn:
        this_process.exit_code = exit_code_of(SystemExit(status))
        original(status)

    sys.exit = record_exit


def _exit_fork_at_exit() -> None:
    """Exit a forked process after all other exit handlers, without MPI_Finalize."""
    if not this_process.is_forked:
        return
    for file in gc.get_objects():
        if isinstance(file, io.TextIOWrapper | io.BufferedWriter) and not file.closed:
            with suppress(OSError, ValueError):
                file.flush()
    exit_now(this_process.exit_code)


atexit.register(_exit_fork_at_exit)  # the first registered handler is called last


def exit_from_fork(error: BaseException) -> NoReturn:
    """Exit a process that a task has forked, because its exception must not end the run."""
    if not isinstance(error, SystemExit):
        print_stderr(_traceback_of(error))
    exit_now(exit_code_of(error))


def flush() -> OSError | None:
    """Flush standard output and standard error.

    Returns
    -------
    OSError or None
        Error of standard output, whose remaining content is discarded.
    """
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # no stream remains for a message
        discard_output(sys.stderr)
    return pop_output_error()


# --- messages -------------------------------------------------------------------------------------


def as_shortage_error(error: BaseException) -> ShortageError | None:
    """Return a `ShortageError` if too little memory caused the error, else None."""
    if isinstance(error, MemoryError) or error_suffix(error).endswith(_MEMORY_ERRORS):
        return ShortageError(f"too little memory{error_suffix(error)}")
    return None


def error_suffix(error: BaseException) -> str:
    """Return a colon and the text of an error; empty if the error has no text."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f": {printable(text)}" if text else ""


def _traceback_of(error: BaseException) -> str:
    return printable("".join(traceback.format_exception(error)).rstrip("\n"), keep="\n\t")


def as_cec_error(error: Exception) -> CecError:
    """Convert an exception to a `CecError`.

    Errors of files become `InputError`, and memory errors `ShortageError`. The traceback of
    an unexpected error is printed.
    """
    if isinstance(error, CecError):
        return error
    if isinstance(error, OSError):
        if error.filename is None and not _has_working_directory():
            return InputError("the working directory was removed: change to another directory")
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if (shortage := as_shortage_error(error)) is not None:
        return shortage
    log.critical("unexpected error", exc_info=error)
    print_stderr(_traceback_of(error))
    return CecError(f"{type(error).__name__}{error_suffix(error)}")


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def print_unexpected_error(error: BaseException) -> None:
    """Print the traceback of an unexpected error, then a one-line message."""
    print_stderr(_traceback_of(error))
    print_error(f"unexpected {type(error).__name__}{error_suffix(error)}")


def print_error(error: object) -> None:
    """Print an error as one line."""
    print_stderr(f"cec-mpi: error: {format_message(error)}")


def exit_on_signal(number: int, _: object) -> NoReturn:
    """Handle a signal by exiting, so that ``with`` statements remove incomplete files."""
    sys.exit(128 + number)


_active_recorders: list[SignalRecorder] = []


@cache
def _restore_signals_in_forks() -> None:
    """Give forked processes the signal handlers from before this package set its own.

    Python calls its handlers between bytecodes: a child that waits for a lock would not end. Python
    also discards signals that arrive before the child has begun.
    """
    numbers = *_SHUTDOWN_SIGNALS, signal.SIGHUP
    masks = threading.local()  # signal masks of threads that fork

    def block() -> None:
        masks.previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.previous)

    def restore() -> None:
        while _active_recorders:
            _active_recorders[-1].__exit__()
        for number in numbers:
            if signal.getsignal(number) is exit_on_signal:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


class SignalRecorder:
    """Context manager that records SIGTERM and SIGUSR1 instead of ending the process.

    Parameters
    ----------
    exit_on_second_sigterm : bool
        Whether a second SIGTERM ends the process.
    include_hangup : bool
        Whether SIGHUP is also recorded, unless it is ignored.
    ignore_interrupts : bool
        Whether SIGINT is ignored.
    on_first_signal : callable, optional
        Called with the first signal, in the signal handler.

    Attributes
    ----------
    first_signal : signal.Signals or None
        The first signal that was received.
    notice : str
        Description of a preemption notice, after which this process must leave; empty without one.
    must_end : bool
        Whether a second SIGTERM was received and ends the process.

    Examples
    --------
    >>> with SignalRecorder() as signals:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> signals.first_signal.name
    'SIGTERM'
    """

    def __init__(
        self,
        exit_on_second_sigterm: bool = False,
        include_hangup: bool = False,
        ignore_interrupts: bool = False,
        on_first_signal: Callable[[signal.Signals], None] | None = None,
    ) -> None:
        self.first_signal: signal.Signals | None = None
        self.notice = ""
        self._on_first_signal = on_first_signal
        self.must_end = False
        self._exit_on_second_sigterm = exit_on_second_sigterm
        self._signals: tuple[signal.Signals, ...] = _SHUTDOWN_SIGNALS
        if include_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._signals += (signal.SIGHUP,)
        self._ignore_interrupts = ignore_interrupts
        self._sigterm_count = 0
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalRecorder:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread handles signals
        _restore_signals_in_forks()
        _active_recorders.append(self)
        for number in self._signals:
            self._previous_handlers[number] = signal.signal(number, self._record) or signal.SIG_DFL
        if self._ignore_interrupts:
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._previous_handlers[signal.SIGINT] = previous or signal.SIG_DFL
        return self

    def __exit__(self, *_: object) -> None:
        if self in _active_recorders:
            _active_recorders.remove(self)
        while self._previous_handlers:
            signal.signal(*self._previous_handlers.popitem())

    def _record(self, number: int, _: FrameType | None) -> None:
        if self.first_signal is None:
            self.first_signal = signal.Signals(number)
            if self._on_first_signal is not None:
                self._on_first_signal(self.first_signal)
        self._sigterm_count += number == signal.SIGTERM
        if self._exit_on_second_sigterm and self._sigterm_count > 1:
            self.must_end = True
            self.__exit__()
            signal.raise_signal(number)
