"""Displays of progress: lines that are redrawn in place, or one that is printed at intervals."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.text.terminal import QUIET, VERBOSE, print_stderr, verbosity

if TYPE_CHECKING:
    from rich.console import RenderableType

AUTO, PLAIN, OFF = "auto", "plain", "off"
CHOICES = (AUTO, PLAIN, OFF)

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_MAX_ANCESTORS = 4  # from a rank to its launcher, which may start proxies
_DUMB_TERMINALS = {"dumb", "unknown"}  # values of TERM
_NOTEBOOK_VARIABLE = "JPY_PARENT_PID"  # set in processes that a notebook starts
_REDRAWS_PER_SECOND = 4
_NOTEBOOK_SIZE = 100, 24  # columns and lines


@dataclass(frozen=True)
class Display:
    """A way to show progress.

    Attributes
    ----------
    is_live : bool
        Whether lines are redrawn in place; otherwise one is printed at intervals.
    interval : float
        Seconds between printed lines.
    is_notebook : bool
        Whether a notebook shows the lines.
    """

    is_live: bool
    interval: float = 0.0
    is_notebook: bool = False


LIVE = Display(is_live=True)
NOTEBOOK = Display(is_live=True, is_notebook=True)  # below the cell that runs
TERMINAL_LINES = Display(is_live=False, interval=5.0)  # for a terminal that cannot be redrawn
FILE_LINES = Display(is_live=False, interval=60.0)  # for example in the output of a batch job
VERBOSE_LINES = Display(is_live=False, interval=1.0)


def reaches_terminal() -> bool:
    """Return whether standard error of this process reaches a terminal.

    A launcher forwards the output of its ranks to its own terminal.
    """
    if sys.stderr.isatty():
        return True
    process = os.getppid()
    try:
        for _ in range(_MAX_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                stderr_path = str((directory / "fd" / "2").readlink())
                return stderr_path.startswith(("/dev/pts/", "/dev/tty"))
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])  # parent
    except (OSError, ValueError):
        pass  # the process has exited or cannot be read: assume no terminal
    return False


def choose_display(choice: str = AUTO, environ: Mapping[str, str] = os.environ) -> Display | None:
    """Return the display of progress for this process; None if nothing is shown.

    Parameters
    ----------
    choice : str
        One of `CHOICES`.
    environ : mapping
        Environment variables.
    """
    if choice == OFF or verbosity() == QUIET or sys.stderr is None:
        return None
    if choice == AUTO and _runs_in_notebook():
        return NOTEBOOK
    launcher = detect_launcher(environ)
    if launcher is not None and launcher.is_srun:  # srun is not an ancestor of its ranks
        has_reader = environ.get("ENVIRONMENT") != "BATCH"  # sbatch sets BATCH
    else:
        has_reader = reaches_terminal()
        has_cursor = (
            environ.get("TERM") not in _DUMB_TERMINALS and _NOTEBOOK_VARIABLE not in environ
        )
        if launcher is None and sys.stderr.isatty() and has_cursor and choice == AUTO:
            return LIVE
    if verbosity() == VERBOSE:
        return VERBOSE_LINES
    return TERMINAL_LINES if has_reader else FILE_LINES


class View(Protocol):
    """Content of a display."""

    def line(self) -> str:
        """Return one line, for a file."""

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Return lines for a terminal of this size."""


@contextmanager
def show(view: View, choice: str) -> Iterator[threading.RLock | None]:
    """Show a view in this context; yield a lock, or None if nothing is shown.

    Parameters
    ----------
    view : View
        The caller must hold the lock while it changes the view.
    choice : str
        See `choose_display`.
    """
    display = choose_display(choice)
    if display is None:
        yield None
        return
    lock = threading.RLock()
    if display.is_notebook:
        display_context = _draw_in_notebook(view, lock)
    else:
        display_context = (
            _draw_live(view, lock) if display.is_live else _print_lines(view, lock, display)
        )
    with display_context:
        yield lock


@contextmanager
def _draw_live(view: View, lock: threading.RLock) -> Iterator[None]:
    """Show lines on the terminal of standard error, below all other output."""
    from rich.live import Live  # imported here, because it is slow

    from cec_mpi.report.live.console import TruncatedLines, safe_console

    console = safe_console(sys.stderr)

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
    """Print the line of a view at intervals."""
    from cec_mpi.report.live.descriptions import format_clock  # only rank 0 needs it

    start = time.monotonic()

    def print_line() -> None:
        with lock:
            line = view.line()
        print_stderr(f"cec-mpi: {line}, {format_clock(time.monotonic() - start)} so far")

    with _repeat(print_line, display.interval):
        yield


@contextmanager
def _draw_in_notebook(view: View, lock: threading.RLock) -> Iterator[None]:
    """Show lines below the cell of a notebook, where they remain at the end."""
    from rich.table import Table

    notebook: Any = importlib.import_module("IPython.display")

    def render() -> Table:
        lines = Table.grid()
        with lock:
            for line in view.lines(*_NOTEBOOK_SIZE):
                lines.add_row(line)
        return lines

    handle = notebook.display(render(), display_id=True)
    with _repeat(lambda: handle.update(render()), 1 / _REDRAWS_PER_SECOND):
        yield
    handle.update(render())


def _runs_in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


@contextmanager
def _repeat(call: Callable[[], None], interval: float) -> Iterator[None]:
    """Call a function at intervals in a thread."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(interval):
            call()

    thread = threading.Thread(target=repeat, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
