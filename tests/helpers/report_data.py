"""Random data of a report page."""

from __future__ import annotations

import base64
from itertools import chain
from typing import Any

import numpy as np

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.plan.planner import Planner
from cec_mpi.report.assignments import RecordedAssignment, assignment_data
from cec_mpi.report.bins import to_json_numbers
from cec_mpi.report.states import STATES
from cec_mpi.runtime.records.events import KINDS
from cec_mpi.runtime.records.step import IntervalBounds

_NO_ROWS = 16  # the byte of an available machine without rows; 255 for all rows of its shard


def report(
    *runs: dict[str, Any], title: str = "Products of 2,000 vectors", refresh: float | None = None
) -> dict[str, Any]:
    return {
        "version": 1,
        "title": title,
        "made": "2026-11-22T15:00:00Z",
        "refresh": refresh,
        "kinds": [kind._asdict() for kind in KINDS],
        "states": [state._asdict() for state in STATES],
        "runs": list(runs),
    }


def run(
    *,
    name: str = "results",
    speeds: tuple[float, ...] = (2, 2, 3, 3, 4, 4),
    recovery: int = 3,
    rows: int = 4000,
    steps: int = 2000,
    losses: int = 8,
    slowdown: float = 1.0,
    state: str = "done",
    seed: int = 1,
) -> dict[str, Any]:
    """Return a run with all of its steps, in which machines are lost and join again."""
    rng = np.random.default_rng(seed)
    machines = len(speeds)
    is_up = np.ones((machines, steps), bool)
    events: list[list[Any]] = []
    for _ in range(losses if machines > recovery + 1 else 0):
        machine, begin = int(rng.integers(machines)), int(rng.integers(10, steps - 20))
        end = begin + int(rng.integers(5, max(steps // 12, 6)))
        if (
            is_up[:, begin:end].sum(0).min() <= recovery
            or not is_up[machine, begin - 1 : end].all()
        ):
            continue
        is_up[machine, begin:end] = False
        events.append([begin, 0, machine + 1, "its process ended: signal 9"])
        if end < steps:
            events.append([end, 1, machine + 1, f"rank {machine + 1}"])
    events += [
        [int(step), 5, int(rng.integers(machines)) + 1, ""] for step in rng.integers(0, steps, 3)
    ]
    events.append([steps // 2, 6, 1, "not finite"])
    events.sort(key=lambda event: event[0])

    planner = Planner(recovery, rows)
    cells = np.zeros((machines, steps), np.uint8)
    assignments: list[dict[str, Any]] = []
    bounds = None
    optimum = np.empty(steps)
    for step in range(steps):
        available = tuple(int(n) + 1 for n in np.flatnonzero(is_up[:, step]))
        plan = planner.plan(available, speeds)
        loads = plan.assignment.counts(machines)
        cells[:, step] = np.where(is_up[:, step], _NO_ROWS + loads * (255 - _NO_ROWS) // rows, 0)
        optimum[step] = plan.makespan / 2e5 * slowdown
        if not assignments or assignments[-1]["available"] != list(available):
            if assignments:
                assignments[-1]["until"] = step - 1
            bounds, data = _assignment(step, steps - 1, available, plan.assignment, speeds, bounds)
            assignments.append(data)
    noise = rng.gamma(2, 0.01, steps)
    measured = optimum * (1 + noise)
    measured[:5] *= 1.6
    parts = {
        "announce": rng.uniform(1e-4, 2e-4, steps),
        "share": rng.uniform(5e-4, 8e-4, steps),
        "compute": measured,
        "collect": rng.uniform(8e-4, 2e-3, steps),
        "decode": rng.uniform(1e-3, 1.5e-3, steps),
        "load": np.where(np.arange(steps) < 3, 0.01, 0.0),
        "waiting": np.zeros(steps),
    }
    series = {
        "measured": measured,
        "predicted": optimum * rng.normal(1, 0.01, steps),
        "hindsight": optimum,
        "condition": np.where(is_up.sum(0) == machines, 4.2, 17.0) * rng.uniform(1, 1.01, steps),
        "cancellation": rng.uniform(1, 3, steps),
        "bytes": np.full(steps, 96_000) + 64 * rng.integers(0, 40, steps),
    }
    rates = (
        np.outer(speeds, np.ones(steps // 10 + 1))
        * 2e5
        / 6
        * rng.normal(1, 0.02, (machines, steps // 10 + 1))
    )
    time = np.cumsum(sum(parts.values()))
    return {
        "name": name,
        "state": state,
        "facts": [
            {"label": "Task", "text": "matvec"},
            {"label": "Matrix", "text": f"{rows * recovery:,} x 1,000, float64"},
            {"label": "Code", "text": f"Fourier, any {recovery} of {machines} machines"},
            {"label": "Scheme", "text": "heterogeneous"},
            {"label": "Hosts", "text": "node01, node02, node03"},
            {"label": "Began", "text": "2026-11-22 14:00:00 UTC"},
        ],
        "status": ["matvec is done."],
        "figures": [
            {"label": "Duration", "value": f"{time[-1]:.1f} s", "note": f"{steps:,} steps"},
            {"label": "Time lost", "value": "1.20 s (2.0 %)", "note": "stalls"},
            {
                "label": "Imbalance",
                "value": "2.0 %",
                "note": "Computing took 3 s.",
            },
        ],
        "by_machine": {
            "caption": "Machines, in descending order of delay",
            "columns": [
                {"label": "Delay", "unit": "seconds"},
                {"label": "Left", "unit": "text"},
                {"label": "Steps as slowest", "unit": "whole"},
                {"label": "Available", "unit": "percent"},
            ],
            "rows": [
                [n + 1, 3.2 / (k + 1), "", int(steps * 0.8 / (k + 2)), float(is_up[n].mean())]
                for k, n in enumerate(rng.permutation(machines).tolist())
            ],
        },
        "warnings": ["machine 3 was lost 2 times: its process ended"],
        "breakdown": {
            "parts": [
                {
                    "part": "compute",
                    "label": "Computing",
                    "note": "of each step the time of the machine that took longest",
                    "seconds": time[-1],
                    "text": f"{time[-1]:.2f} s",
                    "share": 1.0,
                }
            ],
        },
        "cyclic": {
            "steps": steps,
            "cyclic": 1.42 * time[-1],
            "measured": time[-1],
            "text": "less",
        },
        "longest": [{"step": 3, "seconds": 0.9, "parts": {"compute": 0.2, "stall": 0.7}}],
        "machines": machines,
        "recovery": recovery,
        "rows": rows,
        "names": [f"node{n // 2 + 1:02}" for n in range(machines)],
        "steps": steps,
        "first": 0,
        "bin": 1,
        "bins": steps,
        "at": list(range(steps)),
        "time": time.round(6).tolist(),
        "seconds": float(time[-1]),
        "series": {key: {"value": to_json_numbers(values)} for key, values in series.items()},
        "parts": {key: {"value": to_json_numbers(values)} for key, values in parts.items()},
        "map": {
            "rows": machines,
            "bins": steps,
            "cells": base64.b64encode(cells.tobytes()).decode(),
        },
        "speeds": {
            "bins": list(range(0, steps, 10)),
            "machines": [to_json_numbers(row[: (steps + 9) // 10]) for row in rates],
        },
        "events": events,
        "assignments": assignments,
        "omitted": 0,
        "progress": [
            {
                "name": "residual",
                "log": True,
                "step": list(range(0, steps, 5)),
                "value": to_json_numbers(np.exp(-np.arange(0, steps, 5) / steps * 25)),
            }
        ],
        "checkpoints": list(range(250, steps, 250)),
        "resumes": [steps // 3] if steps > 10 else [],
    }


def large_run() -> dict[str, Any]:
    """Return a run of 500 machines whose 100,000 steps are binned, with 5,000 events."""
    machines, steps, bins, width = 500, 100_000, 2000, 50
    rng = np.random.default_rng(3)
    rows, recovery = 20_000, 20
    cells = np.full((machines, bins), _NO_ROWS + 20, np.uint8) + rng.integers(
        0, 8, (machines, bins), np.uint8
    )
    events: list[list[Any]] = []
    for _ in range(1500):
        machine, begin = int(rng.integers(machines)), int(rng.integers(steps - 2000))
        end = begin + int(rng.integers(50, 1500))
        cells[machine, begin // width : end // width + 1] = 0
        events.append([begin, 0, machine + 1, "its node was taken away"])
        events.append([end, 1, machine + 1, f"rank {machine + 1}"])
    events += [
        [int(step), int(rng.integers(5, 7)), int(rng.integers(machines)) + 1, ""]
        for step in rng.integers(0, steps, 2000)
    ]
    events.sort(key=lambda event: event[0])
    measured = 0.02 * (1 + 0.3 * np.sin(np.arange(bins) / 90)) * rng.uniform(1, 1.05, bins)
    speeds = tuple(float(s) for s in rng.uniform(1, 4, machines))
    planner = Planner(recovery, rows)
    assignments: list[dict[str, Any]] = []
    bounds = None
    for step in range(0, steps, 1 + steps // 6):
        available = tuple(int(n) + 1 for n in np.flatnonzero(cells[:, step // width]))
        assignment = planner.plan(available, speeds).assignment
        bounds, data = _assignment(step, step + 5, available, assignment, speeds, bounds)
        assignments.append(data)

    def spread(values: Any, width: float = 0.1) -> dict[str, list[float | None]]:
        return {
            "min": to_json_numbers(values * (1 - width * rng.uniform(0.5, 1, bins))),
            "mid": to_json_numbers(values),
            "max": to_json_numbers(values * (1 + 5 * width * rng.gamma(1, 0.3, bins))),
        }

    data = run(steps=40)
    data.update(
        name="large",
        machines=machines,
        recovery=recovery,
        rows=rows,
        names=[f"node{n // 4 + 1:03}" for n in range(machines)],
        steps=steps,
        bin=width,
        bins=bins,
        at=list(range(0, steps, width)),
        time=np.cumsum(measured * width * 1.2).round(3).tolist(),
        series={
            "measured": spread(measured),
            "predicted": spread(measured * 0.99),
            "hindsight": spread(measured * 0.97, 0.02),
            "condition": spread(np.full(bins, 40.0)),
            "cancellation": spread(np.full(bins, 2.0)),
            "bytes": spread(np.full(bins, 4e6)),
        },
        parts={
            key: {
                "mid": to_json_numbers(measured * share),
                "top": to_json_numbers(measured * share * 1.5),
            }
            for key, share in {
                "announce": 0.01,
                "share": 0.05,
                "compute": 1,
                "collect": 0.1,
                "decode": 0.08,
            }.items()
        },
        map={"rows": machines, "bins": bins, "cells": base64.b64encode(cells.tobytes()).decode()},
        speeds={
            "bins": list(range(0, bins, 20)),
            "machines": [
                to_json_numbers(s * 1e4 * rng.uniform(0.98, 1.02, bins // 20)) for s in speeds
            ],
        },
        events=events,
        assignments=assignments,
        omitted=2850,
        progress=[],
        checkpoints=list(range(5000, steps, 5000)),
        resumes=[40_000],
    )
    data["seconds"] = data["time"][-1]
    return data


def hostile(text: str) -> dict[str, Any]:
    """Return a run in which all texts are this one."""
    data = run(steps=40, losses=2)
    data["figures"] = [{"label": text, "value": text, "note": text}]
    data.update(name=text, status=[text], warnings=[text], names=[text] * data["machines"])
    data["facts"] = [{"label": text, "text": text}]
    data["events"] = [[*event[:3], text] for event in data["events"]]
    data["progress"][0]["name"] = text
    return data


def _assignment(
    step: int, until: int, available: tuple[int, ...], plan: Assignment, speeds: Any, previous: Any
) -> tuple[IntervalBounds, dict[str, Any]]:
    """Return the recorded bounds of an assignment, and its data on the page."""
    machines = range(1, len(speeds) + 1)
    bounds = IntervalBounds.from_lists([[*chain.from_iterable(plan.intervals(n))] for n in machines])
    seconds_per_row = 1 / (3.3e4 * np.array(speeds))
    recorded = RecordedAssignment(
        step, step, np.array(available), bounds, previous, seconds_per_row, True, False, {}
    )
    return bounds, assignment_data(recorded, until, None)
