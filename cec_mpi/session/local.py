"""All machines in this process: the same steps without MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.placement.placement import Placement
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError, ShortageError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.machine.machine import Machine
from cec_mpi.session.stores import noting_problems, open_machine
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.wire.answers import AnswerBuffers, Answers
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.protocol import EveryRank


class LocalHub(EveryRank):
    """The master's end when the machines are objects beside it."""

    def __init__(self) -> None:
        self._machines: list[Machine] = []
        self._opening: Opening | None = None

    def open(self, opening: Opening) -> list[Opened]:
        """Open the shards; one machine at a time is measured, as one at a time computes."""
        opened = []
        self._machines, self._opening = [], opening
        for number in opening.machines:
            if not number:
                opened.append(Opened())
                continue
            problems: list[str] = []
            files: tuple[str, ...] = ()
            rate = 0.0
            with noting_problems(number, problems, passed=ShortageError):
                machine = open_machine(number, opening)
                files = machine.shard_files
                if opening.measured and not self._machines:
                    rate = machine.measure_rate()
                self._machines.append(machine)
            unseen = bool(problems and opening.unseen(number))
            opened.append(Opened("".join(problems), files, rate, unseen))
        return opened

    def admit(self, emulation: Emulation | None) -> LocalMasterEnd:
        """The machines serve the store that they opened last."""
        machines, self._machines = self._machines, []
        for machine in machines:
            machine.emulation = emulation
        assert self._opening is not None
        given = self._opening.manifest, self._opening.placement, self._opening.arithmetic
        return LocalMasterEnd(machines, *given)

    def refuse(self, error: CecError) -> None:
        """They do not."""
        self._machines = []

    def stop(self, error: BaseException | None) -> None:
        """Nothing to do: the machines end with this process."""


class LocalMasterEnd:
    """The master's end for the steps of one store.

    Parameters
    ----------
    machines : list of Machine
        Ascending by number; other machines of the store take no part.
    manifest : Manifest
    placement : Placement
    arithmetic : dtype
        Of what is shared, and of answers to X W.
    """

    def __init__(
        self,
        machines: list[Machine],
        manifest: Manifest,
        placement: Placement,
        arithmetic: np.dtype[Any],
    ) -> None:
        self._machines = machines
        self._placement, self._rows = placement, manifest.rows_per_shard
        self._assignment: Assignment | None = None
        self._step = 0
        self._product = Product()
        self._values = AnswerBuffers(manifest, arithmetic)
        self._shared = np.empty(0, arithmetic)
        self._problems: dict[int, str] = {}

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Begin a step."""
        self._step, self._product = step, product
        if assignment is not self._assignment:
            self._assignment = None  # until all have it: an interrupt may come in between
            intervals = self._placement.stacked(assignment.intervals_of_all(), self._rows)
            for machine in self._machines:
                machine.assign(intervals.get(machine.number, ()))
            self._assignment = assignment
        return 0

    def share(self, values: NDArray[Any]) -> int:
        """Keep them for the computation."""
        self._shared = values
        return 0

    def collect(self) -> Answers:
        """Let the machines compute, one after the other."""
        adjoint, columns = product = self._product
        values = self._values.of(product)
        if adjoint:
            values.fill(0)
        position = 0
        told = [(0.0, 0.0, 0)] * self._placement.machines
        failed = []
        with Machine.unwarned():
            for machine in self._machines:
                n, begin = machine.number, position
                position += machine.count * columns
                shared = self._shared
                if adjoint:
                    machine.prepare(product)
                    shared = shared[begin:position].reshape(-1, columns)
                else:
                    machine.prepare(product, values[begin:position])
                done = machine.work(product, shared, self._step)
                if done.problem:
                    self._problems[n] = done.problem
                    failed.append(n)
                else:
                    told[n - 1] = done.seconds, done.loaded.seconds, done.loaded.bytes
                if adjoint:
                    values += machine.values
        not_finite = []
        if adjoint and not failed and not np.isfinite(values).all():
            parts = ((machine.number, machine.values) for machine in self._machines)
            not_finite = [n for n, part in parts if not np.isfinite(part).all()]
        seconds, load_seconds, load_bytes = np.array(told).T
        return Answers(values, seconds, load_seconds, load_bytes, failed, not_finite=not_finite)

    def reports(self) -> dict[int, str]:
        """What went wrong, by machine."""
        return self._problems

    def close(self) -> None:
        """Let the shards go."""
        self._machines = []
