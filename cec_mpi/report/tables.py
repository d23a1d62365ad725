"""Runs as CSV with a row for each step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from cec_mpi.report.breakdown import step_parts
from cec_mpi.report.recorded_run import Run
from cec_mpi.text import printable

_PARTS = ("announce", "share", "compute", "collect", "stall", "decode", "load", "waiting")
_COLUMNS = (
    "step",
    "tick",
    "waited_ticks",
    "adjoint",
    "columns",
    "time",
    "measured_makespan",
    "predicted_makespan",
    "bound",
    "hindsight_makespan",
    "condition",
    "cancellation",
    "bytes",
    "plan_changed",
    "available",
)
_WHOLE = {"step", "tick", "waited_ticks", "adjoint", "columns", "bytes", "plan_changed"}
_WHOLE |= {"available"}


def steps_csv(runs: Sequence[Run]) -> bytes:
    """Return CSV with a header and a row for each step; the first column names the run.

    Times are in seconds; ``time`` is since the start of the run, without the time between its
    parts. Unknown numbers are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = [f"{name}_seconds" for name in _PARTS]
    writer.writerow(["run", *_COLUMNS, *parts, "events"])
    for run in runs:
        spent = step_parts(run)
        found = [run.numbers[name].tolist() for name in _COLUMNS]
        found += [spent[name].tolist() for name in _PARTS]
        events: dict[int, int] = {}
        for step, *_ in run.events:
            events[step] = events.get(step, 0) + 1
        names = [*_COLUMNS, *parts]
        for values in zip(*found, strict=True):
            cells = [_cell(name, value) for name, value in zip(names, values, strict=True)]
            step = int(values[0])
            writer.writerow([_safe_name(run.name), *cells, events.get(step, 0)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(name: str, value: float) -> str:
    if value != value:
        return ""
    return str(int(value)) if name in _WHOLE else repr(value)


def _safe_name(name: str) -> str:
    """Return a name that neither a spreadsheet nor a terminal interprets."""
    name = printable(name)
    return f"'{name}" if name[:1] in "=+-@\t\r" else name
