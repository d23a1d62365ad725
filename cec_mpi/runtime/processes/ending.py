"""How processes end: normally, or by an exception.

**Normally**, with exit code 0, 4, 5, 6 or 8, or 2 for bad input: all ranks have the outcome. They
exit with 0; rank 0 exits last, prints one message, and returns the exit code (`leave_in_order`).
An error that all ranks raise is marked by `mark_shared_error`.

**By an exception** on one rank: the other ranks and MPI_Finalize would wait for it forever. So the
rank prints the error, waits until the launcher has read it, and aborts the job (`abort_job`). A
rank other than 0 waits for its turn before it prints: if several raise, rank 0's message and exit
code win. Commands do so in `abort_on_error`, programs in the excepthook that is set when a launcher
has started the process (`abort_job_on_exceptions`).

=====================================  ========  ==================================================
what happens                           code      where
=====================================  ========  ==================================================
an exception of one rank               its own   `abort_on_error`: 3 for a machine of a command, 2
                                                 for too little memory, 130 for Ctrl-C, else 1
ranks do not meet in time              3         `limit_start`, a thread, since MPI may hang
one rank calls sys.exit(code) before   its own   `_abort_if_ranks_wait`, if others do not leave
MPI reports a lost rank                3         `abort_on_error` (mpirun --with-ft ulfm)
a mapped shard is cut                  3         `files.mapping`; the launcher ends the others
a process is killed                    launcher  the launcher ends the others
the launcher is killed                 3         `end_with_launcher`
a process forked from one with MPI     its own   `leave_forks_without_mpi`
=====================================  ========  ==================================================

In an elastic run no process waits for another one to leave. The master tells machines to leave,
and they do so with 0; those that have lost it end with 3. `end_ranks` ends those on this node that
do not leave in time, and ``session.elastic`` those that it has started. If one on another node does
not leave, the master ends the job with 3 when it leaves.

SIGTERM or SIGUSR1 ends a run on rank 0 with exit code 6 at the next step, and warns a machine that
it must leave (`SignalRecorder`). A second SIGTERM on rank 0, and Ctrl-C, work as in any program.
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

from cec_mpi.errors import CecError, InputError, ShortageError
from cec_mpi.runtime.processes.launcher import (
    INTEL,
    MPICH,
    OPEN_MPI,
    Launcher,
    continuity,
    detect_launcher,
    job_id,
    launcher_of_ranks,
    rank_of_launcher,
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
from cec_mpi.text import one_message, plural, printable
from cec_mpi.text.terminal import discard_output, print_error_line, take_output_error

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)

Error = TypeVar("Error", bound=BaseException)

FAILED_MACHINE = 3  # exit code if a machine fails
INTERRUPTED = 128 + signal.SIGINT
_WARNINGS = (signal.SIGTERM, signal.SIGUSR1)
_SHARED = "_raised_on_all_ranks"  # with this rank
_MEMORY_ERRORS = "can't start new thread", "failed to map segment from shared object"


@dataclass
class ThisProcess:
    """The state of this process that decides how it ends: `this_process`.

    Attributes
    ----------
    is_elastic : bool
        Whether it has taken part in an elastic run: its end ends no other process.
    forked : bool
        Whether it was forked from a process with MPI.
    code : int
        Exit code of the last call of `sys.exit`, from `note_exit_codes` on.
    has_met : bool
        Whether it has met the other processes, which then know how it ends.
    start_limit : threading.Timer or None
        The time limit of a start, until all ranks have met.
    keep_alive : list
        Objects that must live as long as the process: requests and buffers that MPI may still use,
        and in a forked process the operator of its parent.
    operator_groups : list of mpi4py.MPI.Group
        Groups of processes that have an operator in lockstep.
    finished_runs : list
        Connection files of elastic runs that it has served as a rank.
    """

    is_elastic: bool = False
    forked: bool = False
    code: int = 0
    has_met: bool = False
    start_limit: threading.Timer | None = None
    keep_alive: list[Any] = field(default_factory=list)
    operator_groups: list[MPI.Group] = field(default_factory=list)
    finished_runs: list[Any] = field(default_factory=list)


this_process = ThisProcess()


# By an exception.


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an exception."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        code = error.code
        return 0 if code is None else code if isinstance(code, int) else CecError.exit_code
    if as_shortage_error(error) is not None:
        return ShortageError.exit_code
    return error.exit_code if isinstance(error, CecError) else CecError.exit_code


def mark_shared_error(rank: int, error: Error) -> Error:
    """Mark an exception that all ranks raise: rank 0 prints it if the program does not catch it."""
    error.__dict__[_SHARED] = rank
    return error


def is_shared_error(error: BaseException) -> bool:
    """Whether all ranks raise this exception."""
    return _SHARED in getattr(error, "__dict__", {})


@cache
def abort_job_on_exceptions() -> None:
    """Make an exception that the program does not catch end the whole job of a launcher."""
    if launcher_of_ranks() is None:
        return
    show = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if this_process.forked:
            show(kind, error, trace)
            leave_now(exit_code_of(error))
        shared, rank = is_shared_error(error), rank_of_launcher()
        if shared and error.__dict__[_SHARED]:
            raise SystemExit(0)
        if not shared:
            await_turn(rank)
        show(kind, error, trace)
        if shared or this_process.is_elastic:
            raise SystemExit(exit_code_of(error))
        abort_job(exit_code_of(error))

    sys.excepthook = end
    note_exit_codes()
    atexit.register(_abort_if_ranks_wait)


def _abort_if_ranks_wait() -> None:
    """End the job if this rank leaves with a code, and the others do not.

    They would wait for it, as it would in MPI_Finalize.
    """
    code, rank = this_process.code, rank_of_launcher()
    if not code or this_process.has_met or this_process.forked or not mpi_is_running():
        return

    def end() -> None:
        print_error(f"rank {rank} has left with exit code {code}, and other ranks wait for it")
        abort_job(code, by_mpi=False)

    limit = threading.Timer(EXIT_SECONDS, end)
    limit.daemon = True
    with suppress(RuntimeError):  # Python 3.12.0 and 3.12.1 start no threads at exit
        limit.start()
        mpi_function("MPI_Finalize")()


@contextmanager
def abort_on_error(
    comm: MPI.Intracomm, known: type[BaseException] | tuple[()] = CecError
) -> Iterator[None]:
    """End the job on an exception of one rank, because the others would wait for it.

    The exit code is 2 for too little memory, otherwise 1 from rank 0 and 3 from others. Exceptions
    that all ranks raise pass: those of the classes `known`, and those that are marked.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, known) or is_shared_error(error):
            raise
        abort_job_with(comm, error)


def abort_job_with(comm: MPI.Intracomm, error: BaseException) -> NoReturn:
    """Print an exception of this rank, and end the job (see `abort_on_error`)."""
    log.critical("rank %d ends the job", comm.rank, exc_info=error)
    code = exit_code_of(error) if comm.rank == 0 else FAILED_MACHINE
    shortage, where = as_shortage_error(error), f"rank {comm.rank} on {socket.gethostname()}"
    text = f"{where} failed\n{_traceback_of(error)}"
    if is_mpi_error(error):
        code = FAILED_MACHINE
        text = (
            f"error: one of {plural(comm.size, 'rank')} was lost ({error}), and the others cannot "
            "continue in lockstep; with --elastic a run continues"
        )
    elif shortage is not None:
        code, text = shortage.exit_code, f"error: {where}: {shortage}"
    elif isinstance(error, CecError):
        text = f"error: {one_message(error)}"
    await_turn(comm.rank)
    print_error_line(f"cec-mpi: {text}")
    abort_job(code or CecError.exit_code)


def await_turn(rank: int) -> None:
    """Wait for the turn of this rank to print: if rank 0 raises too, it ends the job before."""
    time.sleep(PRINT_TURN_SECONDS * min(rank, MAX_PRINT_TURNS))


def abort_job(code: int, by_mpi: bool = True) -> NoReturn:
    """End all processes of the job with this exit code.

    Parameters
    ----------
    code : int
    by_mpi : bool
        Whether MPI answers.
    """
    flush()
    time.sleep(OUTPUT_DRAIN_SECONDS)
    launcher, module = detect_launcher(), sys.modules.get("mpi4py.MPI")
    # With --with-ft ulfm others survive an abort, and are stuck in MPI.
    survive = launcher and launcher.implementation == OPEN_MPI and continuity(launcher).continues
    if by_mpi and not survive and mpi_is_running():
        # With a duplicated communicator Intel MPI's launcher returned 255 in 19 of 20 jobs.
        assert module is not None
        module.COMM_WORLD.Abort(code)
    elif launcher is not None:
        _abort_by_launcher(launcher, code)
        if continuity(launcher).continues:
            end_ranks(set(range(launcher.size)) - {launcher.rank})
        os._exit(code)
    time.sleep(ABORT_SECONDS)  # MPICH's Abort returns after it has notified the launcher
    os._exit(code)


def abort_job_at_exit() -> None:
    """End all processes of the job when this one leaves, not when one forked from it does."""
    process = os.getpid()

    def end() -> None:
        if os.getpid() == process:
            abort_job(FAILED_MACHINE, by_mpi=False)

    atexit.register(end)


def _abort_by_launcher(launcher: Launcher, code: int) -> None:
    """Make the launcher end all processes with this exit code, without MPI.

    Most launchers do so if one leaves with an exit code other than 0. Those of MPICH and Intel MPI
    let the others wait in MPI_Init, or return another code, unless they get this command.
    """
    if launcher.implementation in (MPICH, INTEL):
        with suppress(KeyError, ValueError, OSError):
            os.write(int(os.environ["PMI_FD"]), b"cmd=abort exitcode=%d\n" % code)
            time.sleep(ABORT_SECONDS)
    if launcher.is_srun:  # it lets the others wait in MPI_Init
        import subprocess  # few ranks start a program

        with suppress(KeyError, OSError, subprocess.SubprocessError):
            step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
            subprocess.run(["scancel", step], timeout=SRUN_TIMEOUT, check=False)


def mpi_is_running() -> bool:
    """Whether this process has started MPI and not ended it; does not start it."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and module.Is_initialized() and not module.Is_finalized()


def mpi_function(name: str) -> Any:
    """Return a function of the MPI library, during which other threads of Python can run.

    mpi4py holds the interpreter's lock when it starts and ends MPI.
    """
    from mpi4py import MPI

    return getattr(ctypes.CDLL(MPI.__file__), name)


def is_mpi_error(error: BaseException) -> bool:
    """Whether an exception comes from MPI, for example after the loss of a rank."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and isinstance(error, module.Exception)


def limit_start(seconds: float, ranks: int, rank: int) -> None:
    """End the job if not all ranks have met after this number of seconds (`end_start_limit`)."""

    def give_up() -> None:
        await_turn(rank)
        if this_process.start_limit is not timer:  # all have met at the last moment
            return
        started = f"MPI has not started within {seconds:g} s"
        if ranks > 1:
            started = f"{ranks} ranks have not met within {seconds:g} s"
        if rank <= MAX_PRINT_TURNS:
            print_error(
                f"{started}: a rank may have died or stopped, may not have reached this call, or "
                "hosts cannot connect to each other; --start-timeout SECONDS (start_timeout in "
                "Python) allows more time"
            )
        abort_job(FAILED_MACHINE, by_mpi=False)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), give_up)
    timer.daemon = True
    this_process.start_limit = timer
    timer.start()


def end_start_limit() -> None:
    """Note that all ranks have met, or cannot: the start is over."""
    this_process.has_met = True
    timer, this_process.start_limit = this_process.start_limit, None
    if timer is not None:
        timer.cancel()


@cache
def end_with_launcher() -> None:
    """End this process soon after its launcher, if that is killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(FAILED_MACHINE)

    if launcher_of_ranks():
        threading.Thread(target=watch, daemon=True, name="launcher").start()


def end_ranks(ranks: Collection[int]) -> set[int]:
    """End processes of this node that this process's launcher has started; returns their ranks.

    They are recognised by their environment, because process numbers may be those of another
    namespace.
    """
    job, ended = job_id(), set[int]()
    if not (ranks and job):
        return ended
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            entries = os.fsdecode((directory / "environ").read_bytes()).split("\0")
        except OSError:  # it has ended, or is another user's
            continue
        environ = dict(entry.partition("=")[::2] for entry in entries)
        found = detect_launcher(environ)
        if found is not None and found.rank in ranks and job_id(environ) == job:
            with suppress(OSError):
                os.kill(int(directory.name), signal.SIGKILL)
                ended.add(found.rank)
    return ended


# In order.


def leave_in_order(comm: MPI.Intracomm, code: int) -> int:
    """Collective: end MPI on all ranks; only rank 0 gives the launcher an exit code other than 0.

    Open MPI's launcher hung or complained if several ranks left with such a code at once: 5 and 61
    times in 1,631 runs, and never in 1,629 with this function.
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
    except MPI.Exception:  # a rank was lost when all was done: MPI_Finalize would wait for it
        time.sleep(0 if comm.rank else RANK_0_EXIT_DELAY)
        leave_now(code)
    if code:
        time.sleep(RANK_0_EXIT_DELAY)
    return code


def leave_now(code: int = FAILED_MACHINE) -> NoReturn:
    """Leave at once, without MPI."""
    flush()
    os._exit(code)


def leave_threads(code: int) -> None:
    """Leave if threads of a task have not ended, for which Python would wait."""
    others = set(threading.enumerate()) - {threading.main_thread()}
    if any(not thread.daemon for thread in others):
        if launcher_of_ranks():  # MPICH's kills the others if rank 0 leaves first
            time.sleep(PRINT_SECONDS)
        leave_now(code)


def wait_for_rank_0(launcher: Launcher | None) -> None:
    """Wait until rank 0 has printed, because launchers end all when a process leaves."""
    if launcher is not None and launcher.rank:
        time.sleep(PRINT_SECONDS)


@cache
def leave_forks_without_mpi() -> None:
    """Make processes that are forked from now on end without MPI.

    MPI_Finalize in them waits forever, or ends the connections of this process.
    """
    note_exit_codes()

    def forked() -> None:
        this_process.forked, this_process.code = True, 0

    os.register_at_fork(after_in_child=forked)


@cache
def note_exit_codes() -> None:
    """Make `sys.exit` note its code, which no handler gets otherwise."""
    leave = sys.exit

    def note_exit(status: Any = None, /) -> NoReturn:
        this_process.code = exit_code_of(SystemExit(status))
        leave(status)

    sys.exit = note_exit


def _exit_fork() -> None:
    """End a forked process at exit, after all other handlers, instead of MPI_Finalize."""
    if not this_process.forked:
        return
    for file in gc.get_objects():
        if isinstance(file, io.TextIOWrapper | io.BufferedWriter) and not file.closed:
            with suppress(OSError, ValueError):
                file.flush()
    leave_now(this_process.code)


atexit.register(_exit_fork)  # handlers that are registered first are called last


def leave_fork(error: BaseException) -> NoReturn:
    """Exit a process that a task has forked; its exception must not end the run."""
    if not isinstance(error, SystemExit):
        print_error_line(_traceback_of(error))
    leave_now(exit_code_of(error))


def was_forked() -> bool:
    """Whether this process was forked from one that had opened an operator with MPI."""
    return this_process.forked


def flush() -> OSError | None:
    """Flush standard output and standard error.

    Returns
    -------
    OSError or None
        Why standard output cannot be written; the rest of it is dropped.
    """
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # no output is left for a message
        discard_output(sys.stderr)
    return take_output_error()


# Messages.


def as_shortage_error(error: BaseException) -> ShortageError | None:
    """Return a `ShortageError` if the error was caused by too little memory, else None."""
    if isinstance(error, MemoryError) or error_suffix(error).endswith(_MEMORY_ERRORS):
        return ShortageError(f"too little memory{error_suffix(error)}")
    return None


def error_suffix(error: BaseException) -> str:
    """Return the text of an error after a colon; empty if it has none, or cannot be converted."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f": {printable(text)}" if text else ""


def _traceback_of(error: BaseException) -> str:
    return printable("".join(traceback.format_exception(error)).rstrip("\n"), kept="\n\t")


def as_cec_error(error: Exception) -> CecError:
    """Return an exception as a `CecError`.

    Errors of files become `InputError`, too little memory becomes `ShortageError`. The traceback of
    an unexpected error is printed.
    """
    if isinstance(error, CecError):
        return error
    if isinstance(error, OSError):
        if error.filename is None and not _has_working_directory():
            return InputError("the working directory has been removed: change to another one")
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if (shortage := as_shortage_error(error)) is not None:
        return shortage
    log.critical("unexpected error", exc_info=error)
    print_error_line(_traceback_of(error))
    return CecError(f"{type(error).__name__}{error_suffix(error)}")


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def print_unexpected_error(error: BaseException) -> None:
    """Print the traceback of an unexpected error, then a one-line error."""
    print_error_line(_traceback_of(error))
    print_error(f"unexpected {type(error).__name__}{error_suffix(error)}")


def print_error(error: object) -> None:
    """Print one message."""
    print_error_line(f"cec-mpi: error: {one_message(error)}")


class SignalRecorder:
    """Notes SIGTERM and SIGUSR1 within a ``with``; they do not end the process.

    Parameters
    ----------
    second_ends : bool
        Whether a second SIGTERM ends the process.
    with_hangup : bool
        Whether SIGHUP is noted too, unless it is ignored.
    ignores_interrupts : bool
        Whether SIGINT has no effect.
    on_first : callable, optional
        Called with the first signal, in its handler.

    Attributes
    ----------
    received : signal.Signals or None
        The first signal.
    notice : str
        What else has told this process to leave, in words; empty if nothing has.
    must_end : bool
        Whether a second SIGTERM ends the process.

    Examples
    --------
    >>> with SignalRecorder() as signals:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> signals.received.name
    'SIGTERM'
    """

    def __init__(
        self,
        second_ends: bool = False,
        with_hangup: bool = False,
        ignores_interrupts: bool = False,
        on_first: Callable[[signal.Signals], None] | None = None,
    ) -> None:
        self.received: signal.Signals | None = None
        self.notice = ""
        self._at_first = on_first
        self.must_end = False
        self._second_ends = second_ends
        self._noted: tuple[signal.Signals, ...] = _WARNINGS
        if with_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._noted += (signal.SIGHUP,)
        self._ignores_interrupts = ignores_interrupts
        self._process = os.getpid()
        self._terms = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalRecorder:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread handles signals
        for number in self._noted:
            self._before[number] = signal.signal(number, self._note) or signal.SIG_DFL
        if self._ignores_interrupts:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._before[signal.SIGINT] = before or signal.SIG_DFL
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:  # forked from this one: it is no part of the run
            self.__exit__()
            signal.raise_signal(number)
            return
        if self.received is None:
            self.received = signal.Signals(number)
            if self._at_first is not None:
                self._at_first(self.received)
        self._terms += number == signal.SIGTERM
        if self._second_ends and self._terms > 1:
            self.must_end = True
            self.__exit__()
            signal.raise_signal(number)
