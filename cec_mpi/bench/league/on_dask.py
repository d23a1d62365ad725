"""Dask: an array that its workers hold; a worker is killed where a machine goes.

Dask has the rows that are lost read again, and shares the work out as it likes. A worker that comes
back is started anew, which is not timed, and gets its part by ``rebalance``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from cec_mpi.bench.league.work import Contestant, Job, Pace, Vector, perform
from cec_mpi.errors import MachineError

_BLOCKS = 4  # of rows, for each machine: with fewer, the slowest holds up the others
_LIMIT = 120.0  # seconds for workers to come
_WHOLE_LOG = {"DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "1000000"}  # of transfers
_RATE = "CEC_MPI_LEAGUE_RATE"  # rows per second of a worker, in its environment
_read = 0  # bytes of rows that this worker has read


class OnDask(Contestant):
    """Scheduler and client in this process, and a process for each worker.

    Parameters
    ----------
    job : Job
    stack : ExitStack
        Ends all of them.
    """

    def __init__(self, job: Job, stack: ExitStack) -> None:
        from distributed import Client, LocalCluster, wait

        self._job = job
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._vectors = self._base = 0
        self._seen: dict[str, int] = {}  # bytes that each worker has taken in, by its address
        array, delayed = _dask("array"), _dask("delayed").delayed
        cluster = LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50)
        stack.enter_context(cluster)
        self._client = stack.enter_context(Client(cluster))
        stack.callback(self._end)
        self.await_machines(job.available[0])
        bounds = np.linspace(0, job.size, _BLOCKS * job.machines + 1).astype(int).tolist()
        parts = [
            array.from_delayed(
                delayed(read_rows)(str(job.path("X.npy")), start, stop),
                (stop - start, job.size),
                np.dtype(np.float64),
            )
            for start, stop in pairwise(bounds)
            if start < stop
        ]
        self._X = array.concatenate(parts).persist()
        wait(self._X)
        nothing = np.zeros(job.size)  # what workers import for their first tasks is not timed
        self.forward(nothing)
        self.adjoint(nothing)

    @property
    def moved(self) -> int:
        """Bytes of vectors, and what workers have read or got from each other."""
        self._look()
        return self._vectors + sum(self._seen.values()) - self._base

    @moved.setter
    def moved(self, value: int) -> None:
        self._base += self.moved - value

    def await_machines(self, machines: tuple[int, ...]) -> None:
        """Start workers for those that come."""
        self._look()  # as long as those that go are there
        for n in set(machines) - self._workers.keys():
            self._workers[n] = self._started(n)
        self._client.wait_for_workers(len(self._workers), timeout=_LIMIT)
        self._look()  # which has those that came import what they need

    def be_available(self, machines: tuple[int, ...]) -> None:
        """Kill workers whose machines go, and give those that have come their part."""
        came = len(self._client.has_what()) - sum(map(bool, self._client.has_what().values()))
        for n in self._workers.keys() - set(machines):
            process = self._workers.pop(n)
            process.kill()
            process.wait()
        self._await_count(len(self._workers))
        if came:
            self._client.rebalance()

    def forward(self, w: Vector) -> Vector:
        """X w."""
        product = _dask("array").map_blocks(
            multiply, self._X, w=w, drop_axis=1, dtype=self._X.dtype
        )
        self._vectors += self._X.numblocks[0] * w.nbytes + w.nbytes
        found: Vector = product.compute()
        return found

    def adjoint(self, v: Vector) -> Vector:
        """X' v: a part from each block, which Dask adds up."""
        blocks = self._X.numblocks[0]
        parts = _dask("array").map_blocks(
            multiply_transposed,
            self._X,
            _dask("array").from_array(v[:, None], chunks=(self._X.chunks[0], 1)),
            chunks=((1,) * blocks, self._X.chunks[1]),
            dtype=self._X.dtype,
        )
        self._vectors += 2 * v.nbytes
        found: Vector = parts.sum(axis=0).compute()
        return found

    def _started(self, n: int) -> subprocess.Popen[bytes]:
        options = ("--name", str(n), "--nthreads", "1", "--memory-limit", "0", "--no-nanny")
        address = self._client.scheduler.address
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
        return subprocess.Popen(
            [*command, "--no-dashboard", "--local-directory", self._job.directory],
            env=os.environ | _WHOLE_LOG | {_RATE: repr(self._job.rate(n))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _look(self) -> None:
        self._seen |= self._client.run(taken_in)

    def _await_count(self, count: int) -> None:
        by = time.monotonic() + _LIMIT
        while len(self._client.nthreads()) != count:
            if time.monotonic() > by:
                raise MachineError(f"Dask still has workers that were killed {_LIMIT:g} s ago")
            time.sleep(0.01)

    def _end(self) -> None:
        for process in self._workers.values():
            process.kill()
            process.wait()


def read_rows(path: str, start: int, stop: int) -> Vector:
    """Rows of X, on a worker."""
    global _read
    rows = np.array(np.load(path, mmap_mode="r")[start:stop])
    _read += rows.nbytes
    return rows


def taken_in(dask_worker: Any) -> int:
    """Bytes that a worker has got from others, or read."""
    return _read + sum(int(each["total"]) for each in dask_worker.transfer_incoming_log)


def multiply(rows: Vector, w: Vector) -> Vector:
    """Rows of X times w, on a worker."""
    pace, begin = _pace(), time.perf_counter()
    answer: Vector = rows @ w
    pace.wait(begin, len(rows))
    return answer


def multiply_transposed(rows: Vector, v: Vector) -> Vector:
    """The part of X' v of some rows, as one row, on a worker."""
    pace, begin = _pace(), time.perf_counter()
    answer: Vector = (rows.T @ v[:, 0])[None]
    pace.wait(begin, len(rows))
    return answer


def _dask(module: str) -> Any:
    """A module of Dask, whose types say nothing."""
    return import_module(f"dask.{module}")


def _pace() -> Pace:
    return Pace(float(os.environ[_RATE]))


def main(path: str) -> None:
    """Do a job, with as many workers as it has machines."""
    begin = time.perf_counter()
    job = Job.read(path)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with ExitStack() as stack:
        contestant = OnDask(job, stack)
        perform(contestant, job, time.perf_counter() - begin)
