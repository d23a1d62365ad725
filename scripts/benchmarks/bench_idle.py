"""CPU that waiting ranks use while one machine computes, and how late they wake up.

    mpirun -n 7 python scripts/benchmarks/bench_idle.py

Machine 1 takes two seconds for each step while the master and the other machines wait. Prints,
per waiting rank, its CPU time over the wall time, and the time of a step with next to nothing
to compute.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import cec_mpi
from cec_mpi.processes.library import library_name

SECONDS = 2.0
STEPS = 4
EMPTY_STEPS = 200
ROWS, COLUMNS = 1000, 500


def take_steps(comm: MPI.Intracomm, store: Path, steps: int, **options: object) -> list[float]:
    """On the master: the times of so many steps."""
    walls = []
    with cec_mpi.open_operator(store, comm, availability={1}, threads=1, **options) as X:
        if X is not None:
            w = np.zeros(COLUMNS)
            X @ w  # everything is loaded then
            for _ in range(steps):
                begin = time.perf_counter()
                X @ w
                walls.append(time.perf_counter() - begin)
    return walls


def main() -> None:
    comm = MPI.COMM_WORLD
    machines = comm.size - 1
    with tempfile.TemporaryDirectory() as directory:
        store = Path(comm.bcast(directory)) / "store"
        if comm.rank == 0:
            np.save(store.with_suffix(".npy"), np.ones((ROWS, COLUMNS)))
            cec_mpi.encode(store.with_suffix(".npy"), store, machines, 1)
        comm.Barrier()
        speeds = (1.0,) * machines
        cpu, wall = time.process_time(), time.perf_counter()
        take_steps(comm, store, STEPS - 1, emulate_speeds=speeds, emulate_base=ROWS / SECONDS)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        walls = take_steps(comm, store, EMPTY_STEPS)
        comm.Barrier()
    shares = comm.gather(share)
    if comm.rank == 0:
        waiting = [part for rank, part in enumerate(shares) if rank != 1]
        empty = 1e3 * np.array(walls[10:])
        print(f"{library_name()}, {comm.size} ranks; rank 1 computes")
        print("CPU of each waiting rank: " + ", ".join(f"{100 * s:.1f} %" for s in waiting))
        print(
            f"a step: median {np.median(empty):.2f} ms, 9 of 10 in {np.quantile(empty, 0.9):.2f} ms"
        )


if __name__ == "__main__":
    main()
