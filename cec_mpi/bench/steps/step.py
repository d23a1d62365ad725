"""A step beside the bare wire, and beside the program that the method was published with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cec_mpi.bench.figures import Figure
from cec_mpi.bench.ranks import RankBenchmark
from cec_mpi.bench.scratch import random_store, scratch_of_ranks, size_of_random_store
from cec_mpi.bench.steps.peers import bare, published
from cec_mpi.bench.steps.timing import median_step
from cec_mpi.bench.turns import Times, ratio, seconds, told_in_turns
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.together import on_master
from cec_mpi.text import plural

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Step(RankBenchmark):
    """Steps of all kinds, and the same without this package.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of a random X.
    recovery : int
        L.
    block : int
        Vectors in X W and X'V.
    steps : int
        In each turn, whose median counts.
    """

    what = "step"
    title = "a step: over the bare wire with the same products, and over the published program"

    rows: int = option(600, "--rows Q", "of X", values.positive)
    columns: int = option(600, "--columns R", "of X", values.positive)
    recovery: int = option(3, "--recovery L", "any L machines are enough", values.positive)
    block: int = option(8, "--block K", "vectors in X W and X'V", values.positive)
    steps: int = option(100, "--steps T", "in each turn: the median counts", values.positive)

    def check(self, ranks: int) -> None:
        """As `RankBenchmark.check`."""
        if ranks < 2 or ranks - 1 < self.recovery:
            raise InputError(
                f"--recovery {self.recovery} with {plural(ranks, 'rank')}, of which rank 0 is no "
                f"machine: expected at least {max(2, self.recovery + 1)} ranks"
            )

    def size(self, ranks: int) -> float:
        """As `RankBenchmark.size`."""
        return size_of_random_store(self.rows, self.columns, ranks - 1, self.recovery)

    def measure_together(self, comm: MPI.Intracomm) -> list[Figure]:
        """As `RankBenchmark.measure_together`."""
        with scratch_of_ranks(comm, self.directory) as directory:
            store = on_master(
                comm,
                lambda: random_store(
                    directory, self.rows, self.columns, comm.size - 1, self.recovery, seed=self.seed
                ),
            )
            w, v = np.ones(self.columns), np.ones(self.rows)
            W, V = np.ones((self.columns, self.block)), np.ones((self.rows, self.block))
            ways = {
                "X w": lambda: self._ours(comm, store, "matvec", w),
                "X'v": lambda: self._ours(comm, store, "rmatvec", v),
                "X W": lambda: self._ours(comm, store, "matmat", W),
                "X'V": lambda: self._ours(comm, store, "rmatmat", V),
                "published": lambda: published(comm, store, self.steps),
                "bare": lambda: bare(comm, store, self.steps),
                "wire": lambda: bare(comm, store, self.steps, products=False),
            }
            times = told_in_turns(ways, self.turns)
        return self._figures(times) if comm.rank == 0 else []

    def _figures(self, times: Times) -> list[Figure]:
        blocks = f", {self.block} columns"
        found = [
            ratio(times, "X w", "bare", peer="bare Bcast, products, Gatherv"),
            ratio(times, "X w", "published", peer="the published program"),
            ratio(times, "X'v", "X w"),
            ratio(times, "X W", "X w", called=f"X W{blocks}"),
            ratio(times, "X'V", "X'v", called=f"X'V{blocks}"),
            ratio(times, "bare", "wire", peer="its wire alone"),
        ]
        names = {"X W": f"X W{blocks}", "X'V": f"X'V{blocks}"}
        return found + [seconds(times, name, called=names.get(name, "")) for name in times]

    def _ours(self, comm: MPI.Intracomm, store: Path, name: str, vector: np.ndarray) -> float:
        """Collective: seconds of a step, on rank 0."""
        speeds = (1.0,) * (comm.size - 1)
        taken = 0.0
        with open_operator(store, comm, speeds=speeds, threads=1) as X:
            if X is not None:
                product = getattr(X, name)
                taken = median_step(lambda: product(vector), self.steps)
        return taken
