"""Rows of X on machines, without a code: each on one of them, or each on N/L of them.

Rank 0 has X in a file. When machines come or go, it sends those that stay the rows that they lack.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.bench.league.shares import Dealt, Replicated, Rows, Share
from cec_mpi.bench.league.work import Contestant, Job, Pace, Vector, perform

_STOP, _DEAL, _FORWARD, _ADJOINT = range(4)


class Master(Contestant):
    """Rank 0: knows who has which rows."""

    def __init__(self, comm: MPI.Intracomm, job: Job) -> None:
        self._comm = comm
        self._X = job.matrix()
        self._dealer = dealer_of(job)
        self._order = np.empty(0, dtype=np.int64)
        self._counts: list[int] = []
        self.be_available(job.available[0])

    def be_available(self, machines: tuple[int, ...]) -> None:
        """Tell all machines what they compute from now on, and send the rows that they lack."""
        deal = self._dealer.deal(machines)
        self._say(_DEAL)
        self._comm.bcast(deal)
        numbers = sum(rows.size for share in deal.values() for rows in share)
        self.moved += 8 * ((self._comm.size - 1) * numbers + len(self._X))  # rows are told back
        for n, share in deal.items():
            if share.new.size:
                self._comm.Send(self._X[share.new], n)
                self.moved += share.new.size * self._X.shape[1] * self._X.itemsize
        orders = self._comm.gather(np.empty(0, dtype=np.int64))
        assert orders is not None
        self._order = np.concatenate(orders)
        self._counts = [order.size for order in orders]

    def forward(self, w: Vector) -> Vector:
        """X w: everybody gets w, and sends its part."""
        self._say(_FORWARD)
        self._comm.Bcast(w)
        gathered = np.empty(self._order.size)
        self._comm.Gatherv(None, (gathered, self._counts))
        product = np.empty_like(gathered)
        product[self._order] = gathered
        self.moved += (self._comm.size - 1) * w.nbytes + product.nbytes
        return product

    def adjoint(self, v: Vector) -> Vector:
        """X' v: everybody gets its part of v, and the answers are added up."""
        self._say(_ADJOINT)
        self._comm.Scatterv((v[self._order], self._counts), None)
        product = np.zeros(self._X.shape[1])
        self._comm.Reduce(MPI.IN_PLACE, product)
        self.moved += v.nbytes + (self._comm.size - 1) * product.nbytes
        return product

    def stop(self) -> None:
        """Let the machines go."""
        self._say(_STOP)

    def _say(self, order: int) -> None:
        self._comm.Bcast(np.array([order]))


class Machine:
    """The other ranks: rows in one array, of which runs are multiplied."""

    def __init__(self, comm: MPI.Intracomm, job: Job) -> None:
        self._comm = comm
        self._pace = Pace(job.rate(comm.rank))
        # Of memory only what is written to is taken.
        self._held = np.empty((job.size, job.size))
        self._row_in = np.full(job.size, -1, dtype=np.int64)  # by place, -1 where it is free
        self._runs: list[tuple[int, int]] = []
        self._place(first := dealer_of(job).starts_with(comm.rank), job.matrix()[first])

    def serve(self) -> None:
        """Do what rank 0 says until it is over."""
        does = {_DEAL: self._deal, _FORWARD: self._forward, _ADJOINT: self._adjoint}
        order = np.empty(1, dtype=np.int64)
        while True:
            self._comm.Bcast(order)
            if order[0] == _STOP:
                return
            does[int(order[0])]()

    def _deal(self) -> None:
        deal: dict[int, Share] = self._comm.bcast(None)
        share = deal.get(self._comm.rank)
        mine = np.empty(0, dtype=np.int64)
        self._runs = []
        if share is not None:
            self._row_in[np.isin(self._row_in, share.gone)] = -1
            if share.new.size:
                rows = np.empty((share.new.size, self._held.shape[1]))
                self._comm.Recv(rows, 0)
                self._place(share.new, rows)
            places = np.flatnonzero(np.isin(self._row_in, share.rows))
            self._runs = runs_of(places)
            mine = self._row_in[places]
        self._comm.gather(mine)

    def _place(self, rows: Rows, values: NDArray[np.float64]) -> None:
        free = np.flatnonzero(self._row_in < 0)[: rows.size]
        self._row_in[free] = rows
        self._held[free] = values

    def _forward(self) -> None:
        w = np.empty(self._held.shape[1])
        self._comm.Bcast(w)
        begin = time.perf_counter()
        parts = [self._held[start:stop] @ w for start, stop in self._runs]
        answer = np.concatenate(parts) if parts else np.empty(0)
        self._pace.wait(begin, answer.size)
        self._comm.Gatherv(answer, None)

    def _adjoint(self) -> None:
        u = np.empty(sum(stop - start for start, stop in self._runs))
        self._comm.Scatterv(None, u)
        begin, done = time.perf_counter(), 0
        answer = np.zeros(self._held.shape[1])
        for start, stop in self._runs:
            count = stop - start
            answer += self._held[start:stop].T @ u[done : done + count]
            done += count
        self._pace.wait(begin, u.size)
        self._comm.Reduce(answer, None)


def dealer_of(job: Job) -> Dealt | Replicated:
    """Who says which machine computes which rows."""
    if job.way == "replicated":
        return Replicated(job.size, job.speeds, job.recovery)
    return Dealt(job.size, job.speeds)


def runs_of(places: Rows) -> list[tuple[int, int]]:
    """Ascending numbers as intervals ``start <= n < stop``.

    Examples
    --------
    >>> runs_of(np.array([0, 1, 4]))
    [(0, 2), (4, 5)]
    """
    if not places.size:
        return []
    parts = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def play(comm: MPI.Intracomm, job: Job) -> None:
    """Do a job, on one rank more than it has machines; collective."""
    begin = time.perf_counter()
    if comm.rank:
        machine = Machine(comm, job)
        comm.Barrier()
        machine.serve()
        return
    comm.Barrier()
    master = Master(comm, job)
    perform(master, job, time.perf_counter() - begin)
    master.stop()


if __name__ == "__main__":
    play(MPI.COMM_WORLD, Job.read(sys.argv[1]))
