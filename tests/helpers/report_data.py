"""Data of report pages about invented runs."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cec_mpi.core.plan.planner import Planner
from cec_mpi.report.bins import to_json_numbers
from cec_mpi.report.data import PageOptions, page_data
from cec_mpi.report.recorded_run import Run
from cec_mpi.runtime.records.lines import LineFormatter
from cec_mpi.runtime.records.step import Checkpoint, Progress
from helpers.steps import BEGIN, HEADER, record


def report(
    *runs: dict[str, Any],
    title: str = "Products of 2,000 vectors",
    reload_seconds: float | None = None,
) -> dict[str, Any]:
    return {
        "title": title,
        "generated": "2026-11-22T15:00:00Z",
        "reload_seconds": reload_seconds,
        "kinds": [kind._asdict() for kind in KINDS],
        "states": [state._asdict() for state in STATES],
        "runs": list(runs),
    }


def run(
    *,
    name: str = "results",
    speeds: Sequence[float] = (2, 2, 3, 3, 4, 4),
    recovery: int = 3,
    steps: int = 2000,
    losses: int = 8,
    slowdown: float = 1.0,
    state: str = "done",
    seed: int = 1,
) -> dict[str, Any]:
    """Return a run with all of its steps, in which machines are lost and join again."""
    rng = np.random.default_rng(seed)
    machines, rows = len(speeds), 4000
    is_up = np.ones((machines, steps), bool)
    events: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for _ in range(losses if machines > recovery + 1 else 0):
        machine, begin = int(rng.integers(machines)), int(rng.integers(10, steps - 20))
        end = begin + int(rng.integers(5, max(steps // 12, 6)))
        if is_up[:, begin:end].sum(0).min() > recovery and is_up[machine, begin - 1 : end].all():
            is_up[machine, begin:end] = False
            events[begin].append({"lost": machine + 1, "reason": "its process ended: signal 9"})
            events[end].append({"joined": machine + 1, "rank": machine + 1})
    events[steps // 2].append({"wrong": 1, "reason": "not finite"})

    ranks, planner, writer = range(machines + 1), Planner(recovery, rows), LineFormatter()
    header = HEADER | {"machines": machines, "recovery": recovery, "participants": [*ranks[1:]]}
    header |= {"rows_per_shard": rows, "rows": rows * recovery, "machine_of_rank": [*ranks]}
    header |= {"hosts": [f"node{max(n - 1, 0) // 2 + 1:02}" for n in ranks], "task": "matvec"}
    lines, since, ended = [writer.header(header)], {}, BEGIN
    for step in range(steps):
        if step == steps // 3 > 3:
            lines.append(writer.header(header | {"started": ended.isoformat()}))
        available = tuple(int(n) + 1 for n in np.flatnonzero(is_up[:, step]))
        since = {n: since.get(n, step) for n in ranks[1:] if n not in available}
        plan = planner.plan(available, tuple(speeds))
        loads = plan.assignment.counts(machines)
        cells[:, step] = np.where(here[:, step], _NONE + loads * (255 - _NONE) // rows, 0)
        best[step] = plan.makespan / 2e5 * slower
        if not assignments or assignments[-1]["available"] != list(available):
            if assignments:
                assignments[-1]["last_step"] = step - 1
            bounds, made = _assignment(step, steps - 1, available, plan.assignment, speeds, bounds)
            assignments.append(made)
    noise = rng.gamma(2, 0.01, steps)
    measured = best * (1 + noise)
    measured[:5] *= 1.6
    compute = measured
    parts = {
        "announce": rng.uniform(1e-4, 2e-4, steps),
        "share": rng.uniform(5e-4, 8e-4, steps),
        "compute": compute,
        "collect": rng.uniform(8e-4, 2e-3, steps),
        "decode": rng.uniform(1e-3, 1.5e-3, steps),
        "load": np.where(np.arange(steps) < 3, 0.01, 0.0),
        "waiting": np.zeros(steps),
    }
    series = {
        "measured": measured,
        "predicted": best * rng.normal(1, 0.01, steps),
        "hindsight": best,
        "condition": np.where(here.sum(0) == machines, 4.2, 17.0) * rng.uniform(1, 1.01, steps),
        "cancellation": rng.uniform(1, 3, steps),
        "bytes": np.full(steps, 96_000) + 64 * rng.integers(0, 40, steps),
    }
    learned = (
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
                [n + 1, 3.2 / (k + 1), "", int(steps * 0.8 / (k + 2)), float(here[n].mean())]
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
        "hosts": [f"node{n // 2 + 1:02}" for n in range(machines)],
        "steps": steps,
        "first_step": 0,
        "bin_width": 1,
        "bin_count": steps,
        "bin_starts": list(range(steps)),
        "time": time.round(6).tolist(),
        "seconds": float(time[-1]),
        "series": {key: {"value": to_json_numbers(values)} for key, values in series.items()},
        "parts": {key: {"value": to_json_numbers(values)} for key, values in parts.items()},
        "encoded_cells": base64.b64encode(cells.tobytes()).decode(),
        "speeds": {
            "bins": list(range(0, steps, 10)),
            "machines": [to_json_numbers(row[: (steps + 9) // 10]) for row in learned],
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
    cells = rng.integers(36, 44, (machines, bins), np.uint8)  # of few rows
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
    speeds = rng.uniform(1, 4, machines).tolist()

    def spread(values: Any, width: float = 0.1) -> dict[str, list[float | None]]:
        return {
            "min": to_json_numbers(values * (1 - by * rng.uniform(0.5, 1, bins))),
            "median": to_json_numbers(values),
            "max": to_json_numbers(values * (1 + 5 * by * rng.gamma(1, 0.3, bins))),
        }

    made = run(steps=40)
    made.update(
        name="large",
        machines=machines,
        recovery=recovery,
        rows=rows,
        hosts=[f"node{n // 4 + 1:03}" for n in range(machines)],
        steps=steps,
        bin_width=width,
        bin_count=bins,
        bin_starts=list(range(0, steps, width)),
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
                "median": to_json_numbers(measured * share),
                "longest": to_json_numbers(measured * share * 1.5),
            }
            for key, share in {
                "announce": 0.01,
                "share": 0.05,
                "compute": 1,
                "collect": 0.1,
                "decode": 0.08,
            }.items()
        },
        encoded_cells=base64.b64encode(cells.tobytes()).decode(),
        speeds={
            "bins": list(range(0, bins, 20)),
            "machines": [
                to_json_numbers(s * 1e4 * rng.uniform(0.98, 1.02, bins // 20)) for s in speeds
            ],
        },
        events=events,
        assignments=[
            a | {"step": 2500 * a["step"], "until": 2500 * a["until"]} for a in data["assignments"]
        ],
        omitted=2850,
        progress=[],
        checkpoints=list(range(5000, steps, 5000)),
        resumes=[40_000],
    )
    data["seconds"] = data["time"][-1]
    return data


def hostile(text: str) -> dict[str, Any]:
    """Return a run in which each text is this one."""
    made = run(steps=40, losses=2)
    made["figures"] = [{"label": text, "value": text, "note": text}]
    made.update(name=text, status=[text], warnings=[text], hosts=[text] * made["machines"])
    made["facts"] = [{"label": text, "text": text}]
    made["events"] = [[*event[:3], text] for event in made["events"]]
    made["progress"][0]["name"] = text
    return made


def _assignment(
    step: int, until: int, available: tuple[int, ...], plan: Assignment, speeds: Any, before: Any
) -> tuple[IntervalBounds, dict[str, Any]]:
    """Return the recorded bounds of an assignment, and its data on the page."""
    machines = range(1, len(speeds) + 1)
    bounds = IntervalBounds.from_lists(
        [[*chain.from_iterable(plan.intervals(n))] for n in machines]
    )
    paces = 1 / (3.3e4 * np.array(speeds))
    held = RecordedAssignment(
        step, step, np.array(available), bounds, before, paces, True, False, {}
    )
    return bounds, assignment_data(held, until, None)
