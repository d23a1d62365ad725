"""A step beside the bare wire, and beside the program that the method was published with.

    mpirun -n 7 python scripts/benchmarks/bench_step.py [--rows 24000] [--columns 1000]
        [--recovery 3] [--rounds 6] [--steps 40]

Prints the time of a step X w and of one X' v, of X w by messages in place of collectives, and of
what does the same with nothing but mpi4py:

bare       blocking Bcast, products, and Gatherv
wire       the same without products
published  as the program of the paper on elastic computing with heterogeneous machines does it: a
           pickled dict to all, a Barrier before and after the products, pickled answers, and a
           decoder that goes from row to row

All of it in one run, in turns, so that it compares; medians, and the fastest tenth.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import cec_mpi
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.processes.launch.places import limit_threads

UNCOUNTED = 3  # steps of each round, the first ones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="cec-bench-") as directory:
        store = Path(comm.bcast(directory)) / "store"
        if comm.rank == 0:
            rng = np.random.default_rng(0)
            np.save(store.with_name("X.npy"), rng.standard_normal((chosen.rows, chosen.columns)))
            cec_mpi.encode(store.with_name("X.npy"), store, comm.size - 1, chosen.recovery)
        comm.Barrier()
        for _ in range(chosen.rounds):
            times.setdefault("X w", []).extend(elastic(comm, store, chosen))
            times.setdefault("X' v", []).extend(elastic(comm, store, chosen, adjoint=True))
            times.setdefault("messages", []).extend(elastic(comm, store, chosen, deadline=60))
            times.setdefault("published", []).extend(published(comm, store, chosen))
            times.setdefault("bare", []).extend(bare(comm, store, chosen, products=True))
            times.setdefault("wire", []).extend(bare(comm, store, chosen, products=False))
        comm.Barrier()
    if comm.rank == 0:
        step = np.median(times["X w"])
        print(f"{comm.size} ranks, {chosen.rows} x {chosen.columns}, L = {chosen.recovery}")
        print("                  ms   fastest tenth   over X w")
        for name, several in times.items():
            middle, tenth = 1e3 * np.median(several), 1e3 * np.quantile(several, 0.1)
            print(f"{name:10s} {middle:9.3f} {tenth:15.3f} {1e-3 * middle / step:10.2f}")
        print(f"X w over bare: {step / np.median(times['bare']):.2f}")


@contextmanager
def steps_of(chosen: argparse.Namespace, times: list[float]) -> Iterator[Iterator[int]]:
    """So many steps; their times are then in `times`, but for those of the first ones."""
    found: list[float] = []

    def numbers() -> Iterator[int]:
        begin = time.perf_counter()
        for number in range(chosen.steps):
            yield number
            end = time.perf_counter()
            found.append(end - begin)
            begin = end

    yield numbers()
    times.extend(found[UNCOUNTED:])


def elastic(
    comm: MPI.Intracomm,
    store: Path,
    chosen: argparse.Namespace,
    adjoint: bool = False,
    **options: Any,
) -> list[float]:
    times: list[float] = []
    speeds = (1.0,) * (comm.size - 1)
    with cec_mpi.open_operator(store, comm, speeds=speeds, **options) as X:
        if X is not None:
            product = X.rmatvec if adjoint else X.matvec
            vector = np.ones(chosen.rows if adjoint else chosen.columns)
            with steps_of(chosen, times) as numbers:
                for _ in numbers:
                    product(vector)
    return times


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
    times: list[float] = []
    with limit_threads(1), steps_of(chosen, times) as numbers:
        for _ in numbers:
            comm.Bcast(w)
            if products and shard is not None:
                np.dot(shard[: answer.size], w, out=answer)
            comm.Gatherv(answer, [answers, counts] if comm.rank == 0 else None)
    return times


def published(comm: MPI.Intracomm, store: Path, chosen: argparse.Namespace) -> list[float]:
    opened = cec_mpi.open_store(store)
    code, rows = opened.manifest.code, opened.manifest.rows_per_shard
    machines = tuple(range(1, comm.size))
    assignment = plan_step(machines, (1.0,) * len(machines), code.recovery, rows).assignment
    shard = opened.shard(comm.rank) if comm.rank else None
    mine = assignment.intervals(comm.rank) if comm.rank else ()
    inverses = [np.linalg.inv(code.generator[block - 1]) for block in assignment.machines]
    decoded = np.empty((code.recovery, rows))
    w = np.ones(chosen.columns)
    times: list[float] = []
    with limit_threads(1), steps_of(chosen, times) as numbers:
        for number in numbers:
            told = {"step": number, "w": w, "available": machines} if comm.rank == 0 else None
            told = comm.bcast(told)
            comm.Barrier()
            answer = np.empty(0)
            if shard is not None:
                answer = np.concatenate([shard[start:stop] @ told["w"] for start, stop in mine])
            comm.Barrier()
            gathered = comm.gather(answer)
            if gathered is not None:
                answers = np.concatenate(gathered)
                for block, inverse, places in zip(
                    assignment.blocks, inverses, assignment.positions, strict=True
                ):
                    for row in range(block.stop - block.start):
                        decoded[:, block.start + row] = inverse @ answers[places + row]
    return times


if __name__ == "__main__":
    main()
