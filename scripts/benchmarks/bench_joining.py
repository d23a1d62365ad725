"""A step with machines that joined, over one with the ranks of one mpirun: ratios.

    python scripts/benchmarks/bench_joining.py [--machines 6] [--milliseconds 5] [--turns 5]

In turns, the same products are taken by ranks of ``mpirun --with-ft ulfm`` with
``on_loss="continue"``, and by as many machines that have joined. Prints the median step of each
turn, and the ratio of the two. What a step computes is chosen so that with ranks it takes about
so many milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cec_mpi

COLUMNS, STEPS, LIMIT = 1000, 300, 120
HERE = [sys.executable, __file__]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--take", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--accept", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take is not None:
        take(arguments.take, arguments.machines, arguments.accept)
    else:
        with tempfile.TemporaryDirectory() as directory:
            compare(Path(directory), arguments)


def compare(directory: Path, arguments: argparse.Namespace) -> None:
    """Take turns."""
    machines, rows = arguments.machines, 3000
    for _ in range(2):  # what a step takes beside its products does not grow with the rows
        first = of_ranks(encoded(directory, rows, machines), machines)
        rows = int(rows * max(1.0, arguments.milliseconds / first))
    store = encoded(directory, rows, machines)
    found = []
    for _ in range(arguments.turns):
        ranks, joined = of_ranks(store, machines), of_joined(store, machines)
        found.append(joined / ranks)
        print(f"ranks {ranks:.2f} ms, joined {joined:.2f} ms: {found[-1]:.3f}", flush=True)
    middle = statistics.median(found)
    print(
        f"{machines} machines, {rows} x {COLUMNS}: joined over ranks {middle:.3f} "
        f"({min(found):.3f} to {max(found):.3f} in {len(found)} turns)"
    )


def encoded(directory: Path, rows: int, machines: int) -> Path:
    """A store of random numbers, half of whose machines are enough."""
    X, store = directory / f"{rows}.npy", directory / f"store-{rows}"
    if not store.exists():
        np.save(X, np.random.default_rng(0).standard_normal((rows, COLUMNS)))
        cec_mpi.encode(X, store, machines, machines // 2)
    return store


def of_ranks(store: Path, machines: int) -> float:
    """The median step of ranks, in milliseconds."""
    launcher = ["mpirun", "--with-ft", "ulfm", "-n", machines + 1]
    words = [*launcher, *HERE, "--take", store, "--machines", machines]
    return median_of([str(word) for word in words])


def of_joined(store: Path, machines: int) -> float:
    """The median step of machines that joined, in milliseconds."""
    file = store.parent / "conn"
    join = [sys.executable, "-m", "cec_mpi", "join", file, "--retry", "30", "--threads", "1", "-q"]
    processes = [subprocess.Popen(join) for _ in range(machines)]
    try:
        words = [*HERE, "--take", store, "--machines", machines, "--accept", file]
        return median_of([str(word) for word in words])
    finally:
        for process in processes:
            process.terminate()
            process.wait(LIMIT)


def median_of(words: list[str]) -> float:
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
    return float(done.stdout.split()[-1])


def take(store: Path, machines: int, accept: Path | None) -> None:
    """Take the steps, as the master or as a rank that serves."""
    if accept is not None:
        comm, options = None, {"accept": str(accept), "wait": True}
    else:
        from mpi4py import MPI

        comm, options = MPI.COMM_WORLD, {"on_loss": "continue"}
    with cec_mpi.open_operator(store, comm, threads=1, **options) as X:
        if X is None:
            return
        w, walls = np.ones(COLUMNS), []
        due = time.monotonic() + LIMIT / 2
        while len(X.available) < machines and time.monotonic() < due:
            X @ w
        for _ in range(STEPS):
            begin = time.perf_counter()
            X @ w
            walls.append(time.perf_counter() - begin)
        assert len(X.available) == machines
    print(1e3 * statistics.median(walls[STEPS // 10 :]))


if __name__ == "__main__":
    main()
