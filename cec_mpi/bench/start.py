"""A run of one step beside a program that only imports NumPy and makes a Barrier."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass

import numpy as np

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.programs import mpirun, run_to_end
from cec_mpi.bench.scratch import RANK_BYTES, check_memory, random_store, scratch
from cec_mpi.bench.turns import ratio, seconds, told_in_turns
from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.launcher import detect_launcher

_BARE = "import numpy; from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"


@dataclass(frozen=True)
class Start(Benchmark):
    """Whole commands, on the clock and in CPU seconds of all their processes.

    Attributes
    ----------
    ranks : int
    rows : int
        Of X, and its columns.
    limit : float
        Seconds that one command may take.
    """

    what = "start"
    title = "a run of one step: over a program that imports NumPy and makes a Barrier"

    turns: int = option(5, "--turns K", "starts of each, in turn", values.positive)
    ranks: int = option(7, "--ranks P", "to start", values.positive)
    rows: int = option(600, "--rows Q", "of X, and its columns", values.positive)
    limit: float = option(120.0, "--limit SECONDS", "that a command may take", values.seconds)

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        if detect_launcher() is not None:
            raise InputError("bench start under a launcher: expected none, since it starts ranks")
        if self.ranks < 2:
            raise InputError(f"--ranks {self.ranks}: expected at least 2")
        check_memory(f"--ranks {self.ranks}", self.ranks * RANK_BYTES)
        machines = self.ranks - 1
        with scratch() as directory:
            store = random_store(
                directory, self.rows, self.rows, machines, (machines + 1) // 2, seed=self.seed
            )
            np.save(directory / "W.npy", np.ones((1, self.rows)))
            files = (str(store), "--out", str(directory / "out"))
            vectors = ("--vectors", str(directory / "W.npy"), "--overwrite", "--quiet")
            ranks = [*mpirun(self.ranks), sys.executable]
            commands = {
                "bare": [*ranks, "-c", _BARE],
                "run": [*ranks, "-m", "cec_mpi", "run", *files, *vectors],
            }
            spent: dict[str, list[float]] = {name: [] for name in commands}

            def start(name: str) -> float:
                before, begin = _processor_seconds(), time.perf_counter()
                run_to_end(commands[name], self.limit)
                taken = time.perf_counter() - begin
                spent[name].append(_processor_seconds() - before)
                return taken

            ways = {name: lambda name=name: start(name) for name in commands}
            times = told_in_turns(ways, self.turns)  # before them once, which compiles modules
        spent = {name: taken[1:] for name, taken in spent.items()}
        peer = "a bare program"
        return [
            ratio(times, "run", "bare", called="run, seconds", peer=peer),
            ratio(spent, "run", "bare", called="run, CPU seconds", peer=peer),
            seconds(times, "run", called="run"),
            seconds(times, "bare", called="a bare program"),
        ]


def _processor_seconds() -> float:
    """Of processes that have ended, and that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
