"""Coded shards of equal size: every machine computes all of its own, and the fastest L count.

X' v needs other machines than those that happen to be first, so X' has shards of its own.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI

from cec_mpi.bench.league.work import Contestant, Job, Pace, Vector, perform
from cec_mpi.store.reader import open_store

_FORWARD, _ADJOINT, _STOP = 1, 2, 3  # tags
STORES = {_FORWARD: "store-of-X", _ADJOINT: "store-of-Xt"}


class Master(Contestant):
    """Rank 0: asks who is free, takes the first L answers to a vector, and drops late ones."""

    def __init__(self, comm: MPI.Intracomm, job: Job) -> None:
        self._comm = comm
        self._size, self._recovery = job.size, job.recovery
        self._generators = {
            tag: open_store(job.path(name)).manifest.code.generator for tag, name in STORES.items()
        }
        shard_rows = -(-job.size // job.recovery)
        self._answers = np.empty((comm.size, shard_rows))
        self._waiting: list[MPI.Request] = [MPI.REQUEST_NULL] * comm.size
        self._asked = np.zeros(
            comm.size, dtype=np.int64
        )  # the step that each machine is at work on
        self._step = 0
        self._available = frozenset(job.available[0])

    def be_available(self, machines: tuple[int, ...]) -> None:
        """From now on, these machines are asked."""
        self._available = frozenset(machines)

    def forward(self, w: Vector) -> Vector:
        """X w."""
        return self._product(_FORWARD, w)

    def adjoint(self, v: Vector) -> Vector:
        """X' v."""
        return self._product(_ADJOINT, v)

    def _product(self, tag: int, vector: Vector) -> Vector:
        self._step += 1
        free = [n for n in self._available if self._waiting[n] == MPI.REQUEST_NULL]
        sent = [self._ask(n, tag, vector) for n in free]
        first: list[int] = []
        while len(first) < self._recovery:
            n = MPI.Request.Waitany(self._waiting)
            self.moved += self._answers[n].nbytes
            if n not in self._available:
                continue
            if self._asked[n] == self._step:
                first.append(n)
            else:  # it was late, and is free for this step now
                sent.append(self._ask(n, tag, vector))
        MPI.Request.Waitall(sent)
        generator = self._generators[tag][[n - 1 for n in first]]
        parts: Vector = np.linalg.solve(generator, self._answers[first])
        return parts.reshape(-1)[: self._size]

    def _ask(self, n: int, tag: int, vector: Vector) -> MPI.Request:
        self._asked[n] = self._step
        self._waiting[n] = self._comm.Irecv(self._answers[n], n)
        self.moved += vector.nbytes
        return self._comm.Isend(vector, n, tag)

    def stop(self) -> None:
        """Let the machines go, when the last have answered."""
        MPI.Request.Waitall(self._waiting)
        for n in range(1, self._comm.size):
            self._comm.Send(np.empty(0), n, _STOP)


def serve(comm: MPI.Intracomm, job: Job) -> None:
    """The other ranks: multiply a whole shard for each vector that comes."""
    shards = {
        tag: np.array(open_store(job.path(name)).shard(comm.rank)) for tag, name in STORES.items()
    }
    pace = Pace(job.rate(comm.rank))
    comm.Barrier()
    vector, status = np.empty(job.size), MPI.Status()
    while True:
        comm.Recv(vector, 0, status=status)
        if status.tag == _STOP:
            return
        begin = time.perf_counter()
        answer = shards[status.tag] @ vector
        pace.wait(begin, answer.size)
        comm.Send(answer, 0)


def play(comm: MPI.Intracomm, job: Job) -> None:
    """Do a job, on one rank more than it has machines; collective."""
    begin = time.perf_counter()
    if comm.rank:
        serve(comm, job)
        return
    comm.Barrier()
    master = Master(comm, job)
    perform(master, job, time.perf_counter() - begin)
    master.stop()


if __name__ == "__main__":
    play(MPI.COMM_WORLD, Job.read(sys.argv[1]))
