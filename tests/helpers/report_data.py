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
from cec_mpi.report.data import page_data
from cec_mpi.report.recorded_run import Run
from cec_mpi.runtime.records.lines import LineFormatter
from cec_mpi.runtime.records.step import Checkpoint, Progress
from helpers.steps import BEGIN, HEADER, record


def report(
    *runs: dict[str, Any],
    title: str = "Products of 2,000 vectors",
    reload_seconds: float | None = None,
) -> dict[str, Any]:
    return page_data([], title, reload_seconds) | {"runs": list(runs)}


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
        loads = plan.assignment.row_counts(machines)
        noise = 1 + rng.gamma(2, 0.01, machines) + 0.6 * (step < 5)
        seconds = loads / np.array(speeds) * noise / 2e5 * slowdown
        optimum, measured = plan.makespan / 2e5 * slowdown, float(seconds.max())
        ended += timedelta(seconds=measured + 0.005)
        step_record = record(
            step,
            machines,
            absent_since={"lost": since},
            time=ended.isoformat(timespec="milliseconds"),
            rows=loads.tolist(),
            compute_seconds=seconds.tolist(),
            load_seconds=[0.01 * (step < 3)] * machines,
            predicted_makespan=optimum * float(rng.normal(1, 0.01)),
            measured_makespan=measured,
            makespan_bound=optimum,
            hindsight_makespan=optimum,
            announce_seconds=float(rng.uniform(1e-4, 2e-4)),
            share_seconds=float(rng.uniform(5e-4, 8e-4)),
            collect_seconds=measured + float(rng.uniform(8e-4, 2e-3)),
            decode_seconds=float(rng.uniform(1e-3, 1.5e-3)),
            payload_bytes={"share": 96_000 + 64 * int(rng.integers(40))},
            condition_number=4.2 if len(available) == machines else 17.0,
            cancellation=float(rng.uniform(1, 3)),
            assignment=[[*chain.from_iterable(plan.assignment.intervals(n))] for n in ranks[1:]],
            events=events[step],
        )
        lines.append(writer.step(step_record))
        if step % 5 == 0:
            lines.append(writer.note(Progress({"residual": float(np.exp(-step / steps * 25))})))
        if step % 250 == 249:
            lines.append(writer.note(Checkpoint()))
    with TemporaryDirectory() as directory:
        Path(directory, "steps.jsonl").write_text("".join(lines))
        Path(directory, "summary.json").write_text(json.dumps({"task": "matvec"}))
        data = page_data([Run(directory)], "")["runs"][0]
    return data | {"name": name, "state": state}


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
            "min": to_json_numbers(values * (1 - width * rng.uniform(0.5, 1, bins))),
            "median": to_json_numbers(values),
            "max": to_json_numbers(values * (1 + 5 * width * rng.gamma(1, 0.3, bins))),
        }

    data = run(name="large", speeds=speeds, recovery=20, steps=40)
    data.update(
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
            a | {"step": 2500 * a["step"], "last_step": 2500 * a["last_step"]}
            for a in data["assignments"]
        ],
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
    data.update(name=text, status=[text], warnings=[text], hosts=[text] * data["machines"])
    data["facts"] = [{"label": text, "text": text}]
    data["events"] = [[*event[:3], text] for event in data["events"]]
    data["progress"][0]["name"] = text
    return data
