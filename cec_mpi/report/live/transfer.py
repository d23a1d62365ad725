"""Progress of encode and of commands that check or change stores, in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cec_mpi.report.live.descriptions import format_clock
from cec_mpi.report.live.display import show

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 30  # columns
_MIN_SECONDS = 0.5  # a shorter transfer shows no rate


class TransferView:
    """The line that shows the progress of an activity such as encode."""

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._start = 0.0
        self._initial_bytes = 0  # done at the start
        self.done = self.total = 0  # bytes

    def update(self, done: int, total: int) -> None:
        """Set the number of transferred bytes, and the total."""
        if total != self.total or done < self.done:  # a new transfer
            self._start, self._initial_bytes = time.monotonic(), done
        self.done, self.total = done, total

    def line(self) -> str:
        """Return one line."""
        return f"{self._activity} {self._fraction():.0%} of {self._size_and_rate()}"

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Return a line, with a bar if it fits."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        name, status = (
            Text(self._activity, "bold"),
            f"{self._fraction():4.0%} of {self._size_and_rate()}",
        )
        columns = width - 5 - name.cell_len - len(status)
        if columns < 8:
            return [Text.assemble(name, " ", status.strip())]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(
            name, ProgressBar(self.total, self.done, width=min(_BAR_WIDTH, columns)), Text(status)
        )
        return [grid]

    def _fraction(self) -> float:
        return self.done / self.total if self.total else 1.0

    def _size_and_rate(self) -> str:
        """Return the size and, if known, the rate and the remaining time."""
        seconds = time.monotonic() - self._start
        size, done = f"{self.total / 1e9:.2f} GB", self.done - self._initial_bytes
        if not done or seconds < _MIN_SECONDS:
            return size
        rate = done / seconds
        return (
            f"{size}, {rate / 1e6:.0f} MB/s, {format_clock((self.total - self.done) / rate)} left"
        )


@contextmanager
def show_transfer(activity: str, choice: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield the function to call with transferred and total bytes, or None if nothing is shown.

    Parameters
    ----------
    activity : str
        Name of the activity; empty on ranks that show nothing.
    choice : str
        See `choose_display`.
    """
    if not activity:
        yield None
        return
    view = TransferView(activity)
    with show(view, choice) as lock:
        if lock is None:
            yield None
            return

        def on_progress(done: int, total: int) -> None:
            with lock:
                view.update(done, total)

        yield on_progress
