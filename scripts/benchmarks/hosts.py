"""Steps of a host with several machines, over those of a host with one machine and as many rows.

    python scripts/benchmarks/hosts.py [--rows 24000] [--columns 1000] [--machines 4]

Both hosts are processes that join elastic runs of this process, and each multiplies all rows of X,
in turns. Prints the seconds and the CPU seconds of the host for a step of X w and of X'v. L = 1, so
that decoding costs the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import cec_mpi
import measure
from helpers.commands import finish, start
from measure import Figure, ratio, time_in_turns


def figures(options: Any, directory: Path) -> list[Figure]:
    """Start both runs, and compare their steps in turns."""
    sizes = options.rows, options.columns
    matrix = measure.write_matrix(directory / "X.npy", *sizes, np.float64, options.seed)
    several, one = f"{options.machines} machines", "1 machine"
    with (
        start_run(matrix, directory / "several", options.machines) as first,
        start_run(matrix, directory / "one", 1) as second,
    ):
        hosts = {several: first, one: second}
        results: list[Figure] = []
        for name, length, call in (
            ("X w", options.columns, "matvec"),
            ("X'v", options.rows, "rmatvec"),
        ):
            vector, cpu = np.ones(length), {several: [], one: []}
            candidates = {
                candidate: make_candidate(
                    getattr(X, call), vector, options.steps, host, cpu[candidate]
                )
                for candidate, (X, host) in hosts.items()
            }
            times = time_in_turns(candidates, options.turns)
            host_cpu = {candidate: seconds[1:] for candidate, seconds in cpu.items()}
            results += [
                ratio(times, several, one, name),
                ratio(host_cpu, several, one, f"{name}, CPU of the host"),
                *(
                    measure.figure(f"{name}, {candidate}", seconds, "s")
                    for candidate, seconds in times.items()
                ),
            ]
    return results


@contextmanager
def start_run(matrix: Path, store: Path, machines: int) -> Iterator[tuple[Any, psutil.Process]]:
    """Yield the operator of a run on one host, and the process of the host."""
    cec_mpi.encode(matrix, store, machines, 1, scaling="none")
    conn = store.with_suffix(".json")
    with cec_mpi.open_operator(store, accept=conn, wait=True) as operator:
        operator.start()
        host = start(["cec-mpi", "join", conn, "--machines", machines, "-q"])
        operator @ np.ones(operator.shape[1])
        yield operator, psutil.Process(host.process.pid)
    finish(host)


def make_candidate(
    product: Callable[[Any], Any], vector: Any, count: int, host: psutil.Process, cpu: list[float]
) -> Callable[[], float]:
    """Return a function that returns mean seconds of steps, and appends CPU seconds to `cpu`."""

    def run_steps() -> float:
        before, begin = sum(host.cpu_times()[:2]), time.perf_counter()
        for _ in range(count):
            product(vector)
        seconds = time.perf_counter() - begin
        cpu.append((sum(host.cpu_times()[:2]) - before) / count)
        return seconds / count

    return run_steps


def add_options(parser: Any) -> None:
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)


if __name__ == "__main__":
    sys.exit(measure.main(__doc__, figures, add_options, turns=9))
