"""A step with all machines in this process, beside its products alone: what has no wire costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.scratch import random_store, scratch
from cec_mpi.bench.steps.timing import median_step
from cec_mpi.bench.turns import ratio, seconds, told_in_turns
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.places import limit_threads
from cec_mpi.records.recorder import Recorder
from cec_mpi.store.reader import open_store

if TYPE_CHECKING:
    from cec_mpi.linear_operator.coded_operator import CodedOperator


@dataclass(frozen=True)
class Local(Benchmark):
    """X w with speeds that are given or learned, with records on disk and without.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of a random X.
    machines, recovery : int
        N and L.
    steps : int
        In each turn, whose median counts.
    """

    what = "local"
    title = "a step with all machines in this process: over the products alone"

    rows: int = option(600, "--rows Q", "of X", values.positive)
    columns: int = option(600, "--columns R", "of X", values.positive)
    machines: int = option(6, "--machines N", "all in this process", values.positive)
    recovery: int = option(3, "--recovery L", "any L of them are enough", values.positive)
    steps: int = option(200, "--steps T", "in each turn: the median counts", values.positive)

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        with scratch() as directory, limit_threads(1):
            store = random_store(
                directory, self.rows, self.columns, self.machines, self.recovery, seed=self.seed
            )
            given = (1.0,) * self.machines
            w, v = np.ones(self.columns), np.ones(self.rows)
            with (
                open_operator(store, None, speeds=given) as X,
                _recorded(store, directory / "given.jsonl", given) as recorded,
                _recorded(store, directory / "learned.jsonl", "learn") as learned,
            ):
                assert X is not None  # without a communicator this process is the master
                steps = {
                    "X w": partial(X.matvec, w),
                    "X'v": partial(X.rmatvec, v),
                    "X w, recorded": partial(recorded.matvec, w),
                    "X w, recorded, speeds learned": partial(learned.matvec, w),
                    "products": self._products(store, w),
                }
                ways = {
                    name: partial(median_step, step, self.steps) for name, step in steps.items()
                }
                times = told_in_turns(ways, self.turns)
        peer = "its products alone"
        ratios = [ratio(times, name, "products", peer=peer) for name in times if name != "products"]
        return ratios + [seconds(times, name) for name in times]

    def _products(self, store: Path, w: np.ndarray) -> Any:
        """What all machines compute in a step, as NumPy alone does it."""
        opened = open_store(store)
        machines = range(1, self.machines + 1)
        speeds, rows = (1.0,) * self.machines, opened.manifest.rows_per_shard
        assignment = plan_step(machines, speeds, self.recovery, rows).assignment
        mine = [
            np.array(opened.shard(n)[start:stop])
            for n in machines
            for start, stop in assignment.intervals(n)
        ]
        answers = [np.empty(len(rows)) for rows in mine]

        def products() -> None:
            for rows, answer in zip(mine, answers, strict=True):
                np.dot(rows, w, out=answer)

        return products


@contextmanager
def _recorded(store: Path, path: Path, speeds: Any) -> Iterator[CodedOperator]:
    """X, whose steps are written to a file."""
    recorder = Recorder()
    with open_operator(store, None, speeds=speeds, recorder=recorder) as X, path.open("x") as file:
        assert X is not None
        recorder.write_to(file)
        yield X
