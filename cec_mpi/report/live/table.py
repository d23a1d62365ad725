"""The display of ``top``: the progress of a run, and a line for each machine."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cec_mpi.report.live.progress import (
    STYLES,
    TIMED_STATES,
    add_title,
    event_line,
    head_line,
    machine_states,
    machines_line,
    makespan_line,
    slow_step_lines,
)
from cec_mpi.report.live.run_state import RunState
from cec_mpi.report.live.watched_run import WatchedRun
from cec_mpi.text import format_duration, plural, printable

# Minimum widths of terminals for these columns.
_WIDTH_WITH_HOSTS, _WIDTH_WITH_SPEEDS, _WIDTH_WITH_PIDS, _WIDTH_WITH_EVENTS = 48, 64, 74, 100
_PROBLEM_STATES = "lost", "unresponsive", "excluded", "late", "wrong"
_MIN_NAME_WIDTH, _MAX_NAME_LENGTH = 8, 24


def top_lines(run: WatchedRun, width: int, height: int | None) -> list[RenderableType]:
    """Return the lines of the display of a run.

    Parameters
    ----------
    run : WatchedRun
    width : int
        Columns.
    height : int or None
        Lines; None for no limit.
    """
    state, status = run.state, run.status
    state.is_over = status.is_over
    state.set_seconds_since_step(0.0 if status.is_over else run.seconds_since_growth)
    lines: list[RenderableType] = [_title(run, status.text, width)]
    if run.unread_bytes:
        lines.append(Text(f"reading the records: {run.unread_bytes / 1e6:.0f} MB left"))
    if state.last_step is None:
        return lines
    lines.append(head_line(state, width))
    lines.append(machines_line(state, width))
    lines.append(makespan_line(state, width))
    lines += slow_step_lines(state, width)
    if state.progress:
        progress = ", ".join(
            f"{printable(name)} {value:.3g}" for name, value in state.progress.items()
        )
        lines.append(add_title("solver", Text(progress), width))
    if state.last_event is not None:
        lines.append(event_line(state, width))
    max_lines = None if height is None else height - len(lines) - 2
    return [*lines, Text(""), *_machine_table(state, width, max_lines)]


def _title(run: WatchedRun, status: str, width: int) -> RenderableType:
    """Return the directory, truncated at its beginning, and the status of the run."""
    name = printable(run.out)
    columns = max(_MIN_NAME_WIDTH, width - len(status) - 2)
    if len(name) > columns:
        name = f"...{name[3 - columns :]}"
    return Text.assemble((name, "bold"), f": {status}")


def _machine_table(
    run_state: RunState, width: int, max_lines: int | None
) -> Iterable[RenderableType]:
    """Yield a table of machines; if not all fit, those with problems and the slowest."""
    assert run_state.last_step is not None
    states, hosts, pids = machine_states(run_state), run_state.hosts, run_state.pids
    has_pids = width >= _WIDTH_WITH_PIDS and any(pids.values())
    rows, seconds = run_state.last_step.rows, run_state.last_step.compute_seconds
    shown = [machine for machine in states if 1 <= machine <= len(rows)]
    omitted = 0
    if max_lines is not None and len(shown) > max_lines:
        shown.sort(key=lambda n: (states[n] not in _PROBLEM_STATES, -seconds[n - 1], n))
        omitted = len(shown) - max(0, max_lines - 1)
        del shown[max(0, max_lines - 1) :]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("machine", justify="right", no_wrap=True)
    if width >= _WIDTH_WITH_HOSTS:
        table.add_column("host", max_width=_MAX_NAME_LENGTH)
    if has_pids:
        table.add_column("process", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    if width >= _WIDTH_WITH_SPEEDS:
        table.add_column("rows/s", justify="right", no_wrap=True)
        table.add_column("available", justify="right", no_wrap=True)
    if width >= _WIDTH_WITH_EVENTS:
        table.add_column("last event")
    for n in shown:
        state = states[n]
        cells = [Text(str(n))]
        if width >= _WIDTH_WITH_HOSTS:
            cells.append(_make_truncatable(printable(hosts.get(n, ""))))
        if has_pids:
            cells.append(Text(str(pids.get(n) or "-")))
        cells.append(Text(state, STYLES[state]))
        cells.append(Text(str(rows[n - 1])))
        cells.append(Text(format_duration(seconds[n - 1]) if state in TIMED_STATES else "-"))
        if width >= _WIDTH_WITH_SPEEDS:
            speed = run_state.rows_per_second(n)
            cells.append(Text("-" if speed is None else f"{speed:,.0f}"))
            cells.append(Text(f"{run_state.available_fraction(n):.0%}"))
        if width >= _WIDTH_WITH_EVENTS:
            number, event = run_state.last_events.get(n, (0, ""))
            event = event.removeprefix(f"machine {n} ")
            cells.append(_make_truncatable(f"step {number}: {event}" if event else ""))
        table.add_row(*cells)
    yield table
    if omitted:
        yield Text(f"and {plural(omitted, 'more machine')}", "dim")


def _make_truncatable(text: str) -> Text:
    """Return text that a narrow column truncates, because only numbers must be complete."""
    return Text(text, no_wrap=True, overflow="ellipsis")
