"""Make the data of report pages about invented runs."""

from __future__ import annotations

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
from cec_mpi.report.data import page_data
from cec_mpi.report.recorded_run import Run
from cec_mpi.runtime.records.lines import LineFormatter
from cec_mpi.runtime.records.step import Checkpoint, Progress
from helpers.steps import BEGIN, HEADER, record


def make_report(
    *runs: dict[str, Any],
    title: str = "Products of 2,000 vectors",
    reload_seconds: float | None = None,
) -> dict[str, Any]:
    return page_data([], title, reload_seconds) | {"runs": list(runs)}


def make_run(
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
    lines, lost_since, ended = [writer.header(header)], {}, BEGIN
    for step in range(steps):
        if step == steps // 3 > 3:
            lines.append(writer.header(header | {"started": ended.isoformat()}))
        available = tuple(int(n) + 1 for n in np.flatnonzero(is_up[:, step]))
        lost_since = {n: lost_since.get(n, step) for n in ranks[1:] if n not in available}
        plan = planner.plan(available, tuple(speeds))
        loads = plan.assignment.row_counts(machines)
        noise = 1 + rng.gamma(2, 0.01, machines) + 0.6 * (step < 5)
        seconds = loads / np.array(speeds) * noise / 2e5 * slowdown
        optimum, measured = plan.makespan / 2e5 * slowdown, float(seconds.max())
        ended += timedelta(seconds=measured + 0.005)
        step_record = record(
            step,
            machines,
            absent_since={"lost": lost_since},
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


def make_hostile_run(text: str) -> dict[str, Any]:
    """Return a run in which every text is `text`."""
    data = make_run(steps=40, losses=2)
    data["figures"] = [{"label": text, "value": text, "note": text}]
    data.update(name=text, status=[text], warnings=[text], hosts=[text] * data["machines"])
    data["facts"] = [{"label": text, "text": text}]
    data["events"] = [[*event[:3], text] for event in data["events"]]
    data["progress"][0]["name"] = text
    return data
