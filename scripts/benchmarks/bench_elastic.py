"""Elastic steps over lockstep steps: ratios.

    python scripts/benchmarks/bench_elastic.py [--machines 6] [--milliseconds 1,5,15]
        [--columns 1000] [--turns 5] [--seed 0] [--seconds 600]

In turns, the same products are computed in lockstep by ``mpirun``, and by as many machines of an
elastic run on this computer. Prints the median step of each turn, and the ratio of the two. The
rows are chosen so that a step in lockstep takes about so many milliseconds; with many columns it is
w that takes the time. After ``--seconds`` no turn begins.
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

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from helpers.commands import environment, mpirun

STEPS, LIMIT = 300, 120
HERE = [sys.executable, __file__]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--milliseconds", default="1,5,15")
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--take", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take is not None:
        take(Path(arguments.take[0]), int(arguments.take[1]))
        return
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as directory:
        for milliseconds in map(float, arguments.milliseconds.split(",")):
            compare(Path(directory), milliseconds, end, arguments)


def compare(
    directory: Path, milliseconds: float, end: float, arguments: argparse.Namespace
) -> None:
    """Take turns."""
    machines, rows = arguments.machines, 600
    for _ in range(2):  # what a step takes beside its products does not grow with the rows
        first = median_of(encoded(directory, rows, arguments), machines, elastic=False)
        rows = int(rows * max(1.0, milliseconds / first))
    store = encoded(directory, rows, arguments)
    ratios = []
    for _ in range(arguments.turns):
        if time.monotonic() > end:
            break
        lockstep, elastic = (median_of(store, machines, elastic=each) for each in (False, True))
        ratios.append(elastic / lockstep)
        print(f"lockstep {lockstep:.2f} ms, elastic {elastic:.2f} ms: {ratios[-1]:.3f}", flush=True)
    if ratios:
        print(
            f"{machines} machines, {rows} x {arguments.columns}: elastic over lockstep "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f} in "
            f"{len(ratios)} turns)",
            flush=True,
        )


def encoded(directory: Path, rows: int, arguments: argparse.Namespace) -> Path:
    """A store of random numbers, half of whose machines are enough."""
    X, store = directory / f"{rows}.npy", directory / f"store-{rows}"
    if not store.exists():
        random = np.random.default_rng(arguments.seed)
        np.save(X, random.standard_normal((rows, arguments.columns)))
        cec_mpi.encode(X, store, arguments.machines, arguments.machines // 2)
    return store


def median_of(store: Path, machines: int, elastic: bool) -> float:
    """The median step, in milliseconds."""
    launch = [] if elastic else [mpirun(), "-n", machines + 1]
    words = [*launch, *HERE, "--take", store, machines if elastic else 0]
    done = subprocess.run(
        [str(word) for word in words],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    return float(done.stdout.split()[-1])


def take(store: Path, local: int) -> None:
    """Take the steps: as the master of so many machines, or as a rank."""
    if local:
        comm, options = None, {"local": local}
    else:
        from mpi4py import MPI

        comm, options = MPI.COMM_WORLD, {}
    with cec_mpi.open_operator(store, comm, threads=1, **options) as X:
        if X is None:
            return
        w, walls = np.ones(X.shape[1]), []
        for _ in range(STEPS):
            begin = time.perf_counter()
            X @ w
            walls.append(time.perf_counter() - begin)
    print(1e3 * statistics.median(walls[STEPS // 10 :]))


if __name__ == "__main__":
    main()
