"""``cec-mpi top``: show a run of another process, from its files."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live

from cec_mpi.report.live.console import PLAIN_TEXT, TruncatedLines, render_lines, safe_console
from cec_mpi.report.live.table import top_lines
from cec_mpi.report.live.watched_run import WatchedRun
from cec_mpi.runtime.processes.ending import exit_on_signal
from cec_mpi.text.terminal import print_result

_READING_INTERVAL = 0.1  # seconds between updates until all records are read
_TERMINATION_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
_MAX_SLEEP = 3600.0  # seconds
_DEFAULT_WIDTH = 100  # columns


def top(directory: Path, interval: float, once: bool) -> None:
    """Show a run until it ends or Ctrl-C is pressed.

    Parameters
    ----------
    directory : Path
        Directory of the run.
    interval : float
        Seconds between updates.
    once : bool
        Whether to show the run once and return; implied if standard output is not a terminal.

    Raises
    ------
    InputError
        The directory contains no run, or its records are invalid.
    """
    run = WatchedRun(directory)
    console = Console(**PLAIN_TEXT)
    if not once and console.is_terminal and not console.is_dumb_terminal:
        with suppress(KeyboardInterrupt):
            if not _watch(run, interval):
                return
    run.read()
    while run.unread_bytes:
        run.read()
    _print(run, console)


def _print(run: WatchedRun, console: Console) -> None:
    width = _user_columns() - console.is_terminal
    lines = top_lines(run, width, None)
    text = render_lines(lines, width, console.encoding, with_styles=console.is_terminal)
    print_result("\n".join(line.rstrip() for line in text.splitlines()))


def _watch(run: WatchedRun, interval: float) -> bool:
    """Update the display until the run ends; return False if the terminal was lost."""
    console = safe_console(sys.stdout)
    with _exit_on_signals(), Live(console=console, screen=True, auto_refresh=False) as live:
        while (size := _terminal_size()) is not None:
            run.read()
            width, height = size
            live.update(TruncatedLines(top_lines(run, width - 1, height)[:height]), refresh=True)
            if run.status.is_over and not run.unread_bytes:
                return True
            time.sleep(_READING_INTERVAL if run.unread_bytes else min(interval, _MAX_SLEEP))
    return False


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on termination signals, so that the terminal is restored."""
    previous_handlers = {
        number: signal.signal(number, exit_on_signal) for number in _TERMINATION_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _terminal_size(descriptor: int | None = None) -> tuple[int, int] | None:
    """Return columns and lines of a terminal (by default standard output); None if it is lost."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno() if descriptor is None else descriptor)
    except (OSError, ValueError):
        return None
    return (size.columns or 80, size.lines or 24)


def _user_columns() -> int:
    """Return the columns of the user's terminal, even if standard output is a pipe."""
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", "0"))) > 0:
            return columns
    return next(
        (size[0] for descriptor in (None, 2, 0) if (size := _terminal_size(descriptor))),
        _DEFAULT_WIDTH,
    )
