"""What ``top`` shows: the progress of a run, and a line for each machine."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cec_mpi.report.live.seen import Seen
from cec_mpi.report.live.steps import (
    STYLES,
    TIMED,
    event_line,
    head_line,
    machines_line,
    makespan_line,
    states_of,
    titled,
    wait_lines,
)
from cec_mpi.report.live.watched import WatchedRun
from cec_mpi.text import duration, printable

_BESIDE_HOSTS, _BESIDE_SPEEDS, _BESIDE_EVENTS = 48, 64, 100  # columns from which there is room
_TROUBLE = "lost", "given up", "excluded", "late", "wrong"
_LEAST_NAME, _LONGEST_NAME = 8, 24


def top_lines(run: WatchedRun, width: int, height: int | None) -> list[RenderableType]:
    """Return all lines that are shown of a run.

    Parameters
    ----------
    run : WatchedRun
    width : int
        Columns.
    height : int or None
        Lines; None for as many as it takes.
    """
    seen, state = run.seen, run.state
    seen.is_over = state.is_over
    seen.wait(0.0 if state.is_over else run.silent)
    lines: list[RenderableType] = [_title(run, state.words, width)]
    if run.behind:
        lines.append(Text(f"reading its records: {run.behind / 1e6:.0f} MB are left"))
    if seen.last is None:
        return lines
    lines.append(head_line(seen, width))
    lines.append(machines_line(seen, width))
    lines.append(makespan_line(seen, width))
    lines += wait_lines(seen, width)
    if seen.known:
        known = ", ".join(f"{printable(name)} {value:.3g}" for name, value in seen.known.items())
        lines.append(titled("solver", Text(known), width))
    if seen.event is not None:
        lines.append(event_line(seen, width))
    room = None if height is None else height - len(lines) - 2
    return [*lines, Text(""), *_machines(seen, width, room)]


def _title(run: WatchedRun, words: str, width: int) -> RenderableType:
    """Return the end of the directory's name, and the state of the run."""
    name = printable(run.out)
    room = max(_LEAST_NAME, width - len(words) - 2)
    if len(name) > room:
        name = f"...{name[3 - room :]}"
    return Text.assemble((name, "bold"), f": {words}")


def _machines(seen: Seen, width: int, room: int | None) -> Iterable[RenderableType]:
    """Yield a table of machines; without room for all, of those that hold the run up."""
    assert seen.last is not None
    states, hosts = states_of(seen), seen.hosts
    rows, seconds = seen.last.rows, seen.last.seconds
    chosen = [machine for machine in states if 1 <= machine <= len(rows)]
    left_out = 0
    if room is not None and len(chosen) > room:
        chosen.sort(key=lambda n: (states[n] not in _TROUBLE, -seconds[n - 1], n))
        left_out = len(chosen) - max(0, room - 1)
        del chosen[max(0, room - 1) :]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("machine", justify="right", no_wrap=True)
    if width >= _BESIDE_HOSTS:
        table.add_column("host", max_width=_LONGEST_NAME)
    table.add_column("state", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    if width >= _BESIDE_SPEEDS:
        table.add_column("rows/s", justify="right", no_wrap=True)
        table.add_column("available", justify="right", no_wrap=True)
    if width >= _BESIDE_EVENTS:
        table.add_column("last event")
    for n in chosen:
        state = states[n]
        cells = [Text(str(n))]
        if width >= _BESIDE_HOSTS:
            cells.append(_cut(printable(hosts.get(n, ""))))
        cells.append(Text(state, STYLES[state]))
        cells.append(Text(str(rows[n - 1])))
        cells.append(Text(duration(seconds[n - 1]) if state in TIMED else "-"))
        if width >= _BESIDE_SPEEDS:
            speed = seen.rows_per_second(n)
            cells.append(Text("-" if speed is None else f"{speed:,.0f}"))
            cells.append(Text(f"{seen.availability(n):.0%}"))
        if width >= _BESIDE_EVENTS:
            number, event = seen.happened.get(n, (0, ""))
            event = event.removeprefix(f"machine {n} ")
            cells.append(_cut(f"step {number}: {event}" if event else ""))
        table.add_row(*cells)
    yield table
    if left_out:
        yield Text(f"and {left_out} more, which took less time", "dim")


def _cut(text: str) -> Text:
    """Return text that is cut if there is no room, so that numbers stay whole."""
    return Text(text, no_wrap=True, overflow="ellipsis")
