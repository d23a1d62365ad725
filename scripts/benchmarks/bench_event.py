"""A step whose machines are others than before, beside a step without such an event.

    python scripts/benchmarks/bench_event.py [--machines 100 400] [--recovery 10] [--rows 4000]
        [--columns 400] [--leave 3] [--events 30] [--seed I]

All machines are in this process, and have read their rows before. Each event has other machines
away: those of a set that is new, or of one that was there two events ago. Steps without an event
come between them; ratios are to the median of those, with quartiles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
from cec_mpi.processes.launch.places import limit_threads


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machines", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--recovery", type=int, default=10)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--columns", type=int, default=400)
    parser.add_argument("--leave", type=int, default=3, help="machines that are away")
    parser.add_argument("--events", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print("machines  product  no event ms  set seen before    set is new")
    for machines in chosen.machines:
        with tempfile.TemporaryDirectory(prefix="cec-bench-") as directory, limit_threads(1):
            measure(Path(directory), machines, chosen)


def measure(directory: Path, machines: int, chosen: argparse.Namespace) -> None:
    rng = np.random.default_rng(chosen.seed)
    np.save(directory / "X.npy", rng.standard_normal((chosen.rows, chosen.columns)))
    cec_mpi.encode(directory / "X.npy", directory / "store", machines, chosen.recovery)
    speeds = tuple(rng.uniform(1, 4, machines))
    with cec_mpi.open_operator(directory / "store", None, speeds=speeds) as X:
        everyone = np.arange(1, machines + 1)
        for first in range(0, machines, chosen.recovery):  # which read all of their rows
            X.available = set(everyone[-chosen.recovery :] - min(first, machines - chosen.recovery))
            X.matvec(np.ones(chosen.columns))
        for name, multiply in ("X w", X.matvec), ("X'v", X.rmatvec):
            vector = np.ones(X.shape[0 if name == "X'v" else 1])
            print(f"{machines:8}  {name:7}  {row(X, multiply, vector, everyone, rng, chosen)}")


def row(
    X: Any,
    multiply: Callable[[Any], Any],
    vector: np.ndarray,
    everyone: np.ndarray,
    rng: np.random.Generator,
    chosen: argparse.Namespace,
) -> str:
    def step(available: set[int]) -> float:
        X.available = available
        begin = time.perf_counter()
        multiply(vector)
        return time.perf_counter() - begin

    times: dict[str, list[float]] = {"same": [], "seen": [], "new": []}
    sets: list[set[int]] = []
    for event in range(chosen.events + 3):
        away = rng.choice(everyone, chosen.leave, replace=False)
        sets.append(set(everyone.tolist()) - set(away.tolist()))
        times["new"].append(step(sets[-1]))
        times["same"] += [step(sets[-1]), step(sets[-1])]
        if event > 2:
            times["seen"].append(step(sets[-3]))
            times["same"] += [step(sets[-3]), step(sets[-3])]
    same = float(np.median(times["same"]))
    shown = []
    for kind in "seen", "new":
        low, middle, high = np.quantile(times[kind][3:], (0.25, 0.5, 0.75)) / same
        shown.append(f"{middle:5.2f} ({low:.2f} to {high:.2f})")
    return f"{1e3 * same:11.2f}  " + "  ".join(shown)


if __name__ == "__main__":
    main()
