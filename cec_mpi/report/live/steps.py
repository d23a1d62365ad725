"""Progress display of a run, in the process of the run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.report.live.display import AUTO, CHOICES, show
from cec_mpi.report.live.run_state import RunState
from cec_mpi.report.live.words import describe_available, describe_wait, format_clock, format_rate
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.records.step import StepRecord, Waiting
from cec_mpi.text import format_duration, printable, shorten

if TYPE_CHECKING:
    from rich.console import RenderableType

IDLE, WORKING, WRONG, LOST, ENDED = "idle", "works", "wrong", "lost", "ended"
STYLES = {  # of the text of each state
    IDLE: "green",
    WORKING: "green",
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
TIMED_STATES = WORKING, WRONG, ENDED
_BAR = 30  # columns
_MIN_TITLED_WIDTH = 60  # columns from which lines have titles
_TITLE = 10  # columns of a title
_MIN_MULTILINE_HEIGHT = 6  # terminal lines from which several lines are shown


def states_of(state: RunState) -> dict[int, str]:
    """Return the activity of each machine in the last step, or the reason of its absence."""
    step = state.last
    if step is None:
        return dict.fromkeys(state.taking_part, "preempted")
    rows = dict(enumerate(step.rows, start=1))
    activities = {machine: WORKING if rows.get(machine) else IDLE for machine in state.taking_part}
    activities |= {machine: "preempted" for machine in activities if machine not in step.available}
    activities |= {
        machine: reason
        for reason, machines in step.away.items()
        for machine in machines
        if machine in activities
    }
    activities |= {machine: "late" for machine in step.unanswered if machine in activities}
    if state.shortage is not None:
        activities |= {
            machine: reason
            for machine, reason in state.shortage.away.items()
            if machine in activities
        }
    for kind, machine in map(kind_and_machine, [*step.events, *state.unfinished]):
        if kind in STYLES and machine in activities:
            activities[machine] = kind
        elif kind == "joined" and activities.get(machine) in STYLES.keys() - {IDLE, WORKING}:
            activities[machine] = WORKING if rows.get(machine) else IDLE
    if state.is_over:
        activities |= {
            machine: ENDED
            for machine, activity in activities.items()
            if activity in (IDLE, WORKING)
        }
    return activities


class RunView:
    """The display of a run.

    Parameters
    ----------
    state : RunState
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._last_update = time.monotonic()

    def update(self, line: StepRecord | Waiting) -> None:
        """Add a step, or a wait for machines."""
        self._state.read(line)
        self._last_update = time.monotonic()

    def line(self) -> str:
        """Return one line."""
        seconds = time.monotonic() - self._last_update
        self._state.set_idle_seconds(seconds)
        if self._state.shortage is not None:
            return describe_wait(self._state.shortage, seconds)
        if self._state.last is None:
            return "no step yet"
        return ", ".join([f"{self._step()}: {self._machines()}", self._makespan(), *self._pace()])

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Yield lines for a terminal of this size."""
        self._state.set_idle_seconds(time.monotonic() - self._last_update)
        yield head_line(self._state, width)
        if self._state.shortage is not None:
            yield waiting_line(self._state.shortage, self._state.seconds_since_step)
        if height < _MIN_MULTILINE_HEIGHT:
            return
        yield machines_line(self._state, width)
        yield makespan_line(self._state, width)
        yield from slow_step_lines(self._state, width)
        if self._state.event is not None:
            yield event_line(self._state, width)

    def _step(self) -> str:
        return describe_step(self._state)

    def _machines(self) -> str:
        assert self._state.last is not None
        return describe_available(len(self._state.last.available), self._state.machines)

    def _makespan(self) -> str:
        assert self._state.last is not None
        measured, predicted = (
            self._state.last.measured_makespan,
            self._state.last.predicted_makespan,
        )
        expected = f" (predicted {1e3 * predicted:.2f})" if predicted else ""
        return f"{1e3 * measured:.2f} ms{expected}"

    def _pace(self) -> list[str]:
        return describe_pace(self._state)


def describe_step(state: RunState) -> str:
    """Return the number of the last step, and the total number if known."""
    number = state.last.step + 1 if state.last is not None else 0
    if state.planned is None:
        return f"step {number}"
    return f"step {number} of {number + max(0, state.planned - state.steps_made)}"


def describe_pace(state: RunState) -> list[str]:
    """Return the rate of steps and the remaining time, if known."""
    words = []
    if state.rate is not None:
        words.append(format_rate(state.rate, "steps"))
    if state.seconds_left is not None:
        words.append(f"{format_clock(round(state.seconds_left))} left")
    return words


def head_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the step, a progress bar, the rate and the remaining time."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    name = printable(state.header.get("task", ""))[:_BAR] if width >= _MIN_TITLED_WIDTH else ""
    words = ", ".join(describe_pace(state))
    left = Text.assemble((f"{name}  " if name else "", "bold"), describe_step(state))
    if state.planned is None:
        return Text.assemble(left, f"  {words}")
    columns = width - 5 - left.cell_len - len(words)
    if columns < 8:
        return Text.assemble(left, f"  {words}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(max(1, state.planned), state.steps_made, width=min(_BAR, columns))
    grid.add_row(left, bar, Text(words))
    return grid


def machines_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the number of available machines."""
    from rich.text import Text

    latest = state.shortage or state.last
    available = 0 if latest is None else len(latest.available)
    words = f"{available} of {len(state.taking_part)} available"
    if state.is_over:
        words += " in the last step"
    return with_title("machines", Text(words), width)


def waiting_line(waiting: Waiting, seconds: float) -> RenderableType:
    """Return a line about a wait for machines."""
    from rich.text import Text

    return Text(describe_wait(waiting, seconds), "bold yellow")


def makespan_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the median makespan of recent steps."""
    from rich.text import Text

    text = "none yet" if state.makespan is None else format_duration(state.makespan)
    return with_title("makespan", Text(text), width)


def slow_step_lines(state: RunState, width: int) -> Iterable[RenderableType]:
    """Yield a line with the time since the last step, if steps are slow."""
    from rich.text import Text

    if state.is_slow and not state.is_over:
        words = format_clock(state.seconds_since_step)
        yield with_title(
            "next step", Text(words if width >= _MIN_TITLED_WIDTH else f"next step {words}"), width
        )


def event_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the last event."""
    from rich.text import Text

    assert state.event is not None
    number, words = state.event
    return with_title("last event", Text(f"step {number}: {words}"), width)


def with_title(title: str, text: Any, width: int) -> RenderableType:
    """Return a line with its title if that fits."""
    from rich.text import Text

    return (
        Text.assemble((f"{title:{_TITLE}} ", "dim"), text) if width >= _MIN_TITLED_WIDTH else text
    )


@contextmanager
def show_progress(recorder: Recorder, choice: str = AUTO) -> Iterator[None]:
    """Show the steps of an operator within a ``with`` statement.

    The display is redrawn on a terminal or below the cell of a notebook. Elsewhere a line is
    printed at intervals.

    Parameters
    ----------
    recorder : Recorder
        Recorder with which the operator is opened.
    choice : {"auto", "plain", "off"}
        "plain" prints lines instead of redrawing, "off" shows nothing.

    Raises
    ------
    InputError
        It is not a recorder, or the choice is unknown.

    Examples
    --------
    ::

        recorder = cec_mpi.records.Recorder()
        with cec_mpi.show_progress(recorder):
            X = cec_mpi.open_operator("store", accept="run.json", recorder=recorder)
            u, s, vt = svds(X, k=5)
    """
    if not isinstance(recorder, Recorder):
        raise InputError(
            f"recorder {shorten(recorder)}: expected the Recorder with which the operator is opened"
        )
    if choice not in CHOICES:
        raise InputError(f"choice {shorten(choice)}: expected {', '.join(CHOICES)}")
    state = RunState(recorder.common)
    view = RunView(state)
    with show(view, choice) as lock:
        if lock is None:
            yield
            return

        def update(record: StepRecord | Waiting) -> None:
            with lock:
                if state.header is not recorder.common:  # the operator was opened meanwhile
                    state.begin(recorder.common)
                view.update(record)

        recorder.watch(update)
        try:
            yield
        finally:
            recorder.unwatch(update)
