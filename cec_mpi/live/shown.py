"""Progress of one piece of work, shown when it is time: drawn anew, or as a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cec_mpi.live.ways import Pace, Way, terminal_seen, way_to_show
from cec_mpi.live.words import clock
from cec_mpi.terminal import tell

if TYPE_CHECKING:
    from rich.console import RenderableType

_SECONDS_BETWEEN = 0.1  # drawings
_COSTS = 100  # times that what a drawing takes goes by before the next, up to
_MOST_SECONDS_BETWEEN = 1.0
_TICK = 1.0  # seconds between two looks where nothing happens


class View(Protocol):
    """What can be shown of work."""

    def line(self) -> str:
        """One line, in a file."""

    def lines(self, width: int, height: int, is_plain: bool) -> Iterable[RenderableType]:
        """Lines on a terminal of this size."""


class Shower:
    """Shows a view when it is time, also while nothing happens.

    Parameters
    ----------
    view : View
    way : Way
    draw : callable, optional
        Draws it, where it is drawn.

    Attributes
    ----------
    lock : threading.RLock
        Who changes the view holds it: a thread looks at it now and then.
    """

    def __init__(self, view: View, way: Way, draw: Callable[[], None] | None) -> None:
        self._view = view
        self._draw = draw
        self._begin = time.monotonic()
        self._pace = Pace(way, self._begin)
        self._due = self._begin + (_SECONDS_BETWEEN if draw else way.least)
        self.lock = threading.RLock()

    def look(self) -> None:
        """Show it, if it is time."""
        with self.lock:
            self._look()

    @contextmanager
    def looking(self) -> Iterator[Shower]:
        """Look now and then inside."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_TICK):
                self.look()

        thread = threading.Thread(target=look, daemon=True, name="progress")
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        if self._draw is None:
            if self._pace.due(now):
                tell(f"cec-mpi: {self._view.line()}, {clock(now - self._begin)} so far")
            return
        self._draw()
        drawn = time.monotonic()
        between = min(_MOST_SECONDS_BETWEEN, _COSTS * (drawn - now))
        self._due = drawn + max(_SECONDS_BETWEEN, between)


@contextmanager
def shown(view: View, choice: str) -> Iterator[Shower | None]:
    """Give what shows a view when it is time, or None where nothing is to be shown.

    Parameters
    ----------
    view : View
    choice : str
        How, as of `way_to_show`.
    """
    way = way_to_show(choice)
    if way is None:
        yield None
        return
    terminal = terminal_seen() if way.live else None
    if terminal is None:
        with Shower(view, way, None).looking() as shower:
            yield shower
        return
    from cec_mpi.live.screen import Screen  # with rich, which is read only where it is needed

    with Screen(terminal) as screen:

        def draw() -> None:
            screen.draw(view.lines(*terminal.size, screen.is_plain))

        with Shower(view, way, draw).looking() as shower:
            yield shower
