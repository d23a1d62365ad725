"""Tables of the steps of runs in CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
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
    "makespan_bound",
    "hindsight_makespan",
    "condition_number",
    "cancellation",
    "payload_bytes",
    "plan_changed",
    "available",
)
_INTEGER_COLUMNS = {
    "step",
    "tick",
    "waited_ticks",
    "adjoint",
    "columns",
    "payload_bytes",
    "plan_changed",
    "available",
}


def steps_csv(runs: Sequence[Run]) -> bytes:
    """Return a CSV table with a row for each step; the first column is the name of the run.

    Times are in seconds; ``time`` counts from the start of the run, without the time between its
    parts. Cells of unknown numbers are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*_COLUMNS, *(f"{part}_seconds" for part in _PARTS)]
    writer.writerow(["run", *names, "events"])
    for run in runs:
        seconds_by_part = step_parts(run)
        columns = [run.step_columns[name].tolist() for name in _COLUMNS]
        columns += [seconds_by_part[name].tolist() for name in _PARTS]
        events_by_step = Counter(step for step, *_ in run.events)
        for values in zip(*columns, strict=True):
            cells = [_cell(name, value) for name, value in zip(names, values, strict=True)]
            writer.writerow([_safe_name(run.name), *cells, events_by_step[int(values[0])]])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(name: str, value: float) -> str:
    if value != value:
        return ""
    return str(int(value)) if name in _INTEGER_COLUMNS else repr(value)


def _safe_name(name: str) -> str:
    """Return a name that neither a spreadsheet nor a terminal interprets."""
    name = printable(name)
    return f"'{name}" if name[:1] in "=+-@\t\r" else name
