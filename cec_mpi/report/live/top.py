"""``cec-mpi top``: a run of another process, shown from its files."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live

from cec_mpi.report.live.console import Cut, console_on, rendered
from cec_mpi.report.live.table import top_lines
from cec_mpi.report.live.watched import WatchedRun
from cec_mpi.terminal import put

_READING = 0.1  # seconds between two looks while records are still being read
_ENDING = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
_LONGEST_SLEEP = 3600.0
_WIDTH = 100  # columns, where nothing says how many there are


def top(out: Path, every: float, once: bool) -> None:
    """Show a run until it is over, or until Ctrl-C is pressed.

    Parameters
    ----------
    out : Path
        The directory of its results.
    every : float
        Seconds between two looks.
    once : bool
        Show it once, as it is where standard output is no terminal.

    Raises
    ------
    InputError
        There is no run, or no run writes such records.
    """
    run = WatchedRun(out)
    console = Console(markup=False, highlight=False, emoji=False, legacy_windows=False)
    if not once and console.is_terminal and not console.is_dumb_terminal:
        with suppress(KeyboardInterrupt):
            if not _watch(run, every):
                return
    _catch_up(run)
    _show(run, console)


def _show(run: WatchedRun, console: Console) -> None:
    """Print the run once."""
    encoding = console.encoding
    width = _columns_of_reader() - console.is_terminal
    lines = top_lines(run, width, None)
    text = rendered(lines, width, encoding, is_terminal=console.is_terminal)
    put("\n".join(line.rstrip() for line in text.splitlines()))


def _catch_up(run: WatchedRun) -> None:
    run.read()
    while run.behind:
        run.read()


def _watch(run: WatchedRun, every: float) -> bool:
    """Show the run again and again; return whether it is over."""
    console = console_on(sys.stdout)
    with _exit_on_signals(), Live(console=console, screen=True, auto_refresh=False) as live:
        while (size := _size()) is not None:  # the terminal is still there
            run.read()
            width, height = size
            live.update(Cut(top_lines(run, width - 1, height)[:height]), refresh=True)
            if run.state.is_over and not run.behind:
                return True
            time.sleep(_READING if run.behind else min(every, _LONGEST_SLEEP))
    return False


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on signals that end a process, so that the terminal is restored."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _size(descriptor: int | None = None) -> tuple[int, int] | None:
    """Return the columns and lines of a terminal, by default of standard output."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno() if descriptor is None else descriptor)
    except (OSError, ValueError):
        return None
    return (found.columns or 80, found.lines or 24)


def _columns_of_reader() -> int:
    """Return the columns of the reader's terminal, also through a pipe."""
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", "0"))) > 0:
            return columns
    return next((size[0] for each in (None, 2, 0) if (size := _size(each))), _WIDTH)
