"""The adjoint and a block of vectors beside one product, in one run on the same machines.

    mpirun -n 7 python scripts/benchmarks/bench_operator.py [--rows 60000] [--columns 2500]

Prints the median time of X w, of X' v, and of X W and X' V with 8 columns, each as a
multiple of X w: first the whole step, then the computation of the slowest machine. The
products alternate, so that they compare.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import cec_mpi
from cec_mpi.records.recorder import Recorder

WARM = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=2_500)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--dtype", default="float64")
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory(prefix="cec-bench-") as directory:
        store = Path(comm.bcast(directory)) / "store"
        if comm.rank == 0:
            rng = np.random.default_rng(0)
            X = rng.standard_normal((chosen.rows, chosen.columns)).astype(chosen.dtype)
            np.save(store.with_name("X.npy"), X)
            del X
            cec_mpi.encode(store.with_name("X.npy"), store, comm.size - 1, chosen.recovery)
        comm.Barrier()
        makespans: list[float] = []
        recorder = Recorder(watch=lambda record: makespans.append(record.measured_makespan))
        speeds = (1.0,) * (comm.size - 1)
        with cec_mpi.open_operator(store, comm, recorder=recorder, speeds=speeds) as X:
            if X is not None:
                times = measure(X, chosen, makespans)
        comm.Barrier()
    if comm.rank == 0:
        print(f"{comm.size} ranks, {chosen.rows} x {chosen.columns} {chosen.dtype}")
        print(f"{'':24} {'step ms':>9} {'of X w':>7} {'compute ms':>11} {'of X w':>7}")
        steps, computed = (
            {name: float(np.median([t[k] for t in timed[WARM:]])) for name, timed in times.items()}
            for k in (0, 1)
        )
        for name in times:
            print(
                f"{name:24} {1e3 * steps[name]:9.2f} {steps[name] / steps['X w']:7.2f} "
                f"{1e3 * computed[name]:11.2f} {computed[name] / computed['X w']:7.2f}"
            )


def measure(X, chosen, makespans):
    """Seconds of each step, and of the slowest machine in it, by product."""
    rng = np.random.default_rng(1)
    w, v = rng.standard_normal(X.shape[1]), rng.standard_normal(X.shape[0])
    W = rng.standard_normal((X.shape[1], chosen.block))
    V = rng.standard_normal((X.shape[0], chosen.block))
    products = {
        "X w": lambda: X.matvec(w),
        "X' v": lambda: X.rmatvec(v),
        f"X W, {chosen.block} columns": lambda: X.matmat(W),
        f"X' V, {chosen.block} columns": lambda: X.rmatmat(V),
    }
    times = {name: [] for name in products}
    for _ in range(chosen.rounds + WARM):
        for name, product in products.items():
            begin = time.perf_counter()
            product()
            times[name].append((time.perf_counter() - begin, makespans[-1]))
    return times


if __name__ == "__main__":
    main()
