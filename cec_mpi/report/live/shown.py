"""Showing progress: lines that change on a terminal, or a line from time to time."""

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
from cec_mpi.terminal import QUIET, VERBOSE, tell, verbosity

if TYPE_CHECKING:
    from rich.console import RenderableType

AUTO, PLAIN, OFF = "auto", "plain", "off"
CHOICES = (AUTO, PLAIN, OFF)

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_ANCESTORS = 4  # a rank's launcher is its parent or, behind a proxy, its grandparent
_WITHOUT_CURSOR = {"dumb", "unknown"}  # as TERM
_NOTEBOOK = "JPY_PARENT_PID"  # of what a cell of a notebook starts, on a terminal that is none
_DRAWINGS = 4  # a second


@dataclass(frozen=True)
class Way:
    """How progress is shown.

    Attributes
    ----------
    live : bool
        As lines that are drawn anew in their place, or as whole lines.
    interval : float
        Seconds between two whole lines.
    """

    live: bool
    interval: float = 0.0


LIVE = Way(True)
WATCHED = Way(False, 5.0)  # lines that come to a terminal
KEPT = Way(False, 60.0)  # lines in a file, as that of a batch job
VERBOSELY = Way(False, 1.0)


def is_watched() -> bool:
    """Return whether standard error of this process comes to a terminal.

    A launcher with a terminal passes on what its ranks write.
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
        pass  # no such process, or not ours to look at: then nobody is known to watch
    return False


def way_to_show(choice: str = AUTO, environ: Mapping[str, str] = os.environ) -> Way | None:
    """Return how this process shows progress; None if it does not.

    Parameters
    ----------
    choice : str
        One of `CHOICES`.
    environ : mapping
        Variables of this process.
    """
    if choice == OFF or verbosity() == QUIET or sys.stderr is None:
        return None
    launcher = detect_launcher(environ)
    if launcher is not None and launcher.is_srun:  # no ancestor of its ranks
        watched = environ.get("ENVIRONMENT") != "BATCH"  # which sbatch sets
    else:
        watched = is_watched()
        has_cursor = environ.get("TERM") not in _WITHOUT_CURSOR and _NOTEBOOK not in environ
        if launcher is None and sys.stderr.isatty() and has_cursor and choice == AUTO:
            return LIVE
    if verbosity() == VERBOSE:
        return VERBOSELY
    return WATCHED if watched else KEPT


class View(Protocol):
    """What can be shown."""

    def line(self) -> str:
        """One line, in a file."""

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Lines on a terminal of this size."""


@contextmanager
def shown(view: View, choice: str) -> Iterator[threading.RLock | None]:
    """Show a view while work is done; yields a lock, or None if nothing is to be shown.

    Parameters
    ----------
    view : View
        Whoever changes it holds the lock.
    choice : str
        How it is shown, see `way_to_show`.
    """
    way = way_to_show(choice)
    if way is None:
        yield None
        return
    lock = threading.RLock()
    with _drawn(view, lock) if way == LIVE else _told(view, lock, way):
        yield lock


@contextmanager
def _drawn(view: View, lock: threading.RLock) -> Iterator[None]:
    """Show lines on the terminal of standard error, below what else is printed."""
    from rich.live import Live  # read only where it is needed

    from cec_mpi.report.live.console import Cut, console_on

    console = console_on(sys.stderr)

    def lines() -> RenderableType:
        with lock:
            size = console.width - 1, console.height - 1
            return Cut(list(view.lines(*size))[: max(1, size[1])])

    with Live(
        console=console,
        get_renderable=lines,
        refresh_per_second=_DRAWINGS,
        transient=True,
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        vertical_overflow="crop",
    ):
        yield


@contextmanager
def _told(view: View, lock: threading.RLock, way: Way) -> Iterator[None]:
    """Write a line from time to time."""
    from cec_mpi.report.live.words import (
        clock,  # machines of a run show nothing, and do not read it
    )

    over, begin = threading.Event(), time.monotonic()

    def look() -> None:
        while not over.wait(way.interval):
            with lock:
                line = view.line()
            tell(f"cec-mpi: {line}, {clock(time.monotonic() - begin)} so far")

    thread = threading.Thread(target=look, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
