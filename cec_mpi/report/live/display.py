"""Display of progress: lines that change on a terminal, or a line at intervals."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.text.terminal import QUIET, VERBOSE, print_error_line, verbosity

if TYPE_CHECKING:
    from rich.console import RenderableType

AUTO, PLAIN, OFF = "auto", "plain", "off"
CHOICES = (AUTO, PLAIN, OFF)

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_ANCESTORS = 4  # a rank's launcher is its parent or, behind a proxy, its grandparent
_WITHOUT_CURSOR = {"dumb", "unknown"}  # as TERM
_NOTEBOOK_VARIABLE = "JPY_PARENT_PID"  # set in processes that a notebook starts
_REDRAWS_PER_SECOND = 4


@dataclass(frozen=True)
class Display:
    """How progress is shown.

    Attributes
    ----------
    live : bool
        Whether lines are redrawn in place; otherwise whole lines are written.
    interval : float
        Seconds between whole lines.
    """

    live: bool
    interval: float = 0.0


LIVE = Display(True)
TERMINAL_LINES = Display(False, 5.0)  # a terminal that is not redrawn
FILE_LINES = Display(False, 60.0)  # for example the output of a batch job
VERBOSE_LINES = Display(False, 1.0)


def reaches_terminal() -> bool:
    """Return whether standard error of this process reaches a terminal.

    A launcher forwards the output of its ranks to its own terminal.
    """
    if sys.stderr.isatty():
        return True
    process = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                errors = str((directory / "fd" / "2").readlink())
                return errors.startswith(("/dev/pts/", "/dev/tty"))
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass  # no such process, or no permission: assume no terminal
    return False


def choose_display(choice: str = AUTO, environ: Mapping[str, str] = os.environ) -> Display | None:
    """Return how this process shows progress; None if it does not.

    Parameters
    ----------
    choice : str
        One of `CHOICES`.
    environ : mapping
        Environment variables.
    """
    if choice == OFF or verbosity() == QUIET or sys.stderr is None:
        return None
    launcher = detect_launcher(environ)
    if launcher is not None and launcher.is_srun:  # srun is not an ancestor of its ranks
        is_read = environ.get("ENVIRONMENT") != "BATCH"  # which sbatch sets
    else:
        is_read = reaches_terminal()
        has_cursor = (
            environ.get("TERM") not in _WITHOUT_CURSOR and _NOTEBOOK_VARIABLE not in environ
        )
        if launcher is None and sys.stderr.isatty() and has_cursor and choice == AUTO:
            return LIVE
    if verbosity() == VERBOSE:
        return VERBOSE_LINES
    return TERMINAL_LINES if is_read else FILE_LINES


class View(Protocol):
    """Something to display."""

    def line(self) -> str:
        """Return one line, for a file."""

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Return lines for a terminal of this size."""


@contextmanager
def show(view: View, choice: str) -> Iterator[threading.RLock | None]:
    """Show a view while the context is open; yield a lock, or None if nothing is shown.

    Parameters
    ----------
    view : View
        The caller holds the lock while changing it.
    choice : str
        See `choose_display`.
    """
    display = choose_display(choice)
    if display is None:
        yield None
        return
    lock = threading.RLock()
    with _draw_live(view, lock) if display == LIVE else _print_lines(view, lock, display):
        yield lock


@contextmanager
def _draw_live(view: View, lock: threading.RLock) -> Iterator[None]:
    """Show lines on the terminal of standard error, below all other output."""
    from rich.live import Live  # slow to import

    from cec_mpi.report.live.console import TruncatedLines, console_on

    console = console_on(sys.stderr)

    def lines() -> RenderableType:
        with lock:
            size = console.width - 1, console.height - 1
            return TruncatedLines(list(view.lines(*size))[: max(1, size[1])])

    with Live(
        console=console,
        get_renderable=lines,
        refresh_per_second=_REDRAWS_PER_SECOND,
        transient=True,
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        vertical_overflow="crop",
    ):
        yield


@contextmanager
def _print_lines(view: View, lock: threading.RLock, display: Display) -> Iterator[None]:
    """Print a line at intervals."""
    from cec_mpi.report.live.words import format_clock  # not needed by machines of a run

    over, begin = threading.Event(), time.monotonic()

    def print_lines() -> None:
        while not over.wait(display.interval):
            with lock:
                line = view.line()
            print_error_line(f"cec-mpi: {line}, {format_clock(time.monotonic() - begin)} so far")

    thread = threading.Thread(target=print_lines, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
