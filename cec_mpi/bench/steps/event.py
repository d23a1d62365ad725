"""A step whose machines are others than before, beside a step without such an event."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.scratch import random_store, scratch
from cec_mpi.bench.turns import Times, ratio, seconds
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.places import limit_threads

_UNCOUNTED = 3  # events, the first ones


@dataclass(frozen=True)
class Event(Benchmark):
    """Elastic events of machines that are all in this process.

    Attributes
    ----------
    machines, recovery : int
        N and L.
    rows, columns : int
        Shape (q, r) of a random X.
    leave : int
        Machines that are away after an event, others each time.
    """

    what = "event"
    title = "a step with other machines than before: over a step with the same ones"

    turns: int = option(30, "--turns K", "events of each kind", values.positive)
    machines: int = option(100, "--machines N", "all in this process", values.positive)
    recovery: int = option(10, "--recovery L", "any L of them are enough", values.positive)
    rows: int = option(4000, "--rows Q", "of X", values.positive)
    columns: int = option(400, "--columns R", "of X", values.positive)
    leave: int = option(3, "--leave M", "machines that are away after an event", values.positive)

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        if self.machines - self.leave < self.recovery:
            raise InputError(
                f"--leave {self.leave} of {self.machines} machines: expected at least "
                f"{self.recovery} that stay (--recovery)"
            )
        sets = comb(self.machines, self.leave)
        if sets < 2 * (_UNCOUNTED + self.turns):  # a new one for each event of X w and of X'v
            raise InputError(
                f"--turns {self.turns} with --leave {self.leave} of {self.machines} machines: "
                f"found {sets} sets, expected at least {2 * (_UNCOUNTED + self.turns)}"
            )
        rng = np.random.default_rng(self.seed)
        speeds = tuple(rng.uniform(1, 4, self.machines))
        figures: list[Figure] = []
        with scratch() as directory, limit_threads(1):
            store = random_store(
                directory, self.rows, self.columns, self.machines, self.recovery, seed=self.seed
            )
            with open_operator(store, None, speeds=speeds) as X:
                assert X is not None  # without a communicator this process is the master
                self._read_all(X)
                seen: list[set[int]] = []
                for name, multiply in ("X w", X.matvec), ("X'v", X.rmatvec):
                    vector = np.ones(X.shape[1 if name == "X w" else 0])
                    times = self._times(X, partial(multiply, vector), rng, seen)
                    for kind, words in ("seen", "set seen before"), ("new", "new set"):
                        called = f"{name}, {words}"
                        figures.append(ratio(times, kind, "same", called=called, peer="no event"))
                    figures.append(seconds(times, "same", called=f"{name}, no event"))
        return figures

    def _read_all(self, X: Any) -> None:
        """Let every machine read all of its rows, as it does when it first computes them."""
        last = self.machines - self.recovery
        for first in (*range(0, last, self.recovery), last):
            X.available = set(range(first + 1, first + self.recovery + 1))
            X.matvec(np.ones(self.columns))

    def _times(
        self,
        X: Any,
        multiply: Callable[[], object],
        rng: np.random.Generator,
        sets: list[set[int]],
    ) -> Times:
        """Seconds of steps with sets that are new, that were there two events ago, that stay."""

        def step(available: set[int]) -> float:
            X.available = available
            begin = time.perf_counter()
            multiply()
            return time.perf_counter() - begin

        times: Times = {"same": [], "seen": [], "new": []}
        for event in range(_UNCOUNTED + self.turns):
            sets.append(self._new_set(rng, sets))
            before = sets[-3 if event >= _UNCOUNTED else 0]
            new, *same = (step(sets[-1]) for _ in range(3))
            seen, *as_well = (step(before) for _ in range(3))
            if event >= _UNCOUNTED:
                times["new"].append(new)
                times["seen"].append(seen)
                times["same"].append(float(np.median([*same, *as_well])))
        return times

    def _new_set(self, rng: np.random.Generator, sets: list[set[int]]) -> set[int]:
        """Machines that stay in an event, which were not there together before."""
        everyone = set(range(1, self.machines + 1))
        while True:
            away = rng.choice(self.machines, self.leave, replace=False) + 1
            stay: set[int] = everyone - set(away.tolist())
            if stay not in sets:
                return stay
