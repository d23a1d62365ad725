"""Who takes part in the league, what each needs, and how its program is started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cec_mpi.bench.league.work import Contestant, Job, Outcome, State, Vector, perform
from cec_mpi.bench.programs import mpirun, run_to_end
from cec_mpi.encoding import encode
from cec_mpi.errors import MachineError

OURS = "heterogeneous"
CONTESTANTS = {  # each with its program
    OURS: "coded",
    "cyclic": "coded",
    "uncoded": "dealt",
    "replicated": "dealt",
    "fastest": "fastest",
    "restarted": "restarted",
    "dask": "on_dask",
}
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_CLOSE = 1e-6  # how far results may differ, relative


def make_stores(job: Job, names: Iterable[str]) -> dict[str, float]:
    """Encode what these contestants need: the seconds that it took, by contestant."""
    sizes = job.machines, job.recovery
    begin = time.perf_counter()
    encode(job.path("X.npy"), job.path("store"), *sizes)
    took = time.perf_counter() - begin
    seconds = {OURS: took, "cyclic": took}
    if "fastest" in names:
        begin = time.perf_counter()
        transposed = np.ascontiguousarray(job.matrix().T)
        encode(job.path("X.npy"), job.path("store-of-X"), *sizes, scaling="none")
        encode(transposed, job.path("store-of-Xt"), *sizes, scaling="none")
        seconds["fastest"] = time.perf_counter() - begin
    return seconds


class _InOneProcess(Contestant):
    """NumPy, here."""

    def __init__(self, job: Job) -> None:
        self._X = job.matrix()

    def be_available(self, machines: tuple[int, ...]) -> None:
        pass

    def forward(self, w: Vector) -> Vector:
        product: Vector = self._X @ w
        return product

    def adjoint(self, v: Vector) -> Vector:
        product: Vector = self._X.T @ v
        return product


def expected_of(job: Job) -> State:
    """What all of them are to find."""
    perform(_InOneProcess(job), job, 0.0)
    state = State(job)
    state.load(job.path("state.npz"))
    return state


def outcome_of(name: str, job: Job, limit: float, expected: State) -> Outcome:
    """Have one contestant do the work.

    Parameters
    ----------
    name : str
        Of `CONTESTANTS`.
    job : Job
    limit : float
        Seconds for each program that it takes.
    expected : State

    Raises
    ------
    MachineError
        It failed, or computed something else.
    """
    job = replace(job, way=name)
    job.path("state.npz").unlink(missing_ok=True)
    program = f"cec_mpi.bench.league.{CONTESTANTS[name]}"
    start = {"restarted": _start_again, "dask": _start_dask}.get(name, _start_once)
    try:
        outcome = start(_Program(program, job, limit))
    except MachineError as error:
        raise MachineError(f"{name}: {error}") from None
    state = State(job)
    state.load(job.path("state.npz"))
    if not (apart := state.distance(expected)) <= _CLOSE:
        raise MachineError(f"{name} computed something else: relative difference {apart:.1e}")
    return outcome


class _Program(NamedTuple):
    name: str
    job: Job
    limit: float

    def run_alone(self) -> Outcome:
        # Not as -m: other processes are to find its functions in a module that has a name.
        code = f"import sys; from {self.name} import main; main(sys.argv[1])"
        return self._done([sys.executable, "-c", code, str(self.job.write())])

    def run_ranks(self, ranks: int, *arguments: object) -> Outcome:
        words = [sys.executable, "-m", "mpi4py", "-m", self.name, str(self.job.write())]
        return self._done([*mpirun(ranks), *words, *map(str, arguments)])

    def _done(self, command: list[str]) -> Outcome:
        variables = dict.fromkeys(_THREADS, "1") | {"DASK_TEMPORARY_DIRECTORY": self.job.directory}
        run_to_end(command, self.limit, environment=os.environ | variables)
        return Outcome.read(self.job)


def _start_once(program: _Program) -> Outcome:
    if program.job.stragglers and CONTESTANTS[program.job.way] == "coded":
        return program.run_alone()
    return program.run_ranks(program.job.machines + 1)


def _start_again(program: _Program) -> Outcome:
    """Start it anew whenever machines come or go."""
    job, total = program.job, Outcome()
    changes = [n for n, (a, b) in enumerate(pairwise(job.available), 1) if a != b]
    for start, stop in pairwise((0, *changes, len(job.available))):
        begin = time.perf_counter()
        part = program.run_ranks(len(job.available[start]) + 1, start, stop)
        besides = time.perf_counter() - begin - part.seconds
        total.iteration_seconds += part.iteration_seconds
        total.moved += part.moved
        if start:
            total.event_seconds.append(besides)
            total.moved += job.matrix().nbytes  # read again
        else:
            total.setup_seconds = besides
    return total


def _start_dask(program: _Program) -> Outcome:
    return program.run_alone()
