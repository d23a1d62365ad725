"""The report of a long run: its time over that of parsing the records, and the size of the page.

    python scripts/benchmarks/page.py --steps 100000 --machines 500

This process runs 200 steps, in one per cent of which machines come and go (``--change 1``: in all);
the records of the long run repeat them. Prints the time of ``cec-mpi report`` over that of parsing
all lines, the memory of its largest process, and the sizes of records and page.
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
from commands import measure_command
from measure import Figure, ratio, time_in_turns

SHORT_RUN_STEPS = 200
RECOVERY = 3


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the records of one run."""
    records, page = directory / "run" / "steps.jsonl", directory / "report.html"
    records.parent.mkdir()
    write_long_run(record_short_run(options, directory), records, options.steps)
    peaks: list[int] = []

    def report() -> float:
        seconds, peak = measure_command(["report", records.parent, "--out", page, "-q"])
        peaks.append(peak)
        return seconds

    times = time_in_turns(
        {"report": report, "parsing": lambda: time_parsing(records)}, options.turns
    )
    return [
        ratio(times, "report", "parsing"),
        *(measure.figure(name, seconds, "s") for name, seconds in times.items()),
        measure.figure("memory", peaks, "bytes"),
        measure.figure("records", [records.stat().st_size], "bytes"),
        measure.figure("page", [page.stat().st_size], "bytes"),
    ]


def record_short_run(options: Any, directory: Path) -> list[dict[str, Any]]:
    """Run a few steps; return the header and steps of their records."""
    rng = np.random.default_rng(options.seed)
    machines, path = options.machines, directory / "short.jsonl"
    store = measure.make_store(directory, 100 * RECOVERY, 4, machines, RECOVERY, code="gaussian")
    recorder, is_available = Recorder(), np.ones(machines, bool)
    with (
        cec_mpi.open_operator(store, None, recorder=recorder) as X,
        path.open("w") as file,
    ):
        recorder.write_to(file)
        for _ in range(min(SHORT_RUN_STEPS, options.steps)):
            if rng.random() < options.change:
                is_available[rng.integers(0, machines, max(1, machines // 100))] ^= True
                is_available[: 2 * RECOVERY] = True
                X.available = set((np.flatnonzero(is_available) + 1).tolist())
            X.matvec(np.ones(4))
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def write_long_run(lines: list[dict[str, Any]], path: Path, steps: int) -> None:
    """Write the records of a long run, which repeat those of a short one."""
    header, *short_run = lines
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with path.open("wb") as file:
        file.write(msgspec.json.encode(header | {"started": start.isoformat()}) + b"\n")
        for step in range(steps):
            end = (start + timedelta(milliseconds=10 * step)).isoformat(timespec="milliseconds")
            line = short_run[step % len(short_run)] | {"step": step, "tick": step, "time": end}
            file.write(msgspec.json.encode(line) + b"\n")


def time_parsing(path: Path) -> float:
    begin = time.perf_counter()
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            msgspec.json.decode(line)
    return time.perf_counter() - begin


def add_options(parser: Any) -> None:
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--machines", type=int, default=500)
    parser.add_argument(
        "--change", type=float, default=0.01, help="fraction of steps with an event"
    )


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options, turns=3)
