"""Our own: a store, whose machines are planned for heterogeneous speeds, or cyclically."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cec_mpi.bench.league.work import Contestant, Job, Vector, perform
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.records.recorder import Recorder

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.linear_operator.coded_operator import CodedOperator
    from cec_mpi.records.step import StepRecord


class Coded(Contestant):
    """X as a linear operator.

    Parameters
    ----------
    X : CodedOperator
    """

    def __init__(self, X: CodedOperator) -> None:
        self._X = X

    def be_available(self, machines: tuple[int, ...]) -> None:
        """From now on, these machines are."""
        self._X.available = machines

    def forward(self, w: Vector) -> Vector:
        """X w."""
        product: Vector = self._X.matvec(w)
        return product

    def adjoint(self, v: Vector) -> Vector:
        """X' v."""
        product: Vector = self._X.rmatvec(v)
        return product


def play(comm: MPI.Intracomm | None, job: Job) -> None:
    """Do a job, on one rank more than it has machines (collective), or on processes of its own."""
    begin = time.perf_counter()
    contestant: Coded | None = None

    def watch(record: StepRecord) -> None:
        if contestant is not None:
            # As for the others: w to each machine, or a part of X' v from each; answers; and plans.
            machines = len(record.available) if job.stragglers else job.machines
            numbers = machines * job.size + sum(record.rows)
            if record.plan_changed:
                numbers += sum(map(len, record.assignment))
            contestant.moved += 8 * numbers

    with open_operator(
        job.path("store"),
        comm,
        recorder=Recorder(watch),
        speeds=job.speeds,
        scheme="cyclic" if job.way == "cyclic" else "heterogeneous",
        local=job.machines if comm is None else None,
        stragglers=job.stragglers,
        threads=1,  # as all others have
        emulate_speeds=job.speeds,
        emulate_base=job.base,
    ) as X:
        if X is not None:
            X.available = job.available[0]
            contestant = Coded(X)
            perform(contestant, job, time.perf_counter() - begin)


def main(path: str) -> None:
    """Do a job without ranks, as one that tolerates stragglers needs it."""
    play(None, Job.read(path))


if __name__ == "__main__":
    from mpi4py import MPI

    play(MPI.COMM_WORLD, Job.read(sys.argv[1]))
