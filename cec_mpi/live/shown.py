"""Progress of one piece of work, shown when it is time: drawn anew, or as a line now and then."""

from __future__ import annotations

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


class View(Protocol):
    """What can be shown of work."""

    def line(self) -> str:
        """One line, in a file."""

    def lines(self, width: int, height: int, is_plain: bool) -> Iterable[RenderableType]:
        """Lines on a terminal of this size."""


class Shower:
    """Shows a view when it is time.

    Parameters
    ----------
    view : View
    way : Way
    draw : callable, optional
        Draws it, where it is drawn.
    """

    def __init__(self, view: View, way: Way, draw: Callable[[], None] | None) -> None:
        self._view = view
        self._draw = draw
        self._begin = time.monotonic()
        self._pace = Pace(way, self._begin)
        self._due = self._begin + (_SECONDS_BETWEEN if draw else way.least)

    def look(self) -> None:
        """Show it, if it is time."""
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
def shown(view: View, choice: str) -> Iterator[Callable[[], None] | None]:
    """Give a function that shows a view when it is time, or None where nothing is to be shown.

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
        yield Shower(view, way, None).look
        return
    from cec_mpi.live.screen import Screen  # with rich, which is read only where it is needed

    with Screen(terminal) as screen:

        def draw() -> None:
            screen.draw(view.lines(*terminal.size, screen.is_plain))

        yield Shower(view, way, draw).look
