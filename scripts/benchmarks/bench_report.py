"""How long the report of a long run takes, beside parsing its records; sizes of page and records.

    python scripts/benchmarks/bench_report.py --steps 100000 --machines 500

Makes records of two runs that never were: machines with speeds of their own, of which some leave,
come back or are lost in one of a hundred steps (`--change`), and in a shorter run in every step, so
that all have other rows from then on. Prints the size of the records as they are, and as version 1
had them (each line with everything); seconds of orjson alone and of the report one after the other,
by the clock and of CPU (of all processes), and the medians of their ratios over `--repeats`; the
largest memory of a process, and how many there can be; and the size of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from cec_mpi.core.plan.planner import plan_step
from cec_mpi.records.lines import LineWriter
from cec_mpi.records.step import StepRecord

RECOVERY = 3
ROWS = 1_000_000  # per shard
BEGAN = np.datetime64("2026-01-01T00:00:00.000", "ms")
OLD = ("assignment",)  # fields that version 1 did not have


def header_of(machines: int) -> dict[str, Any]:
    """What the steps have in common."""
    return {
        "started": f"{BEGAN}+00:00",
        "machine_of_rank": list(range(machines + 1)),
        "hosts": [f"node{n:03}" for n in range(machines + 1)],
        "rows": ROWS * RECOVERY,
        "columns": 1000,
        "rows_per_shard": ROWS,
        "dtype": "float64",
        "machines": machines,
        "recovery": RECOVERY,
        "code": "cauchy",
        "taking_part": list(range(1, machines + 1)),
        "scheme": "heterogeneous",
        "shards": "mmap",
        "speeds": "learn",
    }


def records(steps: int, machines: int, change: float, seed: int) -> Any:
    """Steps of the run, one after the other."""
    random = np.random.default_rng(seed)
    speeds = random.uniform(1, 4, machines) * 1e6
    up = np.ones(machines, bool)
    plan = None
    for step in range(steps):
        events: list[dict[str, Any]] = []
        if plan is None or random.random() < change:
            flips = random.integers(0, machines, max(1, machines // 100))
            if plan is not None:
                up[flips] ^= True
                if random.random() < 0.1:
                    events.append({"lost": int(flips[0]) + 1, "reason": "its process has ended"})
            up[: 2 * RECOVERY] = True
            available = tuple((np.flatnonzero(up) + 1).tolist())
            plan = plan_step(available, speeds.tolist(), RECOVERY, ROWS)
            rows = plan.assignment.counts(machines)
            best = plan.bound
        seconds = rows / speeds * random.uniform(0.98, 1.1, machines)
        makespan = float(seconds.max())
        yield StepRecord(
            step=step,
            tick=step,
            time=f"{BEGAN + step * 10}+00:00",
            available=available,
            store=0,
            adjoint=False,
            columns=1,
            rows=rows.tolist(),
            seconds=seconds.tolist(),
            load_seconds=[0.0 if step else 0.01] * machines,
            load_bytes=[0 if step else 8000] * machines,
            predicted_makespan=plan.makespan,
            measured_makespan=makespan,
            bound=best,
            hindsight_makespan=makespan / random.uniform(1, 1.1),
            announce_seconds=random.uniform(1e-5, 2e-5),
            share_seconds=random.uniform(1e-5, 2e-5),
            collect_seconds=makespan + random.uniform(1e-5, 2e-5),
            decode_seconds=random.uniform(1e-5, 2e-5),
            bytes={"announce": 24, "share": 8000, "collect": 80000},
            condition=12.5,
            error_bound=random.uniform(1e-13, 1e-12),
            error_estimate=random.uniform(1e-15, 1e-14),
            assignment=plan.bounds(machines),
            plan_changed=bool(events),
            events=events,
        )


def write(directory: Path, steps: int, machines: int, change: float, seed: int) -> list[bytes]:
    """Write the records; returns some lines as version 1 had them."""
    lines, before = LineWriter(), []
    with (directory / "steps.jsonl").open("w") as stream:
        stream.write(lines.header(header_of(machines)))
        for record in records(steps, machines, change, seed):
            stream.write(lines.step(record))
            if record.step % max(1, steps // 200) == 0:
                old = {name: each for name, each in vars(record).items() if name not in OLD}
                before.append(json.dumps({"kind": "step", **old}).encode() + b"\n")
    return before


def cpu_seconds() -> float:
    """Of this process and those that it has waited for."""
    mine, theirs = (resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def parse(path: Path) -> tuple[float, float]:
    """Seconds by the clock and of CPU that orjson takes for all lines."""
    began, begin = time.perf_counter(), cpu_seconds()
    with path.open("rb", buffering=1 << 20) as stream:
        for line in stream:
            orjson.loads(line)
    return time.perf_counter() - began, cpu_seconds() - begin


def parse_lines(lines: list[bytes]) -> float:
    """CPU seconds that orjson takes for one of these lines."""
    begin, rounds = cpu_seconds(), 20
    for _ in range(rounds):
        for line in lines:
            orjson.loads(line)
    return (cpu_seconds() - begin) / len(lines) / rounds


REPORT = """
import resource, sys, time
from cec_mpi.cli import main
def used():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)
began, begin = time.perf_counter(), used()
assert main(["report", sys.argv[1], "--out", sys.argv[2], "-q"]) == 0
print(time.perf_counter() - began, used() - begin)
for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
    print(resource.getrusage(who).ru_maxrss)
"""


def report(directory: Path, out: Path) -> list[float]:
    """Seconds by the clock and of CPU of a report, and kB of it and of its largest reader."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(directory), str(out)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return [float(each) for each in done.stdout.split()[-4:]]


def measure(steps: int, machines: int, change: float, seed: int, repeats: int) -> None:
    """Make records, measure and print."""
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name) / "report.html"
        before = write(directory, steps, machines, change, seed)
        size = (directory / "steps.jsonl").stat().st_size
        print(f"\n{steps} steps of {machines} machines, other rows in {change:g} of them")
        old = sum(map(len, before)) / len(before) * steps
        print(f"records: {size / 1e6:.1f} MB, {size / steps:.0f} bytes a step; ", end="")
        print(f"as version 1 {old / 1e6:.1f} MB, {old / size:.2f} times as much")
        found, cores = [], len(os.sched_getaffinity(0))
        for _ in range(repeats):  # side by side: the computer may be busy
            alone = parse(directory / "steps.jsonl")
            then = parse_lines(before) * steps
            found.append((*alone, then, *report(directory, out)))
        table = np.array(found)
        wall, cpu, then, report_wall, report_cpu, mine, theirs = np.median(table, axis=0)
        ratios = np.median(table[:, 3:5] / table[:, :2], axis=0)
        print(f"orjson: {wall:.2f} s, {cpu:.2f} CPU s; of version 1 {then:.2f} CPU s")
        print(f"report: {report_wall:.2f} s, {report_cpu:.2f} CPU s, on {cores} cores")
        print(f"report over orjson: {ratios[0]:.2f} by the clock, {ratios[1]:.2f} in CPU time")
        print(f"of version 1: {np.median(table[:, 4] / table[:, 2]):.2f} in CPU time")
        print(f"memory: {mine / 1e3:.0f} MB, and at most {theirs / 1e3:.0f} MB of each reader")
        print(f"page: {out.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Measure both runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--machines", type=int, default=500)
    parser.add_argument("--change", type=float, default=0.01, help="part of steps with other rows")
    parser.add_argument("--every", type=int, help="steps that all have other rows; a fifth of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    every = options.steps // 5 if options.every is None else options.every
    for steps, change in ((options.steps, options.change), (every, 1.0)):
        if steps:
            measure(steps, options.machines, change, options.seed, options.repeats)


if __name__ == "__main__":
    main()
