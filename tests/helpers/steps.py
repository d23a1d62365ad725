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
    taking_part = list(range(1, machines + 1))
    about = {"machine_of_rank": [0, *taking_part], "hosts": hosts, "taking_part": taking_part}
    return {"kind": "header", "version": VERSION, "task": "matvec", **about, **others}


def step(number, machines=6, preempted=(), events=(), away=None, **others):
    """Return a step in which machine n computes 100 n rows, at 1000 rows per second.

    `away` has the absent machines by reason; those of `preempted` by default.
    """
    away = {"preempted": dict.fromkeys(preempted, number)} if away is None else away
    preempted = {n for those in away.values() for n in those}
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
        "seconds": seconds,
        "load_seconds": [0.0] * machines,
        "load_bytes": [0] * machines,
        "predicted_makespan": 0.5,
        "measured_makespan": max(seconds),
        "bound": 0.5,
        "hindsight_makespan": 0.8 * max(seconds),
        "announce_seconds": 0.0,
        "share_seconds": 0.0,
        "collect_seconds": 0.6,
        "decode_seconds": 0.0,
        "bytes": {},
        "plan_changed": False,
        "condition": 1.0,
        "cancellation": None,
        "assignment": [[0, count] if count else [] for count in rows],
        "events": list(events),
        "away": {why: those for why, those in away.items() if those},
        **others,
    }


def record(*arguments, **options):
    """Return a step as a `StepRecord`."""
    return msgspec.convert(step(*arguments, **options), StepRecord)


def write(path, *lines):
    """Write lines as a record."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
