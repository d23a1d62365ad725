"""A plain program on the machines that are there: it reads its rows, and goes on from a checkpoint.

    mpirun -n P python -m mpi4py -m cec_mpi.bench.league.restarted JOB START STOP

makes these iterations, on the P - 1 machines that are available in the first of them. It is told
before one goes, saves what it has, and ends.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI

from cec_mpi.bench.league.work import Contestant, Job, Pace, Vector, perform
from cec_mpi.core.plan.load import whole_row_load

_STOP, _FORWARD, _ADJOINT = range(3)


class Master(Contestant):
    """Rank 0: sends vectors, collects answers."""

    def __init__(self, comm: MPI.Intracomm, counts: list[int]) -> None:
        self._comm = comm
        self._counts = counts

    def forward(self, w: Vector) -> Vector:
        """X w: everybody gets w, and sends its part."""
        self._say(_FORWARD)
        self._comm.Bcast(w)
        product = np.empty(w.size)
        self._comm.Gatherv(None, (product, self._counts))
        self.moved += (self._comm.size - 1) * w.nbytes + product.nbytes
        return product

    def adjoint(self, v: Vector) -> Vector:
        """X' v: everybody gets its part of v, and the answers are added up."""
        self._say(_ADJOINT)
        self._comm.Scatterv((v, self._counts), None)
        product = np.zeros(v.size)
        self._comm.Reduce(MPI.IN_PLACE, product)
        self.moved += v.nbytes + (self._comm.size - 1) * product.nbytes
        return product

    def stop(self) -> None:
        """Let the machines go."""
        self._say(_STOP)

    def _say(self, order: int) -> None:
        self._comm.Bcast(np.array([order]))


def serve(comm: MPI.Intracomm, rows: Vector, pace: Pace) -> None:
    """The other ranks: multiply their rows until it is over."""
    order = np.empty(1, dtype=np.int64)
    w, u = np.empty(rows.shape[1]), np.empty(len(rows))
    while True:
        comm.Bcast(order)
        if order[0] == _STOP:
            return
        if order[0] == _FORWARD:
            comm.Bcast(w)
        else:
            comm.Scatterv(None, u)
        begin = time.perf_counter()
        answer = rows @ w if order[0] == _FORWARD else rows.T @ u
        pace.wait(begin, len(rows))
        if order[0] == _FORWARD:
            comm.Gatherv(answer, None)
        else:
            comm.Reduce(answer, None)


def play(comm: MPI.Intracomm, job: Job, start: int, stop: int) -> None:
    """Make these iterations of a job, on one rank more than are available; collective."""
    begin = time.perf_counter()
    machines = job.available[start]
    counts = [0, *whole_row_load([job.speeds[n - 1] for n in machines], 1, job.size).tolist()]
    first = sum(counts[: comm.rank])
    rows = np.array(job.matrix()[first : first + counts[comm.rank]])
    comm.Barrier()
    if comm.rank:
        serve(comm, rows, Pace(job.rate(machines[comm.rank - 1])))
        return
    master = Master(comm, counts)
    perform(master, job, time.perf_counter() - begin, start, stop)
    master.stop()


if __name__ == "__main__":
    play(MPI.COMM_WORLD, Job.read(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
