"""Steps of one host that carries several machines, over a host with one that has as many rows.

    python scripts/benchmarks/hosts.py [--rows 24000] [--columns 1000] [--machines 4]

Both hosts are processes that join an elastic run of this process, and each computes all rows of X,
in turns. Seconds of a step, and CPU seconds of the host for it, for X w and X'v. One machine is
enough (L = 1), so that decoding costs the same.
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
from measure import Figure, in_turns, ratio

STRIPE = 64 << 20  # bytes of X that are written at once


def figures(options: Any, directory: Path) -> list[Figure]:
    """Open both runs, and compare their steps in turns."""
    X = numbers(directory / "X.npy", options.rows, options.columns, options.seed)
    several, one = f"{options.machines} machines", "1 machine"
    with (
        opened(X, directory / "several", options.machines) as first,
        opened(X, directory / "one", 1) as second,
    ):
        hosts = {several: first, one: second}
        found: list[Figure] = []
        for name, length, call in (
            ("X w", options.columns, "matvec"),
            ("X'v", options.rows, "rmatvec"),
        ):
            vector, cpu = np.ones(length), {several: [], one: []}
            ways = {
                way: steps(getattr(X, call), vector, options.steps, host, cpu[way])
                for way, (X, host) in hosts.items()
            }
            times = in_turns(ways, options.turns)
            of_host = {way: each[1:] for way, each in cpu.items()}
            found += [
                ratio(times, several, one, name),
                ratio(of_host, several, one, f"{name}, CPU of the host"),
                *(measure.figure(f"{name}, {way}", each, "s") for way, each in times.items()),
            ]
    return found


def numbers(path: Path, rows: int, columns: int, seed: int) -> Path:
    """A file of random numbers, of which a stripe at a time is in memory."""
    random = np.random.default_rng(seed)
    X = np.lib.format.open_memmap(path, "w+", np.float64, (rows, columns))
    height = max(1, STRIPE // (8 * columns))
    for begin in range(0, rows, height):
        X[begin : begin + height] = random.random((min(height, rows - begin), columns))
    X.flush()
    return path


@contextmanager
def opened(X: Path, store: Path, machines: int) -> Iterator[tuple[Any, psutil.Process]]:
    """X of a store with so many machines, all of which are on one host; and its process."""
    cec_mpi.encode(X, store, machines, 1, scaling="none")
    conn = store.with_suffix(".json")
    with cec_mpi.open_operator(store, accept=conn, wait=True) as operator:
        operator.start()
        host = start(["cec-mpi", "join", conn, "--machines", machines, "-q"])
        operator @ np.ones(operator.shape[1])
        yield operator, psutil.Process(host.process.pid)
    finish(host)


def steps(
    product: Callable[[Any], Any], vector: Any, count: int, host: psutil.Process, cpu: list[float]
) -> Callable[[], float]:
    """A way to make so many steps: seconds of each; CPU seconds of the host are added to `cpu`."""

    def way() -> float:
        before, begin = sum(host.cpu_times()[:2]), time.perf_counter()
        for _ in range(count):
            product(vector)
        seconds = time.perf_counter() - begin
        cpu.append((sum(host.cpu_times()[:2]) - before) / count)
        return seconds / count

    return way


def add_options(parser: Any) -> None:
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)


if __name__ == "__main__":
    sys.exit(measure.main(__doc__, figures, add_options, turns=9))
