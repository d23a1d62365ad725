"""CPU that waiting ranks use beside one that computes, and how late they wake up.

    mpirun -n 7 python scripts/bench_idle.py

Machine 1 computes for two seconds in each step while the master and the other machines
wait. Prints, per waiting rank, its CPU time over the wall time, and the time of a step
with no computation at all.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

from cec_mpi.core.planner import Planner
from cec_mpi.runtime.collective import CollectiveMachineEnd, CollectiveMasterEnd
from cec_mpi.runtime.launch import library_name
from cec_mpi.runtime.machine import Machine, serve
from cec_mpi.runtime.places import limit_threads

SECONDS = 2.0
STEPS = 4
EMPTY_STEPS = 200


class Busy(Machine):
    """Computes for as long as w says; meters the CPU of its own process."""

    cpu = 0.0
    wall = 0.0

    def compute(self, w, step):
        """Compute as `Machine` does, but for ``w[0]`` seconds."""
        if step == 1:  # the first step is over: everything is loaded
            self.cpu, self.wall = time.process_time(), time.perf_counter()
        if step == STEPS:
            self.cpu = time.process_time() - self.cpu
            self.wall = time.perf_counter() - self.wall
        end = time.perf_counter() + (float(w[0]) if self.number == 1 else 0.0)
        while time.perf_counter() < end:
            np.dot(self._shard, w)
        return 0.0


def main() -> None:
    comm = MPI.COMM_WORLD
    machines = comm.size - 1
    rows, columns = 1000, 500
    dtype = np.dtype(np.float64)
    with limit_threads(1):
        if comm.rank:
            machine = Busy(comm.rank, np.ones((rows, columns)))
            serve(machine, CollectiveMachineEnd(comm, comm.rank, columns, dtype))
            share = machine.cpu / machine.wall
            comm.gather((comm.rank, share))
            return
        end = CollectiveMasterEnd(comm, list(range(1, comm.size)), machines, columns, rows, dtype)
        plan = Planner(1, rows).plan((1,), (1.0,) * machines)
        w = np.zeros(columns)
        walls = []
        for step in range(STEPS + EMPTY_STEPS):
            w[0] = SECONDS if step < STEPS else 0.0
            if step == 1:
                cpu, wall = time.process_time(), time.perf_counter()
            if step == STEPS:
                share = (time.process_time() - cpu) / (time.perf_counter() - wall)
            begin = time.perf_counter()
            end.announce(step, plan.assignment)
            end.share(w)
            end.collect()
            walls.append(time.perf_counter() - begin)
        end.stop(0)
    shares = dict(comm.gather((0, share)))
    waiting = {rank: part for rank, part in shares.items() if rank != 1}
    print(f"{library_name()}, {comm.size} ranks; rank 1 computes")
    print("CPU of each waiting rank: " + ", ".join(f"{100 * s:.1f} %" for s in waiting.values()))
    empty = np.array(walls[STEPS + 10 :])
    median, late = 1e3 * np.median(empty), 1e3 * np.quantile(empty, 0.9)
    print(f"a step without computation: median {median:.2f} ms, 90 % {late:.2f} ms")


if __name__ == "__main__":
    main()
