"""Compare simulated runs with real ones: times and events of twelve runs with emulated speeds.

    python scripts/benchmarks/simulation.py [--only stopped] [--base 120] [--steps 30]

Machines sleep for most of each step, so that other load has little effect. Times are from the
first step to the end of the last one. Events must agree in kind, step and machine.
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
from cec_mpi.runtime.records.reading import RunRecords, read_records
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_cec_mpi

SPEEDS = "2,2,3,3,4,4"
KNOWN_SPEEDS = ["--speeds", SPEEDS]
MACHINES, RECOVERY, ROWS, COLUMNS = 6, 3, 1200, 50

TICKS = [[1, 2, 3, 4, 5, 6]] * 5 + [[1, 2, 3, 5, 6]] * 5 + [[2, 3, 5, 6]] * 5 + [[1, 2, 3, 4, 5, 6]]
TOO_FEW = [[1, 2, 3, 4, 5, 6]] * 2 + [[1, 2]] * 3 + [[1, 2, 3, 4, 5, 6]] * 50


LOCKSTEP = {
    "given speeds": KNOWN_SPEEDS,
    "learned": ["--emulate-noise", 0.1],
    "preempted": [*KNOWN_SPEEDS, "--availability", "ticks.json"],
    "slower from step 10": ["--emulate-change", "10:6:0.25"],
    "cyclic": [*KNOWN_SPEEDS, "--scheme", "cyclic"],
    "waiting": [*KNOWN_SPEEDS, "--availability", "too-few.json", "--tick", "2s", "--wait"],
}
ELASTIC = {
    "given speeds": KNOWN_SPEEDS,
    "preempted": [*KNOWN_SPEEDS, "--availability", "ticks.json"],
    "lost in step 5": [*KNOWN_SPEEDS, "--inject", "kill:3@5"],
    "one straggler": ["--stragglers", 1, "--emulate-noise", 0.3],
    "learned, slow, two lost": ["--inject", "kill:1@8,slow:5@10x3,kill:4@20"],
    "stopped": [*KNOWN_SPEEDS, "--deadline", "x3", "--inject", "stop:2@6"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--base", type=float, default=120.0, help="rows per second of speed 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit of each run")
    parser.add_argument("--only", default="", help="run only cases whose names contain this text")
    options = parser.parse_args()
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        make_inputs(directory, options.steps, options.seed)
        for kind, cases in (("lockstep", LOCKSTEP), ("elastic", ELASTIC)):
            for name, arguments in cases.items():
                if options.only not in f"{kind}: {name}":
                    continue
                real, simulated = run_both(directory, kind, list(map(str, arguments)), options)
                difference = run_seconds(simulated) / run_seconds(real) - 1
                worst = max(worst, abs(difference))
                events = list_events(real), list_events(simulated)
                comparison = "equal" if events[0] == events[1] else f"{events[0]} and {events[1]}"
                cells = (
                    f"{run_seconds(real):.2f}",
                    f"{run_seconds(simulated):.2f}",
                    f"{difference:+.1%}",
                )
                rows.append([f"{kind}: {name}", *cells, str(len(events[0])), comparison])
                print(*rows[-1], flush=True)
    head = ["run", "real (s)", "simulated (s)", "difference", "events", ""]
    print("", *format_table(head, rows, head[1:5]), f"largest difference: {worst:.1%}", sep="\n")


def make_inputs(directory: Path, steps: int, seed: int) -> None:
    """Write the store, the vectors and the lists of available machines."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, COLUMNS))
    cec_mpi.encode(X, directory / "store", MACHINES, RECOVERY)
    np.save(directory / "W.npy", rng.standard_normal((steps, COLUMNS)))
    for name, ticks in (("ticks", TICKS), ("too-few", TOO_FEW)):
        (directory / f"{name}.json").write_text(json.dumps({"available": ticks}))


def run_both(
    directory: Path, kind: str, arguments: list[str], options: argparse.Namespace
) -> tuple[RunRecords, RunRecords]:
    """Return the records of a real run and of a simulated one."""
    emulation = ["--emulate-speeds", SPEEDS, "--emulate-base", options.base]
    common = [*emulation, "--seed", options.seed, "-q", *arguments]
    run: list[object] = ["run", "store", "vectors=W.npy", "--out", "real", "--overwrite", *common]
    simulate = ["simulate", "store", "--steps", options.steps, "--out", "simulated", *common]
    if kind == "elastic":
        run_cec_mpi([*run, "--local", MACHINES], directory, options.seconds)
        simulate.append("--elastic")
    else:
        launcher = ["mpirun", "--oversubscribe", "-n", MACHINES + 1]
        run_cec_mpi(run, directory, options.seconds, launcher)
    simulated = directory / "simulated"
    for file in simulated.glob("*.json*"):
        file.unlink()
    run_cec_mpi(simulate, directory, options.seconds)
    return read_records(directory / "real" / "steps.jsonl"), read_records(simulated / "steps.jsonl")


def run_seconds(records: RunRecords) -> float:
    """Return the seconds from the header to the end of the last step."""
    begin, end = (
        datetime.fromisoformat(t) for t in (records.header["started"], records.steps[-1].time)
    )
    return (end - begin).total_seconds()


def list_events(records: RunRecords) -> list[tuple[int, str, int]]:
    """Return the step, kind and machine of each event."""
    return [(s.step, *kind_and_machine(event)) for s in records.steps for event in s.events]


if __name__ == "__main__":
    main()
