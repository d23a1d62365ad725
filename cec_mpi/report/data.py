"""The data of a report page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cec_mpi.report.assignments import assignment_data
from cec_mpi.report.bins import bin_series, to_json_numbers
from cec_mpi.report.breakdown import longest_steps, parts_by_bin, time_breakdown
from cec_mpi.report.chunks import Floats
from cec_mpi.report.cyclic import cyclic_comparison
from cec_mpi.report.headline import (
    key_figures,
    machine_table,
    run_facts,
    run_warnings,
    status_sentences,
)
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.states import STATES
from cec_mpi.runtime.records.events import KINDS
from cec_mpi.text import format_count, truncate

_MAX_SPEEDS = 60_000  # on a page: bins times machines
_SERIES = {
    "measured": "measured_makespan",
    "predicted": "predicted_makespan",
    "hindsight": "hindsight_makespan",
    "condition": "condition_number",
    "cancellation": "cancellation",
    "bytes": "payload_bytes",
}
_LOGARITHMIC_CURVES = {"residual", "change", "gradient", "tolerance"}
_MAX_POINTS = 4000  # of a progress curve
_MAX_HOSTS, _MAX_HOST_CHARACTERS = 3, 120  # of a machine


def page_data(
    runs: Sequence[Run], title: str, reload_seconds: float | None = None
) -> dict[str, Any]:
    """Return the data of a page about runs, with the interval at which it reloads, if any."""
    return {
        "title": title,
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "reload_seconds": reload_seconds,
        "kinds": [kind._asdict() for kind in KINDS],
        "states": [state._asdict() for state in STATES],
        "runs": [_run_data(run) for run in runs],
    }


def _run_data(run: Run) -> dict[str, Any]:
    step_columns, width = run.step_columns, run.bins.width
    starts = np.arange(0, run.steps, width)
    selected, default_speeds = run.assignments.select(), _default_speeds(run)
    return {
        "name": run.name,
        "state": run.state,
        "facts": run_facts(run),
        "status": status_sentences(run),
        "figures": [figure._asdict() for figure in key_figures(run)],
        "breakdown": time_breakdown(run) if run.steps else None,
        "cyclic": cyclic_comparison(run),
        "longest": longest_steps(run),
        "warnings": [*run_warnings(run), *_omission_notes(run)],
        "machines": run.machines,
        "recovery": run.header["recovery"],
        "rows": run.header["rows_per_shard"],
        "hosts": _host_names(run),
        "steps": run.steps,
        "first_step": int(step_columns["step"][0]) if run.steps else 0,
        "bin_width": width,
        "bin_count": run.bins.count,
        "bin_starts": step_columns["step"][starts].astype(int).tolist(),
        "time": to_json_numbers(step_columns["time"][starts]),
        "seconds": float(step_columns["time"][-1]) if run.steps else None,
        "by_machine": machine_table(run) if run.steps else None,
        "series": {name: bin_series(step_columns[f], width) for name, f in _SERIES.items()},
        "parts": parts_by_bin(run, width),
        "encoded_cells": run.bins.encode_cells(),
        "speeds": _speeds(run),
        "events": [list(event) for event in run.events],
        "assignments": [
            assignment_data(assignment, _last_step(run, assignment.index), default_speeds)
            for assignment in selected
        ],
        "omitted": len(run.assignments.first_steps) - len(selected),
        "progress": _progress(run),
        "checkpoints": [_step_at(run, count) for count in run.checkpoints],
        "resumptions": [_step_at(run, count + 1) for count in run.resumptions],
    }


def _host_names(run: Run) -> list[str]:
    """Return the hosts of each machine as text; empty if unknown."""
    hosts = run.hosts
    return [
        truncate(hosts[n], _MAX_HOSTS)[:_MAX_HOST_CHARACTERS] if hosts.get(n) else ""
        for n in range(1, run.machines + 1)
    ]


def _default_speeds(run: Run) -> Floats | None:
    """Return the speeds in the options as rows per second; None if their scale is unknown."""
    speeds, scale = run.header.get("speeds"), run.summary.get("rows_per_second_per_speed")
    if not isinstance(speeds, list) or not isinstance(scale, int | float) or not 0 < scale < 1e300:
        return None
    return np.asarray(np.clip(speeds, 0, 1e300 / scale) * scale, np.float64)


def _speeds(run: Run) -> dict[str, Any] | None:
    bins, machines = run.bins.count, run.machines
    if not bins:
        return None
    count = max(1, min(bins, _MAX_SPEEDS // machines))
    edges = np.unique(np.arange(count) * bins // count)
    rows, seconds = (
        np.add.reduceat(sums[:bins], edges, axis=0) for sums in (run.bins.rows, run.bins.seconds)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = rows / seconds
    return {
        "bins": edges.tolist(),
        "by_machine": list(map(to_json_numbers, rates.T)),
    }


def _omission_notes(run: Run) -> list[str]:
    count = run.assignments.too_large_count
    verb = "is" if count == 1 else "are"
    return [f"{format_count(count, 'assignment')} {verb} too large to show."] if count else []


def _last_step(run: Run, index: int) -> int:
    """Return the number of the last step of the assignment that begins at step `index`."""
    first_steps = run.assignments.first_steps
    next_index = int(np.searchsorted(first_steps, index, side="right"))
    return _step_at(run, first_steps[next_index] if next_index < len(first_steps) else run.steps)


def _step_at(run: Run, count: int) -> int:
    """Return the step number of the `count`-th recorded step; 0 before the first."""
    if not run.steps or count <= 0:
        return 0
    return int(run.step_columns["step"][min(count, run.steps) - 1])


def _progress(run: Run) -> list[dict[str, Any]]:
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for count, values_by_name in run.progress:
        for name, value in values_by_name.items():
            steps, values = curves.setdefault(str(name), ([], []))
            steps.append(_step_at(run, count))
            values.append(float(value))
    progress = []
    for name, (steps, values) in curves.items():
        stride = -(-len(steps) // _MAX_POINTS)
        indices = sorted({*range(0, len(steps), stride), len(steps) - 1})
        progress.append(
            {
                "name": name[:80],
                "log": name in _LOGARITHMIC_CURVES and min(values) > 0,
                "step": [steps[k] for k in indices],
                "value": to_json_numbers(np.array([values[k] for k in indices])),
            }
        )
    return progress
