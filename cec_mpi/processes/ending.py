"""How processes end: all ways are on this page.

In lockstep a rank that leaves early makes launchers kill the others before they have printed. A
rank that waits for a lost process waits forever, and so does MPI_Finalize. So either all ranks
leave together, and rank 0, which leaves last, prints and gives the launcher its exit code; or one
rank ends the whole job.

==================================  ==================  ======  ===================================
what happens in lockstep            who prints          code    which function
==================================  ==================  ======  ===================================
all ranks raise the same error      rank 0, once        its     `failing.raised_together`
some may raise alike, and cannot    the first of them   1       `failing.raised_apart`; the job is
tell each other                                                 ended
one rank raises what the others     that rank           1 to 3  `failing.ending_the_job`: 1 from
know nothing of                                                 rank 0, else 3; 2 for a shortage
a mapped shard is cut while a rank  that rank           3       `files.mapping`; the launcher ends
computes with it                                                the others
a process is killed                 the launcher        its     none: the launcher ends the others
a process is killed, and MPI        the first that      3       `leave_after_a_loss`
reports it (--with-ft ulfm)         has the word
the launcher is killed              nobody              -       none: the MPI library ends each rank
ranks do not meet in time, or MPI   the first that      3       `watch_start`, and `give_up_start`:
has an error before they have       has the word                each rank ends itself
not all come to open an operator    the first that      3       `leave_with_the_job`, when a
                                    has the word                program leaves with that error
a process forked from one with MPI  as in any program   its     `leave_forks_without_mpi`
==================================  ==================  ======  ===================================

In an elastic run no process waits for another one to leave. Launchers and batch systems take an
exit code other than 0 for a failure of the run: only the master, and machines that have lost it,
leave with one.

==================================  ==================  ======  ===================================
what happens in an elastic run      who prints          code    which function
==================================  ==================  ======  ===================================
the run ends                        the master          its     `session.elastic`: machines leave
                                                                with 0. `end_ranks` ends
                                                                those that do not in 5 s, on other
                                                                nodes `end_job_at_exit`
a machine ends, or its connection   the log             -       none: others compute its rows
a machine is warned or excluded     nobody              0       `session.machine.serve_as_rank`; of
                                                                ``cec-mpi join`` 6 and 7
a mapped shard is cut while a       that machine        3       `files.mapping`
machine computes with it
the master is gone                  one rank            3       `session.machine.serve_as_rank`
the master ends before it listens,  the master          0       `session.machine.note_of_end`: ranks
or before a rank has come                                       look for a note
a machine's program uses X in spite that rank, once     1       `failing.shown_by_rank_0`
of None
==================================  ==================  ======  ===================================

SIGTERM or SIGUSR1 ends a run on rank 0 with exit code 6 at the next step, and warns a machine that
it must leave (`NotedSignals`). A second SIGTERM on rank 0, and Ctrl-C, work as in any program.

Commands of lockstep end in `together.run_together`. Other programs end at exit, where
`_leave_in_the_end` replaces MPI_Finalize if that would wait. Workarounds for libraries and
launchers are in `workarounds`.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import io
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from cec_mpi.errors import CecError
from cec_mpi.processes.launcher import OPEN_MPI, continuity, detect_launcher, job_id
from cec_mpi.processes.workarounds import (
    abort_by_launcher,
    abort_world,
)
from cec_mpi.terminal import drop, tell, unwritten
from cec_mpi.text import plural
from cec_mpi.times import (
    LAST_SECONDS,
    LAST_TURN,
    READING_SECONDS,
    SCANCEL_SECONDS,
    SILENT_SECONDS,
    TURN_SECONDS,
)

if TYPE_CHECKING:
    import psutil
    from mpi4py import MPI

FAILED_MACHINE = 3  # the exit code of a job in which one fails

ALL_TURNS = TURN_SECONDS * LAST_TURN
"""Seconds after which all ranks have had their turn."""

_LAUNCHERS = "mpirun", "mpiexec", "hydra", "prte"  # and daemons of theirs
_WARNINGS = (signal.SIGTERM, signal.SIGUSR1)


@dataclass
class ThisProcess:
    """The state of this process that decides how it ends: `this_process`.

    Attributes
    ----------
    start_limit : StartLimit or None
        The time limit of a start, until all ranks have met.
    without_mpi : bool
        Whether it ends without MPI_Finalize, which waits for lost processes.
    ends_the_job : bool
        Whether its end is that of all ranks, because others hang.
    forked : bool
        Whether it was forked from a process that had opened an operator with MPI.
    codes : list of int
        Exit codes; the highest counts.
    hook : callable or None
        `sys.excepthook` before `failing` replaced it.
    kept : list
        Objects that must live as long as the process: requests and buffers that MPI may still use,
        descriptors that hold locks, and in a forked process the operator of its parent.
    serving : list of mpi4py.MPI.Group
        Groups of processes that have an operator in lockstep.
    over : list
        Connection files of elastic runs that it has served as a rank.
    """

    start_limit: StartLimit | None = None
    without_mpi: bool = False
    ends_the_job: bool = False
    forked: bool = False
    codes: list[int] = field(default_factory=list)
    hook: Callable[..., Any] | None = None
    kept: list[Any] = field(default_factory=list)
    serving: list[MPI.Group] = field(default_factory=list)
    over: list[Any] = field(default_factory=list)


this_process = ThisProcess()


def leave_now(code: int = FAILED_MACHINE) -> NoReturn:
    """Leave at once, without MPI."""
    flush()
    os._exit(code)


def end_job(code: int) -> NoReturn:
    """End all processes of the job with this exit code."""
    flush()
    launcher = detect_launcher()
    if launcher and launcher.maker == OPEN_MPI and continuity(launcher).continues:
        end_job_without_mpi(code)  # with --with-ft ulfm others survive an abort, stuck in MPI
    abort_world(code)
    os._exit(code)


def end_job_without_mpi(code: int) -> NoReturn:
    """End this process with an exit code for the launcher, and if possible all others."""
    abort_by_launcher(code)
    end_siblings()
    os._exit(code)


def _leave_without_mpi() -> None:
    """Make this process end without MPI_Finalize, which waits for lost processes."""
    if this_process.without_mpi:
        return
    this_process.without_mpi = True
    hook, leave = sys.excepthook, sys.exit

    def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        note_exit_status(CecError.exit_code)
        hook(kind, error, trace)

    def note_exit(status: Any = None, /) -> NoReturn:
        note_exit_status(status)
        leave(status)

    sys.excepthook, sys.exit = note, note_exit


@cache
def leave_forks_without_mpi() -> None:
    """Make processes that are forked from now on end without MPI.

    MPI_Finalize in them waits forever, or ends the connections of this process.
    """

    def forked() -> None:
        this_process.forked = True
        _leave_without_mpi()

    os.register_at_fork(after_in_child=forked)


def leave_with_the_job(code: int) -> None:
    """Make the end of this process the end of the job, with this exit code.

    The other ranks cannot meet it in MPI_Finalize.
    """
    _leave_without_mpi()
    note_exit_status(code)
    this_process.ends_the_job = True


def was_forked() -> bool:
    """Whether this process was forked from one that had opened an operator with MPI."""
    return this_process.forked


def leaves_without_mpi() -> bool:
    """Whether MPI cannot be finalized any more."""
    return this_process.without_mpi


def note_exit_status(status: Any) -> None:
    """Remember the exit status, which Python does not tell at exit."""
    this_process.codes.append(0 if status is None else status if isinstance(status, int) else 1)


def _leave_in_the_end() -> None:
    """End the process at exit, after all other handlers, instead of MPI_Finalize."""
    if not this_process.without_mpi:
        return
    from mpi4py import MPI

    for file in gc.get_objects():
        if isinstance(file, io.TextIOWrapper | io.BufferedWriter) and not file.closed:
            with suppress(OSError, ValueError):
                file.flush()
    code = max(this_process.codes, default=0)
    if this_process.forked:
        flush()
        os._exit(code)
    leave_process(MPI.COMM_WORLD.rank, code)


atexit.register(_leave_in_the_end)  # handlers that are registered first are called last


def leave_process(rank: int, code: int) -> NoReturn:
    """Leave without MPI; rank 0 leaves last and gives the launcher its exit code."""
    flush()
    if rank and not this_process.ends_the_job:
        os._exit(0)
    time.sleep(LAST_SECONDS)
    if this_process.ends_the_job:
        time.sleep(READING_SECONDS)
        end_job_without_mpi(code)
    os._exit(code)


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
        drop(sys.stderr)
    return unwritten()


def watch_start(seconds: float, ranks: int, rank: int) -> None:
    """End this process if it has not met the others after this number of seconds."""
    all_have_met()
    this_process.start_limit = StartLimit(seconds, ranks, rank)


def is_limited() -> bool:
    """Whether a start with a time limit goes on."""
    return this_process.start_limit is not None


def all_have_met() -> None:
    """Note that all ranks have met: the start is over."""
    limit, this_process.start_limit = this_process.start_limit, None
    if limit is not None:
        limit.stop()


def give_up_start(error: object) -> None:
    """End this process if a start goes on, because MPI has reported an error.

    Other ranks may wait forever in a call.
    """
    if this_process.start_limit is not None:
        this_process.start_limit.give_up(error)


def leave_after_a_loss(rank: int, ranks: int, error: object) -> NoReturn:
    """End this process in lockstep, because MPI has reported a lost rank.

    Other ranks get the same error or wait forever; one of them prints why.
    """
    _leave(
        takes_the_word(rank),
        f"one of {plural(ranks, 'rank')} was lost ({error}), and the others cannot continue in "
        "lockstep; with --elastic a run continues",
    )


class StartLimit:
    """A time limit, enforced by a thread, because this process may wait forever in a call."""

    def __init__(self, seconds: float, ranks: int, rank: int) -> None:
        self._seconds, self._ranks, self._rank = seconds, ranks, rank
        self._over = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True, name="start limit").start()

    def stop(self) -> None:
        """Note that all ranks have met."""
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        if self._over.wait(min(self._seconds, threading.TIMEOUT_MAX)):
            return
        speaks = takes_the_word(self._rank, self._over)
        with self._lock:
            if self._over.is_set():  # all have met at the last moment
                return
            started = f"MPI has not started within {self._seconds:g} s"
            if self._ranks > 1:
                started = f"{self._ranks} ranks have not met within {self._seconds:g} s"
            _leave(
                speaks,
                f"{started}: one has died or was stopped while MPI started, or hosts cannot reach "
                "each other; start again, with --start-timeout SECONDS (start_timeout in Python) "
                "if it needs more time",
            )

    def give_up(self, error: object) -> NoReturn:
        """End this process because MPI has reported an error."""
        speaks = takes_the_word(self._rank, self._over)
        with self._lock:
            _leave(
                speaks,
                f"one of {plural(self._ranks, 'rank')} was lost before all had met ({error}): "
                "start again",
            )


def takes_the_word(rank: int, over: threading.Event | None = None) -> bool:
    """Wait for the turn of this rank; True if it must print why all leave.

    The turn of rank 0 is now, that of the next rank a second later.

    Parameters
    ----------
    rank : int
    over : threading.Event, optional
        Ends the wait.
    """
    (over or threading.Event()).wait(TURN_SECONDS * min(rank, LAST_TURN))
    claimed = claim("start")
    return rank < LAST_TURN if claimed is None else claimed


def _leave(speaks: bool, reason: str) -> NoReturn:
    if speaks:
        tell(f"cec-mpi: error: {reason}")
    with suppress(ValueError):  # the reader may be gone, but this process must end
        flush()
    time.sleep(READING_SECONDS if speaks else SILENT_SECONDS)
    end_job_without_mpi(FAILED_MACHINE)


def claim(name: str) -> bool | None:
    """Whether this process is the first rank of its node to call this; None if unknown.

    Parameters
    ----------
    name : str
        What is claimed.
    """
    namespace = os.environ.get("PMIX_NAMESPACE", "")
    directory = Path(os.environ.get("PMIX_SERVER_TMPDIR", ""))
    if namespace and _is_private(directory):  # of the launcher, which removes it at the end
        file = directory / re.sub(r"[^\w-]", "-", f"cec-mpi-{name}-{namespace}")
        with suppress(OSError):
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            except FileExistsError:
                return False
            return True
    try:  # a file of the parent that other users cannot open
        lock = os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY)
    except OSError:
        return None
    this_process.kept.append(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def end_siblings() -> None:
    """End the other ranks of this node if the launcher lets them continue."""
    launcher = detect_launcher()
    if launcher is not None and continuity(launcher).continues:
        end_ranks(set(range(launcher.size)) - {launcher.rank})


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


def end_job_at_exit() -> None:
    """Make the launcher end ranks on other nodes when this process leaves."""
    atexit.register(_end_job_by_launcher, os.getpid())


def _end_job_by_launcher(process: int) -> None:
    launcher = detect_launcher()
    if os.getpid() != process or launcher is None:  # forked from that one
        return
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if launcher.is_srun:
        import subprocess  # hardly any rank starts a program

        with suppress(KeyError, OSError, subprocess.SubprocessError):
            step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
            subprocess.run(["scancel", step], timeout=SCANCEL_SECONDS, check=False)
        return
    import psutil  # by rank 0 alone

    with suppress(psutil.Error):
        parents = dropwhile(lambda each: not _launches(each), psutil.Process().parents())
        for parent in reversed(list(takewhile(_launches, parents))):
            parent.terminate()


def _launches(process: psutil.Process) -> bool:
    return bool(process.name().startswith(_LAUNCHERS))


def _is_private(directory: Path) -> bool:
    """Whether only this user can have written to a directory."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return (
        directory.is_absolute()
        and stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & 0o077
    )


class NotedSignals:
    """Notes SIGTERM and SIGUSR1 within a ``with``; they do not end the process.

    Parameters
    ----------
    second_ends : bool
        Whether a second SIGTERM ends the process.
    with_hangup : bool
        Whether SIGHUP is noted too, unless it is ignored.
    ignores_interrupts : bool
        Whether SIGINT has no effect.
    at_first : callable, optional
        Called with the first signal, in its handler.

    Attributes
    ----------
    received : signal.Signals or None
        The first signal.
    end : bool
        Whether a second SIGTERM ends the process.

    Examples
    --------
    >>> with NotedSignals() as signals:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> signals.received.name
    'SIGTERM'
    """

    def __init__(
        self,
        second_ends: bool = False,
        with_hangup: bool = False,
        ignores_interrupts: bool = False,
        at_first: Callable[[signal.Signals], None] | None = None,
    ) -> None:
        self.received: signal.Signals | None = None
        self._at_first = at_first
        self.end = False
        self._second_ends = second_ends
        self._noted: tuple[signal.Signals, ...] = _WARNINGS
        if with_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._noted += (signal.SIGHUP,)
        self._ignores_interrupts = ignores_interrupts
        self._terms = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> NotedSignals:
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
        if self.received is None:
            self.received = signal.Signals(number)
            if self._at_first is not None:
                self._at_first(self.received)
        self._terms += number == signal.SIGTERM
        if self._second_ends and self._terms > 1:
            self.end = True
            self.__exit__()
            signal.raise_signal(number)
