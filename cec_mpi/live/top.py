"""``cec-mpi top``: a run that is going elsewhere, shown from its files."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from cec_mpi.live.screen import is_plain, rendered
from cec_mpi.live.table import top_lines
from cec_mpi.live.watched import WatchedRun
from cec_mpi.terminal import put

_READING = 0.1  # seconds between two looks while records are still being read
_WIDTH = 100  # columns, where there is no terminal
_LONGEST_SLEEP = 3600.0
_LEAVES = b"qQ\x03\x04"


def top(out: Path, every: float, once: bool) -> None:
    """Show a run until it is over, or until q or Ctrl-C is pressed.

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
        There is no run, or its records are none.
    """
    run = WatchedRun(out)
    console = Console(markup=False, highlight=False, emoji=False, legacy_windows=False)
    if not once and console.is_terminal and not console.is_dumb_terminal:
        with suppress(KeyboardInterrupt):
            if not _watch(run, console, every):
                return
    _catch_up(run)
    _show(run, console)


def _show(run: WatchedRun, console: Console) -> None:
    """Print it as it is."""
    encoding = console.encoding
    width = _size()[0] - 1 if console.is_terminal else _WIDTH
    lines = top_lines(run, width, None, is_plain(encoding))
    text = rendered(lines, width, encoding, is_terminal=console.is_terminal)
    put("\n".join(line.rstrip() for line in text.splitlines()))


def _sleep(seconds: float) -> bool:
    time.sleep(min(seconds, _LONGEST_SLEEP))
    return False


def _catch_up(run: WatchedRun) -> None:
    run.read()
    while run.behind:
        run.read()


def _watch(run: WatchedRun, console: Console, every: float) -> bool:
    """Show it anew now and then; returns whether it came to its end meanwhile."""
    with _own_screen(console), _keys() as pressed:
        while True:
            run.read()
            width, height = _size()
            lines = top_lines(run, width - 1, height, is_plain(console.encoding))
            shown = rendered(lines, width - 1, console.encoding).splitlines()[:height]
            sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in shown) + "\x1b[J")
            sys.stdout.flush()
            if run.state.is_over and not run.behind:
                return True
            if pressed(_READING if run.behind else every):
                return False


@contextmanager
def _own_screen(console: Console) -> Iterator[None]:
    """Have a screen of one's own, without a cursor; the one that was there comes back."""
    console.set_alt_screen(True)
    console.show_cursor(False)
    try:
        yield
    finally:
        console.show_cursor(True)
        console.set_alt_screen(False)


def _size() -> tuple[int, int]:
    """Columns and lines of the terminal, as they are now."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        found = os.terminal_size((0, 0))
    return found.columns or 80, found.lines or 24


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits so long, and says whether a key that leaves was pressed."""
    import termios
    import tty

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, AttributeError, termios.error):  # no terminal
        yield _sleep
        return

    def pressed(seconds: float) -> bool:
        by = time.monotonic() + seconds
        while (left := by - time.monotonic()) > 0:
            if not select.select([descriptor], [], [], min(left, _LONGEST_SLEEP))[0]:
                continue
            found = os.read(descriptor, 64)
            if not found or any(key in _LEAVES for key in found):
                return True
        return False

    tty.setcbreak(descriptor)
    own = termios.tcgetattr(descriptor)
    own[6][termios.VSUSP] = b"\0"  # who stops it would be left with this screen
    termios.tcsetattr(descriptor, termios.TCSANOW, own)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
