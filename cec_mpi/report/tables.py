"""A run as a table with a row for each step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from cec_mpi.report.gathered import Run
from cec_mpi.report.sums import parts_of
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


def table_of(runs: Sequence[Run]) -> bytes:
    """Return CSV with a header; the first column tells several runs apart.

    Times are in seconds; ``time`` is that of the run, without the time between its parts. Unknown
    numbers are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = [f"{name}_seconds" for name in _PARTS]
    writer.writerow(["run", *_COLUMNS, *parts, "events"])
    for run in runs:
        spent = parts_of(run)
        found = [run.numbers[name].tolist() for name in _COLUMNS]
        found += [spent[name].tolist() for name in _PARTS]
        events: dict[int, int] = {}
        for step, *_ in run.events:
            events[step] = events.get(step, 0) + 1
        names = [*_COLUMNS, *parts]
        for values in zip(*found, strict=True):
            cells = [_cell(name, value) for name, value in zip(names, values, strict=True)]
            step = int(values[0])
            writer.writerow([_plain(run.name), *cells, events.get(step, 0)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(name: str, value: float) -> str:
    if value != value:
        return ""
    return str(int(value)) if name in _WHOLE else repr(value)


def _plain(name: str) -> str:
    """Return a name that no spreadsheet takes for a formula, and that no terminal interprets."""
    name = printable(name)
    return f"'{name}" if name[:1] in "=+-@\t\r" else name
