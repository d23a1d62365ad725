"""Records of invented steps."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec

from cec_mpi.runtime.records.step import VERSION, StepRecord

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def header(machines=6, **others):
    """Return the header of a record."""
    hosts = ["node0", *(f"node{n}" for n in range(1, machines + 1))]
    participants = list(range(1, machines + 1))
    about = {"machine_of_rank": [0, *participants], "hosts": hosts, "participants": participants}
    return {"kind": "header", "version": VERSION, "task": "matvec", **about, **others}


def step(number, machines=6, preempted=(), events=(), absent_since=None, **others):
    """Return a step in which machine n computes 100 n rows, at 1000 rows per second.

    `absent_since` has the absent machines by reason; those of `preempted` by default.
    """
    if absent_since is None:
        absent_since = {"preempted": dict.fromkeys(preempted, number)}
    preempted = {n for those in absent_since.values() for n in those}
    rows = [0 if n in preempted else 100 * n for n in range(1, machines + 1)]
    seconds = [count / 1000 for count in rows]
    ended = BEGIN + timedelta(seconds=0.5 * number)
    return {
        "kind": "step",
        "step": number,
        "tick": number,
        "time": ended.isoformat(timespec="milliseconds"),
        "waited_ticks": 0,
        "available": [n for n in range(1, machines + 1) if n not in preempted],
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
        "plan_changed": False,
        "condition_number": 1.0,
        "cancellation": None,
        "assignment": [[0, count] if count else [] for count in rows],
        "events": list(events),
        "absent_since": {why: those for why, those in absent_since.items() if those},
        **others,
    }


def record(*arguments, **options):
    """Return a step as a `StepRecord`."""
    return msgspec.convert(step(*arguments, **options), StepRecord)


def write(path, *lines):
    """Write lines as a record."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
