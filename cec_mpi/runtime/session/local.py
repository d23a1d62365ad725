"""A hub for machines in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.finite import is_finite
from cec_mpi.core.elastic.events import MachineUnavailable
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.errors import CecError, ShortageError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.machine import Machine, Report
from cec_mpi.runtime.processes.waiting import Clock, sleep_at_most
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import State
from cec_mpi.runtime.session.serving import (
    collect_problems,
    compute_answers,
    make_open_report,
    open_machine,
)
from cec_mpi.runtime.times import ANSWER_SLEEP
from cec_mpi.runtime.wire.answers import AnswerBuffers, Answers
from cec_mpi.runtime.wire.jobs import Event, Job, JobsAnswered, JobsEndpoint
from cec_mpi.runtime.wire.orders import Multiply, Opening, OpenReport, Part, pack_report
from cec_mpi.runtime.wire.protocol import StaticHub
from cec_mpi.store.shard import NOTHING_LOADED


class LocalHub(StaticHub):
    """A hub whose machines are objects of this process.

    With `elastic`, machines get separate jobs, and compute them in order when `events` is called.
    Otherwise steps are in lockstep.

    Parameters
    ----------
    elastic : bool
        Whether machines get jobs, as in an elastic run.
    spares : int
        Number of spares, which replace lost machines.
    clock : Clock
    """

    def __init__(self, elastic: bool = False, spares: int = 0, clock: Clock = time) -> None:
        super().__init__(clock)
        self.is_poisoned = False
        self._elastic, self._spares = elastic, spares
        self._opened_machines: list[Machine] = []
        self._opening: Opening | None = None
        self._emulation: Emulation | None = None
        self._machines: dict[int, Machine] = {}  # by rank
        self._jobs: dict[int, Job] = {}  # by rank
        self._problems: dict[int, str] = {}  # by rank

    def open(self, opening: Opening) -> list[OpenReport]:
        """Open the shards; one speed is measured for all, because they share this process."""
        reports = []
        self._opened_machines, self._opening = [], opening
        for number in opening.machines:
            if not number:
                reports.append(OpenReport())
                continue
            problems: list[CecError] = []
            machine, rate = None, 0.0
            with collect_problems(number, problems, reraise=ShortageError):
                machine = self.make_machine(number, opening)
                if opening.measures_speed and not any(report.rate for report in reports):
                    rate = machine.measure_rate()
                self._opened_machines.append(machine)
            reports.append(make_open_report(number, opening, machine, problems, rate))
        return reports

    def admit(self, emulation: Emulation | None) -> LocalMasterEndpoint | JobsEndpoint:
        """See `Hub.admit`."""
        opening = self._opening
        assert opening is not None
        self._emulation = emulation
        for machine in self._opened_machines:
            machine.emulation = emulation
        self.fill_roster(opening.machines)
        if not self._elastic:
            return self.make_endpoint(self._opened_machines, opening)
        for _ in range(self._spares):
            self.roster.add_host()
        self._machines = {
            self._rank_of(machine.number): machine for machine in self._opened_machines
        }
        return JobsEndpoint(self)

    def make_endpoint(self, machines: list[Machine], opening: Opening) -> LocalMasterEndpoint:
        """Return the endpoint for steps in lockstep."""
        return LocalMasterEndpoint(self, machines, opening)

    def make_machine(self, number: int, opening: Opening) -> Machine:
        """Return a machine that has opened its shard."""
        return open_machine(number, opening)

    def refuse(self, error: CecError) -> None:
        """See `Hub.refuse`."""
        self.stop(error)

    def stop(self, error: BaseException | None) -> None:
        """Close the shards."""
        self._opened_machines.clear()
        self._machines.clear()

    # Jobs.

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """See `ElasticHub.send_jobs`; a host has one machine."""
        (job,) = jobs
        self.roster.mark_computing(job.machine)
        job.is_borrowed = True
        self._jobs[rank] = job

    def pending_jobs(self) -> dict[int, Job]:
        """See `ElasticHub.pending_jobs`."""
        computing = self.roster.machines(State.COMPUTING, State.LATE)
        return {job.machine: job for job in self._jobs.values() if job.machine in computing}

    def expected_machines(self) -> set[int]:
        """See `ElasticHub.expected_machines`."""
        return self.roster.opening

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """See `ElasticHub.events`; machines compute in this call."""
        for host in self.roster.hosts if self._elastic else ():
            for machine, state in host.machines.items():
                if state is State.JOINING:
                    host.devices[machine] = self.open_on_host(host.rank, machine).device
                    self.roster.mark_joined(host.rank, machine)
        for rank, job in list(self._jobs.items()):
            if rank not in self.roster or self.roster[rank].is_excluded:
                del self._jobs[rank]
                job.is_borrowed = False
            elif self.compute(rank, job):
                del self._jobs[rank]
                job.is_borrowed = False
                self.roster.mark_answered(rank, job.machine)
                self._events.append(JobsAnswered((job,)))
        if not self._events and (remaining := until - self.clock.monotonic()) > 0:
            sleep_at_most(self.clock, remaining, ANSWER_SLEEP)
        yield from super().events()

    def compute(self, rank: int, job: Job) -> bool:
        """Compute the job of a rank, and return whether it has answered."""
        machine = self._machines[rank]
        order = Multiply(job.step, job.product, (Part(job.machine, job.intervals),))
        operand = job.operand
        if job.product.adjoint:
            operand = operand.reshape(job.row_count, job.product.columns)
        with Machine.ignore_fp_warnings():
            (values,), (report,) = compute_answers({job.machine: machine}, order, operand)
        job.pieces = [values.copy()]
        job.report_fields = pack_report(report, job.machine)
        self._problems[rank] = report.problem
        return True

    def lose(self, machine: int, reason: str) -> None:
        """Remove the host of a machine; a spare replaces it."""
        self.roster.remove_host(self._rank_of(machine), reason)
        self._fill_vacancies()

    def mark_late(self, machine: int) -> None:
        """See `ElasticHub.mark_late`."""
        self.roster.mark_late(machine)

    def mark_unresponsive(self, machine: int, reason: str) -> None:
        """See `ElasticHub.mark_unresponsive`; no spare replaces the machine."""
        self.roster.mark_unresponsive(self._rank_of(machine), reason)

    def exclude(self, machine: int, reason: str, event_type: type[MachineUnavailable]) -> None:
        """See `ElasticHub.exclude`."""
        self.roster.exclude(self._rank_of(machine), reason, event_type)
        self._fill_vacancies()

    def adopt(self, rank: int, machine: int) -> None:
        """See `ElasticHub.adopt`; a host has capacity for one machine."""
        self.roster.assign(rank, machine)

    def last_error(self, machine: int) -> str:
        """See `ElasticHub.last_error`."""
        return self._problems[self._rank_of(machine)]

    def _rank_of(self, machine: int) -> int:
        return self.roster.host_of(machine).rank

    def _fill_vacancies(self) -> None:
        while self.roster.vacant and (spares := self.roster.spares()):
            self.roster.assign(spares[0].rank, self.roster.vacant[0])

    def open_on_host(self, rank: int, number: int) -> Machine:
        """Open a machine on the host with this rank, and return it."""
        assert self._opening is not None
        machine = self.make_machine(number, self._opening)
        machine.emulation = self._emulation
        self._machines[rank] = machine
        return machine


class LocalMasterEndpoint:
    """A `LockstepEndpoint` whose machines are objects of this process.

    Parameters
    ----------
    hub : LocalHub
    machines : list of Machine
        The machines that take part, ascending by number.
    opening : Opening
    """

    def __init__(self, hub: LocalHub, machines: list[Machine], opening: Opening) -> None:
        self.hub = hub
        self._machines = machines
        manifest, arithmetic = opening.manifest, opening.arithmetic
        self._machine_count, self._columns = manifest.code.machines, manifest.columns
        self._assignment: Assignment | None = None
        self._step = 0
        self._product = Product()
        self._answer_buffers = AnswerBuffers(manifest, arithmetic)
        self._slices: list[slice] = []  # of answers to X W or coefficients, for each machine
        self._operand = np.empty(0, arithmetic)
        self._term = np.empty(0)  # of X' V, reused by all machines
        self._problems: dict[int, str] = {}

    def announce(
        self, step: int, product: Product, assignment: Assignment, operand: NDArray[Any]
    ) -> int:
        """See `LockstepEndpoint.announce`; sends no bytes."""
        self._step = step
        if assignment is not self._assignment or product != self._product:
            self._prepare(product, assignment)
        return 0

    def _prepare(self, product: Product, assignment: Assignment) -> None:
        """Assign rows to the machines, and provide arrays for their answers."""
        intervals = {} if assignment is self._assignment else assignment.all_intervals()
        self._assignment = None  # an interrupt below must not leave it set
        answers = None if product.adjoint else self._answer_buffers.get(product)
        size = self._columns * product.columns
        if product.adjoint and self._term.size != size:
            self._term = np.empty(size)
        self._slices, begin = [], 0
        for machine in self._machines:
            if intervals:
                machine.assign(intervals.get(machine.number, ()))
            span = slice(begin, begin + machine.row_count * product.columns)
            machine.prepare(product, self._term if answers is None else answers[span])
            self._slices.append(span)
            begin = span.stop
        self._product, self._assignment = product, assignment

    def share(self, operand: NDArray[Any]) -> int:
        """See `LockstepEndpoint.share`; sends no bytes."""
        self._operand = operand
        return 0

    def collect(self) -> Answers:
        """Compute the answers of all machines, one machine at a time."""
        adjoint, product = self._product.adjoint, self._product
        values = self._answer_buffers.take(product)
        if adjoint:
            values.fill(0)
        seconds = [0.0] * self._machine_count
        load_costs = np.zeros((2, self._machine_count))  # seconds and bytes
        failed, damaged, not_finite = [], [], []
        with Machine.ignore_fp_warnings():
            for machine, span in zip(self._machines, self._slices, strict=True):
                report = self._compute(machine, span)
                n = machine.number
                seconds[n - 1] = report.seconds
                if report.problem:
                    self._problems[n] = report.problem
                    failed.append(n)
                    damaged += [n] if report.damaged else []
                elif report.load_cost is not NOTHING_LOADED:
                    load_costs[:, n - 1] = report.load_cost
                if adjoint and machine.row_count:
                    values += self._term
            if adjoint and not failed and not math.isfinite(np.add.reduce(values)):
                for machine, span in zip(self._machines, self._slices, strict=True):
                    if machine.row_count:
                        self._compute(machine, span)
                        if not is_finite(self._term):
                            not_finite.append(machine.number)
        return Answers(
            values,
            np.array(seconds),
            load_seconds=load_costs[0],
            load_bytes=load_costs[1],
            failed=failed,
            not_finite=not_finite,
            damaged=damaged,
        )

    def _compute(self, machine: Machine, span: slice) -> Report:
        """Compute the answer of a machine; for X' V, its term of the sum is written to `_term`."""
        adjoint, columns = self._product
        operand = self._operand[span].reshape(-1, columns) if adjoint else self._operand
        return machine.execute(self._product, operand, self._step)

    def last_errors(self) -> dict[int, str]:
        """See `LockstepEndpoint.last_errors`."""
        return self._problems
