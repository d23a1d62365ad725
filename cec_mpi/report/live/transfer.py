"""Progress of encode, verify, repair and decode, in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cec_mpi.report.live.shown import shown
from cec_mpi.report.live.words import clock

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR = 30  # columns
_SHORTEST = 0.5  # seconds that a rate is of


class TransferView:
    """What is shown of a transfer.

    Parameters
    ----------
    doing : str
        What is being done.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._begin = 0.0
        self._first = 0  # bytes that were done then
        self.done = self.total = 0

    def note(self, done: int, total: int) -> None:
        """Set how many bytes are done."""
        if total != self.total or done < self.done:  # another work of the same command
            self._begin, self._first = time.monotonic(), done
        self.done, self.total = done, total

    def line(self) -> str:
        """One line."""
        return f"{self._doing} {self._part():.0%} of {self._figures()}"

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Yield a line, with a bar if there is room for one."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        name, words = Text(self._doing, "bold"), f"{self._part():4.0%} of {self._figures()}"
        room = width - 5 - name.cell_len - len(words)
        if room < 8:
            return [Text.assemble(name, " ", words.strip())]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(name, ProgressBar(self.total, self.done, width=min(_BAR, room)), Text(words))
        return [grid]

    def _part(self) -> float:
        return self.done / self.total if self.total else 1.0

    def _figures(self) -> str:
        seconds = time.monotonic() - self._begin
        size, done = f"{self.total / 1e9:.2f} GB", self.done - self._first
        if not done or seconds < _SHORTEST:
            return size
        rate = done / seconds
        return f"{size}, {rate / 1e6:.0f} MB/s, {clock((self.total - self.done) / rate)} left"


@contextmanager
def transfer(doing: str, choice: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes bytes done and bytes in all, or None if nothing is shown.

    Parameters
    ----------
    doing : str
        What is being done; empty on ranks that show nothing.
    choice : str
        How it is shown, as of `way_to_show`.
    """
    if not doing:
        yield None
        return
    view = TransferView(doing)
    with shown(view, choice) as lock:
        if lock is None:
            yield None
            return

        def watch(done: int, total: int) -> None:
            with lock:
                view.note(done, total)

        yield watch
