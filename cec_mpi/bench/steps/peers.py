"""The same step as plain programs of mpi4py would make it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cec_mpi.bench.steps.timing import median_step
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.processes.places import limit_threads
from cec_mpi.store.reader import open_store

if TYPE_CHECKING:
    from mpi4py import MPI


def bare(comm: MPI.Intracomm, store: Path, steps: int, products: bool = True) -> float:
    """Collective: seconds of a blocking Bcast of w, a product on each machine, and a Gatherv.

    Machines have equal shares of all rows, and nothing is decoded.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    store : Path
    steps : int
    products : bool
        Without them it is the wire alone.
    """
    opened = open_store(store)
    machines, manifest = comm.size - 1, opened.manifest
    share = manifest.rows_per_shard * manifest.code.recovery // machines
    counts = [0] + [share] * machines
    answer = np.empty(counts[comm.rank])
    answers = [np.empty(sum(counts)), counts] if comm.rank == 0 else None
    w = np.ones(manifest.columns)
    shard = opened.shard(comm.rank) if comm.rank else None

    def step() -> None:
        comm.Bcast(w)
        if products and shard is not None:
            np.dot(shard[:share], w, out=answer)
        comm.Gatherv(answer, answers)

    with limit_threads(1):
        return median_step(step, steps)


def published(comm: MPI.Intracomm, store: Path, steps: int) -> float:
    """Collective: seconds of a step as the method's own program makes it.

    A pickled dict goes to all, a Barrier stands before and after the products, answers come
    pickled, and the decoder goes from row to row.
    """
    opened = open_store(store)
    code, rows = opened.manifest.code, opened.manifest.rows_per_shard
    machines = tuple(range(1, comm.size))
    assignment = plan_step(machines, (1.0,) * len(machines), code.recovery, rows).assignment
    shard = opened.shard(comm.rank) if comm.rank else None
    mine = assignment.intervals(comm.rank) if comm.rank else ()
    inverses = [np.linalg.inv(code.generator[block - 1]) for block in assignment.machines]
    decoded = np.empty((code.recovery, rows))
    w = np.ones(opened.manifest.columns)

    def step() -> None:
        told = comm.bcast({"w": w, "available": machines} if comm.rank == 0 else None)
        comm.Barrier()
        answer = np.empty(0)
        if shard is not None:
            answer = np.concatenate([shard[start:stop] @ told["w"] for start, stop in mine])
        comm.Barrier()
        gathered = comm.gather(answer)
        if gathered is None:
            return
        answers = np.concatenate(gathered)
        for block, inverse, places in zip(
            assignment.blocks, inverses, assignment.positions, strict=True
        ):
            for row in range(block.stop - block.start):
                decoded[:, block.start + row] = inverse @ answers[places + row]

    with limit_threads(1):
        return median_step(step, steps)
