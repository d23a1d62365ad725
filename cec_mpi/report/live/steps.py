"""What is shown of a run by the process that makes its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cec_mpi.report.live.seen import Seen
from cec_mpi.report.live.shown import shown
from cec_mpi.report.live.words import available_words, clock, frequency, waiting_words
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import StepRecord, Waiting
from cec_mpi.text import duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

IDLE, WORKS, WRONG, LOST, ENDED = "idle", "works", "wrong", "lost", "ended"
STYLES = {  # of states
    IDLE: "green",
    WORKS: "green",
    ENDED: "dim",
    "preempted": "dim",
    "not joined": "dim",
    "left": "dim",
    "late": "yellow",
    WRONG: "bold yellow",
    "excluded": "bold red",
    "given up": "bold red",
    LOST: "bold red",
}
TIMED = WORKS, WRONG, ENDED
_BAR = 30  # columns
_WIDE = 60  # columns from which lines have titles
_TITLE = 10  # columns of one
_HIGH = 6  # lines from which there is room for more than one


def states_of(seen: Seen) -> dict[int, str]:
    """Return what each machine that takes part did in the last step, or why it is away."""
    step = seen.last
    if step is None:
        return dict.fromkeys(seen.taking_part, "preempted")
    rows = dict(enumerate(step.rows, start=1))
    found = {n: WORKS if rows.get(n) else IDLE for n in seen.taking_part}
    found |= {n: "preempted" for n in found if n not in step.available}
    found |= {n: why for why, those in step.away.items() for n in those if n in found}
    found |= {n: "late" for n in step.unanswered if n in found}
    if seen.short is not None:
        found |= {n: why for n, why in seen.short.away.items() if n in found}
    for kind, n in map(kind_and_machine, [*step.events, *seen.unfinished]):
        if kind in STYLES and n in found:
            found[n] = kind
        elif kind == "joined" and found.get(n) in STYLES.keys() - {IDLE, WORKS}:
            found[n] = WORKS if rows.get(n) else IDLE
    if seen.is_over:
        found |= {n: ENDED for n, state in found.items() if state in (IDLE, WORKS)}
    return found


class RunView:
    """What is shown of a run.

    Parameters
    ----------
    seen : Seen
    """

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._since = time.monotonic()

    def take(self, line: StepRecord | Waiting) -> None:
        """Take a step, or a wait for machines."""
        self._seen.read(line)
        self._since = time.monotonic()

    def line(self) -> str:
        """One line."""
        seconds = time.monotonic() - self._since
        self._seen.wait(seconds)
        if self._seen.short is not None:
            return waiting_words(self._seen.short, seconds)
        if self._seen.last is None:
            return "no step yet"
        return ", ".join([f"{self._step()}: {self._machines()}", self._makespan(), *self._pace()])

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Lines on a terminal of this size."""
        self._seen.wait(time.monotonic() - self._since)
        yield head_line(self._seen, width)
        if self._seen.short is not None:
            yield waiting_line(self._seen.short, self._seen.waiting)
        if height < _HIGH:
            return
        yield machines_line(self._seen, width)
        yield makespan_line(self._seen, width)
        yield from wait_lines(self._seen, width)
        if self._seen.event is not None:
            yield event_line(self._seen, width)

    def _step(self) -> str:
        return step_words(self._seen)

    def _machines(self) -> str:
        assert self._seen.last is not None
        return available_words(len(self._seen.last.available), self._seen.machines)

    def _makespan(self) -> str:
        assert self._seen.last is not None
        measured, predicted = self._seen.last.measured_makespan, self._seen.last.predicted_makespan
        expected = f" (predicted {1e3 * predicted:.2f})" if predicted else ""
        return f"{1e3 * measured:.2f} ms{expected}"

    def _pace(self) -> list[str]:
        return pace_words(self._seen)


def step_words(seen: Seen) -> str:
    """Return the number of the last step, and of how many if that is known."""
    number = seen.last.step + 1 if seen.last is not None else 0
    if seen.planned is None:
        return f"step {number}"
    return f"step {number} of {number + max(0, seen.planned - seen.made)}"


def pace_words(seen: Seen) -> list[str]:
    """Return the rate of steps and the time left, if they are known."""
    words = []
    if seen.rate is not None:
        words.append(frequency(seen.rate, "steps"))
    if seen.seconds_left is not None:
        words.append(f"{clock(round(seen.seconds_left))} left")
    return words


def head_line(seen: Seen, width: int) -> RenderableType:
    """Step, bar, rate and time left."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    name = printable(seen.header.get("task", ""))[:_BAR] if width >= _WIDE else ""
    words = ", ".join(pace_words(seen))
    left = Text.assemble((f"{name}  " if name else "", "bold"), step_words(seen))
    if seen.planned is None:
        return Text.assemble(left, f"  {words}")
    room = width - 5 - left.cell_len - len(words)
    if room < 8:
        return Text.assemble(left, f"  {words}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(max(1, seen.planned), seen.made, width=min(_BAR, room))
    grid.add_row(left, bar, Text(words))
    return grid


def machines_line(seen: Seen, width: int) -> RenderableType:
    """How many machines are available."""
    from rich.text import Text

    known = seen.short or seen.last
    available = 0 if known is None else len(known.available)
    words = f"{available} of {len(seen.taking_part)} available"
    if seen.is_over:
        words += " in the last step"
    return titled("machines", Text(words), width)


def waiting_line(waiting: Waiting, seconds: float) -> RenderableType:
    """What the run waits for."""
    from rich.text import Text

    return Text(waiting_words(waiting, seconds), "bold yellow")


def makespan_line(seen: Seen, width: int) -> RenderableType:
    """The median makespan of recent steps."""
    from rich.text import Text

    text = "none yet" if seen.makespan is None else duration(seen.makespan)
    return titled("makespan", Text(text), width)


def wait_lines(seen: Seen, width: int) -> Iterable[RenderableType]:
    """Yield how long the next step has taken so far, if steps are slow."""
    from rich.text import Text

    if seen.is_slow and not seen.is_over:
        words = clock(seen.waiting)
        yield titled("next step", Text(words if width >= _WIDE else f"next step {words}"), width)


def event_line(seen: Seen, width: int) -> RenderableType:
    """What happened last."""
    from rich.text import Text

    assert seen.event is not None
    number, words = seen.event
    return titled("last event", Text(f"step {number}: {words}"), width)


def titled(title: str, text: Any, width: int) -> RenderableType:
    """Return a line after a title, if there is room for titles."""
    from rich.text import Text

    return Text.assemble((f"{title:{_TITLE}} ", "dim"), text) if width >= _WIDE else text


@contextmanager
def progress(
    header: Mapping[str, Any], choice: str
) -> Iterator[Callable[[StepRecord | Waiting], None] | None]:
    """Yield a function that takes each record, or None if nothing is shown.

    Parameters
    ----------
    header : mapping
        What the records have in common.
    choice : str
        How it is shown, as of `way_to_show`.
    """
    view = RunView(Seen(header))
    with shown(view, choice) as lock:
        if lock is None:
            yield None
            return

        def watch(record: StepRecord | Waiting) -> None:
            with lock:
                view.take(record)

        yield watch
