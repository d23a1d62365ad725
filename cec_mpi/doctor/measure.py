"""Short measurements of the network between rank 0 and the others, and of products.

Processes wait for messages as in a step. A process that has waited for a while sleeps between two
checks, and must wake up.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cec_mpi.machine.emulation import measure_rate
from cec_mpi.processes.places import limit_threads
from cec_mpi.processes.waiting import wait_for

if TYPE_CHECKING:
    from mpi4py import MPI

_ECHO = 7  # tag
_END = -1  # in the place of a size
_FEWEST, _MOST = 5, 30  # short messages of each kind
_IDLE = 1e-3  # seconds until a process that waits sleeps between two looks
_SMALLEST, _LARGEST = 1 << 16, 1 << 23  # bytes of a long one
_PRODUCT = (8192, 1024)  # of float64: more than caches hold


class Wire(NamedTuple):
    """The network between rank 0 and another rank.

    Attributes
    ----------
    latency : float
        Seconds of a short message, one way.
    waking : float
        Seconds of a short message if the receiver has waited for a while, as in a step.
    bandwidth : float
        Bytes per second of a long message, one way.
    """

    latency: float
    waking: float
    bandwidth: float


def measure_wires(comm: MPI.Intracomm, seconds: float = 1.5) -> list[Wire]:
    """Measure the network to each rank, one after the other (collective); on rank 0.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    seconds : float
        Approximate time for all ranks.
    """
    wires = []
    if comm.rank:
        _echo(comm)
    else:
        share = seconds / max(1, comm.size - 1)
        wires = [_Caller(comm, rank).measure(share) for rank in range(1, comm.size)]
    wait_for([comm.Ibarrier()])
    return wires


def _echo(comm: MPI.Intracomm) -> None:
    """Send back the messages of rank 0."""
    size = np.zeros(1, np.int64)
    buffer = np.empty(_LARGEST, np.uint8)
    while True:
        wait_for([comm.Irecv(size, 0, _ECHO)])
        if size[0] == _END:
            return
        content = buffer[: size[0]]
        wait_for([comm.Irecv(content, 0, _ECHO)], content.nbytes)
        wait_for([comm.Isend(content, 0, _ECHO)], content.nbytes)


class _Caller:
    """The end of rank 0."""

    def __init__(self, comm: MPI.Intracomm, rank: int) -> None:
        self._comm = comm
        self._rank = rank
        self._sent = np.zeros(_LARGEST, np.uint8)
        self._back = np.empty(_LARGEST, np.uint8)

    def measure(self, seconds: float) -> Wire:
        for _ in range(3):  # the first message opens the connection
            self._round(1)
        short = self._rounds(seconds / 6)
        waking = self._rounds(seconds / 3, _IDLE) - short / 2
        size = _SMALLEST
        while self._round(size) < seconds / 6 and size < _LARGEST:
            size *= 2
        long = median(self._round(size) for _ in range(3))
        self._say(_END)
        return Wire(short / 2, max(waking, short / 2), 2 * size / max(long - short, 1e-9))

    def _rounds(self, seconds: float, idle: float = 0.0) -> float:
        """Return the median time of a short message and its answer in seconds."""
        until = time.perf_counter() + seconds
        took: list[float] = []
        while len(took) < _FEWEST or (len(took) < _MOST and time.perf_counter() < until):
            if idle:
                time.sleep(idle)
            took.append(self._round(1))
        return median(took)

    def _round(self, size: int) -> float:
        """Return the time of a message and its answer in seconds."""
        begin = time.perf_counter()
        self._say(size)
        there = self._comm.Isend(self._sent[:size], self._rank, _ECHO)
        back = self._comm.Irecv(self._back[:size], self._rank, _ECHO)
        wait_for([there, back], 2 * size)
        return time.perf_counter() - begin

    def _say(self, size: int) -> None:
        wait_for([self._comm.Isend(np.array([size], np.int64), self._rank, _ECHO)])


def measure_products(comm: MPI.Intracomm, threads: int) -> list[float]:
    """Measure products on all ranks at once, in bytes per second (collective); on rank 0.

    Rank 0 of several does not multiply, and has 0.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    threads : int
        BLAS threads of this rank.
    """
    shard = np.ones(_PRODUCT if comm.rank or comm.size == 1 else (0, 1))
    w, row_bytes = np.ones(shard.shape[1]), shard.strides[0]
    rate = 0.0
    wait_for([comm.Ibarrier()])
    if len(shard):
        with limit_threads(threads):
            rate = measure_rate(lambda a, b: shard[a:b] @ w, len(shard), row_bytes) * row_bytes
    wait_for([comm.Ibarrier()])
    return comm.gather(rate, root=0) or []
