"""Make records of invented steps and runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec

from cec_mpi.runtime.records.step import VERSION, StepRecord

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEADER = {
    "started": BEGIN.isoformat(),
    "mpi_library": "none",
    "machine_of_rank": [0, 1, 2, 3, 4],
    "hosts": ["front", "node1", "node1", "node2", "node2"],
    "rows": 200,
    "columns": 10,
    "rows_per_shard": 100,
    "dtype": "float64",
    "machines": 4,
    "recovery": 2,
    "code": "cauchy",
    "participants": [1, 2, 3, 4],
    "scheme": "heterogeneous",
    "shards": "mmap",
    "speeds": None,
}


def header(machines=6, **changes):
    """Return the header of a run's records."""
    participants = list(range(1, machines + 1))
    ranks = [0, *participants]
    placement = {"machine_of_rank": ranks, "hosts": [f"node{n}" for n in ranks]}
    placement["participants"] = participants
    return {"kind": "header", "version": VERSION, "task": "matvec", **placement, **changes}


def record(number, machines=6, preempted=(), absent_since=None, **changes):
    """Return a step in which machine n computes 100 n rows, at 1000 rows per second.

    `absent_since` maps reasons to the absent machines; `preempted` is used by default.
    """
    if absent_since is None:
        absent_since = {"preempted": dict.fromkeys(preempted, number)}
    absent = {n for machine_steps in absent_since.values() for n in machine_steps}
    rows = [0 if n in absent else 100 * n for n in range(1, machines + 1)]
    seconds = [count / 1000 for count in rows]
    ended = BEGIN + timedelta(seconds=0.5 * number)
    fields = {
        "step": number,
        "tick": number,
        "time": ended.isoformat(timespec="milliseconds"),
        "available": tuple(n for n in range(1, machines + 1) if n not in absent),
        "adjoint": False,
        "columns": 1,
        "rows": rows,
        "compute_seconds": seconds,
        "load_seconds": [0.0] * machines,
        "load_bytes": [0] * machines,
        "predicted_makespan": 0.5,
        "measured_makespan": max(seconds),
        "makespan_bound": 0.5,
        "hindsight_makespan": 0.8 * max(seconds),
        "announce_seconds": 0.0,
        "share_seconds": 0.0,
        "collect_seconds": 0.6,
        "decode_seconds": 0.0,
        "payload_bytes": {},
        "condition_number": 1.0,
        "cancellation": None,
        "assignment": [[0, count] if count else [] for count in rows],
        "absent_since": {why: steps for why, steps in absent_since.items() if steps},
    }
    return StepRecord(**fields | changes)


def step(number, machines=6, preempted=(), absent_since=None, **changes):
    """Return a `record` as the dict of a line, with some values changed."""
    return msgspec.to_builtins(record(number, machines, preempted, absent_since)) | changes


def step_of(number, seconds=(0.1, 0.1, 0.2, 0.2), rows=(50,) * 4, why="preempted", **changes):
    """Return a step of the run of `HEADER`.

    Machines without rows are unavailable for the reason `why`.
    """
    halves = ([0, 50], [0, 50], [50, 100], [50, 100])
    assignment = [
        half if count == 50 else [0, count] if count else []
        for half, count in zip(halves, rows, strict=False)
    ]
    fields = {
        "time": f"2026-01-02T03:04:{6 + number % 50:02}.000+00:00",
        "rows": list(rows),
        "compute_seconds": [float(value) for value in seconds],
        "predicted_makespan": 0.15,
        "measured_makespan": float(max(seconds)),
        "makespan_bound": 0.12,
        "hindsight_makespan": 0.125,
        "announce_seconds": 0.001,
        "share_seconds": 0.002,
        "collect_seconds": float(max(seconds)) + 0.01,
        "decode_seconds": 0.003,
        "payload_bytes": {"announce": 8, "share": 80, "collect": 1600},
        "condition_number": 2.5,
        "cancellation": 2.0,
        "assignment": assignment,
        "absent_since": {why: {n: number for n, count in enumerate(rows, start=1) if not count}},
    }
    return record(number, len(rows), **fields | changes)


def write(path, *lines):
    """Write lines to a file of records."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
