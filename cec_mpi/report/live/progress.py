"""The progress display of a run, in the process of its master."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.report.live.descriptions import (
    describe_wait,
    format_clock,
    format_rate,
)
from cec_mpi.report.live.display import AUTO, CHOICES, show
from cec_mpi.report.live.run_state import RunState
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.records.step import StepRecord, Waiting, reasons_by_machine
from cec_mpi.text import format_duration, plural, printable, shorten

if TYPE_CHECKING:
    from rich.console import RenderableType

IDLE, WORKING, WRONG, LOST, ENDED = "idle", "working", "wrong", "lost", "ended"
STYLES = {  # by state
    IDLE: "green",
    WORKING: "green",
    ENDED: "dim",
    "preempted": "dim",
    "not joined": "dim",
    "left": "dim",
    "late": "yellow",
    WRONG: "bold yellow",
    "excluded": "bold red",
    "unresponsive": "bold red",
    LOST: "bold red",
}
TIMED_STATES = WORKING, WRONG, ENDED  # show the time of the last step
_BAR_WIDTH = 30  # columns
_MIN_TITLED_WIDTH = 60  # columns; narrower displays omit titles
_TITLE_WIDTH = 10  # columns
_MIN_MULTILINE_HEIGHT = 6  # terminal lines; lower displays show only the head and a wait


def machine_states(run: RunState) -> dict[int, str]:
    """Return the state of each machine in the last step, or the reason for its absence.

    Before the first step, each machine is "preempted".
    """
    step = run.last_step
    if step is None:
        return dict.fromkeys(run.participants, "preempted")
    rows = dict(enumerate(step.rows, start=1))
    states = {machine: WORKING if rows.get(machine) else IDLE for machine in run.participants}
    states |= {machine: "preempted" for machine in states if machine not in step.available}
    reasons = reasons_by_machine(step.absent_since) | dict.fromkeys(step.unanswered, "late")
    if run.shortage is not None:
        reasons |= run.shortage.absence_reasons
    states |= {machine: reason for machine, reason in reasons.items() if machine in states}
    for kind, machine in map(kind_and_machine, [*step.events, *run.unfinished_events]):
        if kind in STYLES and machine in states:
            states[machine] = kind
        elif kind == "joined" and states.get(machine) in STYLES.keys() - {IDLE, WORKING}:
            states[machine] = WORKING if rows.get(machine) else IDLE
    if run.is_over:
        states |= {machine: ENDED for machine, state in states.items() if state in (IDLE, WORKING)}
    return states


class RunView:
    """The lines that show a run."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._last_update = time.monotonic()

    def update(self, record: StepRecord | Waiting) -> None:
        """Add a step, or a wait for machines, to the state."""
        self._state.add(record)
        self._last_update = time.monotonic()

    def line(self) -> str:
        """Return one line."""
        seconds = time.monotonic() - self._last_update
        self._state.set_seconds_since_step(seconds)
        if self._state.shortage is not None:
            return describe_wait(self._state.shortage, seconds)
        if self._state.last_step is None:
            return "no step yet"
        last = self._state.last_step
        machines = f"{len(last.available)} of {plural(self._state.machines, 'machine')}"
        predicted = last.predicted_makespan
        predicted_text = f" (predicted {1e3 * predicted:.2f})" if predicted else ""
        makespan = f"{1e3 * last.measured_makespan:.2f} ms{predicted_text}"
        head = f"{describe_step(self._state)}: {machines}"
        return ", ".join([head, makespan, *describe_pace(self._state)])

    def lines(self, width: int, height: int) -> Iterable[RenderableType]:
        """Yield lines for a terminal of this size."""
        from rich.text import Text

        self._state.set_seconds_since_step(time.monotonic() - self._last_update)
        yield head_line(self._state, width)
        if self._state.shortage is not None:
            text = describe_wait(self._state.shortage, self._state.seconds_since_step)
            yield Text(text, "bold yellow")
        if height < _MIN_MULTILINE_HEIGHT:
            return
        yield machines_line(self._state, width)
        yield makespan_line(self._state, width)
        yield from slow_step_lines(self._state, width)
        if self._state.last_event is not None:
            yield event_line(self._state, width)


def describe_step(state: RunState) -> str:
    """Return the number of the last step, and the total number if known."""
    number = state.last_step.step + 1 if state.last_step is not None else 0
    if state.planned_steps is None:
        return f"step {number}"
    return f"step {number} of {number + max(0, state.planned_steps - state.completed_steps)}"


def describe_pace(state: RunState) -> list[str]:
    """Return the rate of steps and the remaining time, if they are known."""
    texts = []
    if state.rate is not None:
        texts.append(format_rate(state.rate))
    if state.seconds_left is not None:
        texts.append(f"{format_clock(round(state.seconds_left))} left")
    return texts


def head_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the step, a progress bar, the rate and the remaining time."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    name = (
        printable(state.header.get("task", ""))[:_BAR_WIDTH] if width >= _MIN_TITLED_WIDTH else ""
    )
    pace = ", ".join(describe_pace(state))
    left = Text.assemble((f"{name}  " if name else "", "bold"), describe_step(state))
    columns = width - 5 - left.cell_len - len(pace)
    if state.planned_steps is None or columns < 8:
        return Text.assemble(left, f"  {pace}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(
        max(1, state.planned_steps), state.completed_steps, width=min(_BAR_WIDTH, columns)
    )
    grid.add_row(left, bar, Text(pace))
    return grid


def machines_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the number of available machines."""
    from rich.text import Text

    latest = state.shortage or state.last_step
    available = 0 if latest is None else len(latest.available)
    text = f"{available} of {len(state.participants)} available"
    if state.is_over:
        text += " in the last step"
    return add_title("machines", Text(text), width)


def makespan_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the median makespan of recent steps."""
    from rich.text import Text

    text = "none yet" if state.median_makespan is None else format_duration(state.median_makespan)
    return add_title("makespan", Text(text), width)


def slow_step_lines(state: RunState, width: int) -> Iterable[RenderableType]:
    """Yield a line with the time since the last step if steps are slow."""
    from rich.text import Text

    if state.is_slow and not state.is_over:
        clock = format_clock(state.seconds_since_step)
        yield add_title(
            "next step", Text(clock if width >= _MIN_TITLED_WIDTH else f"next step {clock}"), width
        )


def event_line(state: RunState, width: int) -> RenderableType:
    """Return a line with the last event."""
    from rich.text import Text

    assert state.last_event is not None
    step, text = state.last_event
    return add_title("last event", Text(f"step {step}: {text}"), width)


def add_title(title: str, text: Any, width: int) -> RenderableType:
    """Return a line, with its title if the display is wide enough."""
    from rich.text import Text

    return (
        Text.assemble((f"{title:{_TITLE_WIDTH}} ", "dim"), text)
        if width >= _MIN_TITLED_WIDTH
        else text
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
        `recorder` is not a Recorder, or the choice is unknown.

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
    state = RunState(recorder.header)
    view = RunView(state)
    with show(view, choice) as lock:
        if lock is None:
            yield
            return

        def update(record: StepRecord | Waiting) -> None:
            with lock:
                if state.header is not recorder.header:  # the operator has been opened
                    state.begin(recorder.header)
                view.update(record)

        recorder.watch(update)
        try:
            yield
        finally:
            recorder.unwatch(update)
