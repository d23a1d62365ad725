"""Simulated runs beside real ones: twelve runs with emulated speeds, their times and events.

    python scripts/benchmarks/simulation.py [--only stopped] [--base 120] [--steps 30]

Machines sleep for most of each step, so that a busy computer changes little. The total is from the
first step to the end of the last one. Events are compared with the step and machine of each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np

import cec_mpi
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.reading import RunRecords, read_lines
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_to_end

SPEEDS = "2,2,3,3,4,4"
GIVEN = ["--speeds", SPEEDS]
MACHINES, RECOVERY, ROWS, COLUMNS = 6, 3, 1200, 50

TICKS = [[1, 2, 3, 4, 5, 6]] * 5 + [[1, 2, 3, 5, 6]] * 5 + [[2, 3, 5, 6]] * 5 + [[1, 2, 3, 4, 5, 6]]
SHORT = [[1, 2, 3, 4, 5, 6]] * 2 + [[1, 2]] * 3 + [[1, 2, 3, 4, 5, 6]] * 50


LOCKSTEP = {
    "given speeds": GIVEN,
    "learned": ["--emulate-noise", 0.1],
    "preempted": [*GIVEN, "--availability", "ticks.json"],
    "slower from step 10": ["--emulate-change", "10:6:0.25"],
    "cyclic": [*GIVEN, "--scheme", "cyclic"],
    "waiting": [*GIVEN, "--availability", "short.json", "--tick", "2s", "--wait"],
}
ELASTIC = {
    "given speeds": GIVEN,
    "preempted": [*GIVEN, "--availability", "ticks.json"],
    "lost in step 5": [*GIVEN, "--inject", "kill:3@5"],
    "one straggler": ["--stragglers", 1, "--emulate-noise", 0.3],
    "learned, slow, two lost": ["--inject", "kill:1@8,slow:5@10x3,kill:4@20"],
    "stopped": [*GIVEN, "--deadline", "x3", "--inject", "stop:2@6"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--base", type=float, default=120.0, help="rows per second of speed 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of each run")
    parser.add_argument("--only", default="", help="runs with this text in their name")
    options = parser.parse_args()
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        make(directory, options.steps, options.seed)
        for kind, cases in (("lockstep", LOCKSTEP), ("elastic", ELASTIC)):
            for name, words in cases.items():
                if options.only not in f"{kind}: {name}":
                    continue
                real, simulated = both(directory, kind, list(map(str, words)), options)
                off = seconds_of(simulated) / seconds_of(real) - 1
                worst = max(worst, abs(off))
                events = events_of(real), events_of(simulated)
                same = "the same" if events[0] == events[1] else f"{events[0]} and {events[1]}"
                cells = f"{seconds_of(real):.2f}", f"{seconds_of(simulated):.2f}", f"{off:+.1%}"
                rows.append([f"{kind}: {name}", *cells, str(len(events[0])), same])
                print(*rows[-1], flush=True)
    head = ["run", "real (s)", "simulated (s)", "off", "events", ""]
    print("", *format_table(head, rows, head[1:5]), f"largest difference: {worst:.1%}", sep="\n")


def make(directory: Path, steps: int, seed: int) -> None:
    """Make the store, the vectors and the lists of who is available."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, COLUMNS))
    cec_mpi.encode(X, directory / "store", MACHINES, RECOVERY)
    np.save(directory / "W.npy", rng.standard_normal((steps, COLUMNS)))
    for name, ticks in (("ticks", TICKS), ("short", SHORT)):
        (directory / f"{name}.json").write_text(json.dumps({"available": ticks}))


def both(
    directory: Path, kind: str, words: list[str], options: argparse.Namespace
) -> tuple[RunRecords, RunRecords]:
    """Return the records of a real run and of a simulated one."""
    same = ["--emulate-speeds", SPEEDS, "--emulate-base", options.base, "--seed", options.seed]
    elastic = kind == "elastic"
    local: list[object] = ["--local", MACHINES] if elastic else []
    run = ["run", "store", "vectors=W.npy", "--out", "real", "--overwrite", *local, *same, *words]
    ranks = 0 if elastic else MACHINES + 1
    command(run, directory, options.seconds, ranks)
    simulate = ["simulate", "store", "--steps", options.steps, "--out", "simulated", *same, *words]
    simulated = directory / "simulated"
    for file in simulated.glob("*.json*"):
        file.unlink()
    command([*simulate, *(["--elastic"] if elastic else [])], directory, options.seconds)
    return read_lines(directory / "real" / "steps.jsonl"), read_lines(simulated / "steps.jsonl")


def command(words: list[object], directory: Path, seconds: float, ranks: int = 0) -> None:
    launcher = ["mpirun", "--oversubscribe", "-n", ranks] if ranks else []
    program = [sys.executable, "-m", "cec_mpi", *words, "-q"]
    done = run_to_end([*launcher, *program], cwd=directory, limit=seconds)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.errors}")


def seconds_of(found: RunRecords) -> float:
    """Seconds from the header to the end of the last step."""
    begin, end = (
        datetime.fromisoformat(t) for t in (found.header["started"], found.steps[-1].time)
    )
    return (end - begin).total_seconds()


def events_of(found: RunRecords) -> list[tuple[int, str, int]]:
    """Step, kind and machine of each event."""
    return [(s.step, *kind_and_machine(event)) for s in found.steps for event in s.events]


if __name__ == "__main__":
    main()
