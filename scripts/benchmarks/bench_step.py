"""A step beside the bare wire: the same messages and the same products, nothing else.

    mpirun -n 7 python scripts/benchmarks/bench_step.py [--rows 24000] [--columns 1000]
        [--recovery 3]

Prints the median time of a step, of one by messages in place of collectives, of
bare blocking Bcast, products and Gatherv, and of the same without products; alternating in one
run, so that they compare.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import cec_mpi
from cec_mpi.processes.launch.places import limit_threads

ROUNDS, STEPS = 6, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--recovery", type=int, default=3)
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    machines = comm.size - 1
    with tempfile.TemporaryDirectory(prefix="cec-bench-") as directory:
        store = Path(comm.bcast(directory)) / "store"
        if comm.rank == 0:
            rng = np.random.default_rng(0)
            np.save(store.with_name("X.npy"), rng.standard_normal((chosen.rows, chosen.columns)))
            cec_mpi.encode(store.with_name("X.npy"), store, machines, chosen.recovery)
        comm.Barrier()
        times: dict[str, list[float]] = {"step": [], "messages": [], "bare": [], "wire": []}
        for _ in range(ROUNDS):
            times["step"] += elastic(comm, store, chosen.columns)
            times["messages"] += elastic(comm, store, chosen.columns, deadline=60)
            times["bare"] += bare(comm, store, chosen, products=True)
            times["wire"] += bare(comm, store, chosen, products=False)
        comm.Barrier()
    if comm.rank == 0:
        medians = {name: 1e3 * np.median(values) for name, values in times.items()}
        print(f"{comm.size} ranks, {chosen.rows} x {chosen.columns}, L = {chosen.recovery}")
        print(", ".join(f"{name} {value:.2f} ms" for name, value in medians.items()))
        print(f"step / bare = {medians['step'] / medians['bare']:.2f}")
        print(f"messages / step = {medians['messages'] / medians['step']:.2f}")


def elastic(comm: MPI.Intracomm, store: Path, columns: int, **options: Any) -> list[float]:
    times = []
    w = np.ones(columns)
    speeds = (1.0,) * (comm.size - 1)
    with cec_mpi.open_operator(store, comm, speeds=speeds, **options) as X:
        if X is not None:
            for _ in range(STEPS):
                begin = time.perf_counter()
                X.matvec(w)
                times.append(time.perf_counter() - begin)
    return times[3:]


def bare(
    comm: MPI.Intracomm, store: Path, chosen: argparse.Namespace, products: bool
) -> list[float]:
    per_shard = -(-chosen.rows // chosen.recovery)
    share = per_shard * chosen.recovery // (comm.size - 1)
    counts = [0] + [share] * (comm.size - 1)
    answer = np.empty(counts[comm.rank])
    answers = np.empty(sum(counts)) if comm.rank == 0 else None
    w = np.ones(chosen.columns)
    shard = cec_mpi.open_store(store).shard(comm.rank) if comm.rank else None
    times = []
    with limit_threads(1):
        for _ in range(STEPS):
            begin = time.perf_counter()
            comm.Bcast(w)
            if products and shard is not None:
                np.dot(shard[: answer.size], w, out=answer)
            comm.Gatherv(answer, [answers, counts] if comm.rank == 0 else None)
            times.append(time.perf_counter() - begin)
    return times[3:]


if __name__ == "__main__":
    main()
