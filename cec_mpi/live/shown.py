"""Progress of one piece of work: lines drawn anew on a terminal, or a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cec_mpi.live.ways import LIVE, Pace, Way, way_to_show
from cec_mpi.live.words import clock
from cec_mpi.terminal import tell

if TYPE_CHECKING:
    from rich.console import RenderableType

_TICK = 1.0  # seconds between two looks whether a line is due
_DRAWINGS = 4  # a second


class View(Protocol):
    """What can be shown of work."""

    def line(self) -> str:
        """One line, in a file."""

    def lines(self, width: int, height: int, is_plain: bool) -> Iterable[RenderableType]:
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
    """Lines on the terminal of standard error; what else is printed appears above them."""
    from rich.live import Live  # read only where it is needed

    from cec_mpi.live.console import Cut, console_on, is_plain

    console = console_on(sys.stderr)

    def lines() -> RenderableType:
        with lock:
            size = console.width - 1, console.height - 1
            return Cut(list(view.lines(*size, is_plain(console.encoding)))[: max(1, size[1])])

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
    """A line now and then."""
    over, begin = threading.Event(), time.monotonic()
    pace = Pace(way, begin)

    def look() -> None:
        while not over.wait(_TICK):
            now = time.monotonic()
            if pace.due(now):
                with lock:
                    line = view.line()
                tell(f"cec-mpi: {line}, {clock(now - begin)} so far")

    thread = threading.Thread(target=look, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
