"""The report of a long run: what it takes beside parsing the records, and how large the page is.

    python scripts/benchmarks/page.py --steps 100000 --machines 500

Some steps are made in this process, with machines that come and go in one of a hundred of them, or
in each (``--change 1``); the run has them again and again. Time of ``cec-mpi report`` over that of
parsing all lines, the memory of its largest process, and the sizes of records and page.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import cec_mpi
import measure
from cec_mpi.records import Recorder
from commands import command
from measure import Figure, in_turns, ratio

MADE = 200  # steps
RECOVERY = 3


def figures(options: Any, directory: Path) -> list[Figure]:
    """Of the records of one run."""
    records, page = directory / "run" / "steps.jsonl", directory / "report.html"
    records.parent.mkdir()
    repeat(made(options, directory), records, options.steps)
    peaks: list[int] = []

    def report() -> float:
        seconds, peak = command(["report", records.parent, "--out", page, "-q"])
        peaks.append(peak)
        return seconds

    times = in_turns({"report": report, "parsing": lambda: parse(records)}, options.turns)
    return [
        ratio(times, "report", "parsing"),
        *(measure.figure(name, each, "s") for name, each in times.items()),
        measure.figure("memory", peaks, "bytes"),
        measure.figure("records", [records.stat().st_size], "bytes"),
        measure.figure("page", [page.stat().st_size], "bytes"),
    ]


def made(options: Any, directory: Path) -> list[dict[str, Any]]:
    """The lines of a short run."""
    rng = np.random.default_rng(options.seed)
    machines, path = options.machines, directory / "made.jsonl"
    store = measure.store_of(directory, 100 * RECOVERY, 4, machines, RECOVERY, code="gaussian")
    recorder, up = Recorder(), np.ones(machines, bool)
    with (
        cec_mpi.open_operator(store, None, recorder=recorder) as X,
        path.open("w") as file,
    ):
        recorder.write_to(file)
        for _ in range(min(MADE, options.steps)):
            if rng.random() < options.change:
                up[rng.integers(0, machines, max(1, machines // 100))] ^= True
                up[: 2 * RECOVERY] = True
                X.available = set((np.flatnonzero(up) + 1).tolist())
            X.matvec(np.ones(4))
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def repeat(lines: list[dict[str, Any]], path: Path, steps: int) -> None:
    """Write a run of so many steps, the same ones again and again."""
    header, *some = lines
    began = datetime(2026, 1, 1, tzinfo=UTC)
    with path.open("wb") as file:
        file.write(msgspec.json.encode(header | {"started": began.isoformat()}) + b"\n")
        for step in range(steps):
            at = (began + timedelta(milliseconds=10 * step)).isoformat(timespec="milliseconds")
            line = some[step % len(some)] | {"step": step, "tick": step, "time": at}
            file.write(msgspec.json.encode(line) + b"\n")


def parse(path: Path) -> float:
    begin = time.perf_counter()
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            msgspec.json.decode(line)
    return time.perf_counter() - begin


def add_options(parser: Any) -> None:
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--machines", type=int, default=500)
    parser.add_argument("--change", type=float, default=0.01, help="part of steps with an event")


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options, turns=3)
