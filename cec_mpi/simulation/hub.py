"""A simulated hub, whose machines answer at modelled times."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import MachineLeft, RosterChange
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.errors import MachineError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.faults import Fault, parse_faults
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import LEAVE_REASON, Roster, State
from cec_mpi.runtime.session.local import LocalHub, LocalMasterEndpoint
from cec_mpi.runtime.wire.answers import Answers
from cec_mpi.runtime.wire.jobs import INTERVAL_BYTES, Event, Job, JobsAnswered, JobsEndpoint
from cec_mpi.runtime.wire.orders import MAX_INLINE_ANSWERS, MAX_INLINE_OPERAND, Opening
from cec_mpi.runtime.wire.protocol import StaticHub
from cec_mpi.simulation.clock import SimulatedClock
from cec_mpi.simulation.machine import SimulatedMachine
from cec_mpi.simulation.scenario import Costs, MachineEvent
from cec_mpi.simulation.store import SimulatedStore


class SimulatedHub(LocalHub):
    """A hub of machines that answer, are lost and join at simulated times.

    Parameters
    ----------
    store : SimulatedStore
    costs : Costs
    elastic : bool
        Whether the run is elastic, so that machines get jobs.
    waits_for_joins : bool
        Whether the run waits for machines that join later.
    machine_events : sequence of MachineEvent

    Attributes
    ----------
    costs, store
        See the parameters.
    is_elastic : bool
        Whether machines get jobs.
    timeline : SimulatedClock
        The clock of the hub, with its scheduled actions.
    presence : deque of (float, frozenset of int)
        Times of changes, with the machines that are present afterwards; the recorder removes old
        entries.
    """

    def __init__(
        self,
        store: SimulatedStore,
        costs: Costs,
        elastic: bool,
        waits_for_joins: bool,
        machine_events: Sequence[MachineEvent] = (),
    ) -> None:
        self.timeline = SimulatedClock()
        super().__init__(elastic=elastic, clock=self.timeline)
        self.costs, self.store, self.is_elastic = costs, store, elastic
        self.roster = Roster(self._record_change)
        self.presence: deque[tuple[float, frozenset[int]]] = deque()
        self._waits_for_joins = waits_for_joins
        self._link_free_at = {"send": 0.0, "receive": 0.0}  # by direction, seen from the master
        self._source_free_at = 0.0  # end of the last read from a shared source
        first_events: dict[int, MachineEvent] = {}
        for event in sorted(machine_events, key=lambda event: event.seconds):
            first_events.setdefault(event.machine, event)
            action = self._lose_machine if event.kind == "lost" else self._join_machine
            self.timeline.schedule(event.seconds, partial(action, event.machine))
        self._initially_absent = {n for n, event in first_events.items() if event.kind == "joins"}
        self._pending_joins = [event.machine for event in machine_events if event.kind == "joins"]

    def assign_machines(self, machines: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """See `Hub.assign_machines`; machines that join later have no rank yet."""
        return tuple(n for n in machines if n not in self._initially_absent)

    def admit(self, emulation: Emulation | None) -> LocalMasterEndpoint | JobsEndpoint:
        """See `Hub.admit`."""
        assert self._opening is not None
        endpoint = super().admit(emulation)
        self.roster.add_vacant(self._opening.unassigned_machines)
        self.presence.append((self.clock.monotonic(), frozenset(self.roster.available)))
        return endpoint

    def make_endpoint(self, machines: list[Machine], opening: Opening) -> LocalMasterEndpoint:
        """See `LocalHub.make_endpoint`."""
        return SimulatedEndpoint(self, machines, opening)

    def make_machine(self, number: int, opening: Opening) -> Machine:
        """See `LocalHub.make_machine`."""
        manifest, options = self.store.manifest, opening.options
        machine = SimulatedMachine(
            number,
            self.store.open_shard(number),
            manifest.columns,
            opening.arithmetic,
            self.store.row_scale,
            self.costs.product_overhead,
        )
        machine.faults = parse_faults(options.inject, manifest.machines, options.seed)
        return machine

    # --- jobs -------------------------------------------------------------------------------------

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """See `ElasticHub.send_jobs`; the answer is computed now and delivered later."""
        super().send_jobs(rank, jobs)
        self.clock.sleep(self.costs.machine_overhead)
        (job,), store = jobs, self.store
        scale = store.row_scale if job.product.adjoint else store.column_scale
        size = INTERVAL_BYTES * len(job.intervals) + scale * job.operand.nbytes
        arrival = self._transfer(self.clock.monotonic(), size, "send") + self.costs.latency
        machine = self._machines[rank]
        fault_kinds = {fault.kind for fault in machine.faults.at(job.machine, job.step)}
        if "kill" in fault_kinds:
            self.timeline.schedule(arrival, partial(self._end_process, rank))
        elif "stop" not in fault_kinds:
            self.compute(rank, job)
            if "leave" in fault_kinds:
                job.report_fields = job.report_fields._replace(leaving=True)
            report = job.report_fields
            if self.costs.source.is_shared and report.load_bytes:  # machines read one by one
                self._source_free_at = max(arrival, self._source_free_at) + report.load_seconds
                report = report._replace(load_seconds=self._source_free_at - arrival)
                job.report_fields = report
            seconds = 0.0 if report.failed else report.load_seconds + report.seconds
            self.timeline.schedule(arrival + seconds, partial(self._send_answer, rank, job))

    def expected_machines(self) -> set[int]:
        """See `ElasticHub.expected_machines`."""
        if not self._waits_for_joins:
            return self.roster.opening
        return self.roster.opening | set(self.roster.vacant) & set(self._pending_joins)

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """See `ElasticHub.events`; run the actions that are due, or jump to the next actions."""
        self.run_due_actions()
        if not self._events and until > self.timeline.monotonic():
            self.timeline.jump(until)
            self.run_due_actions()
        yield from StaticHub.events(self)

    def run_due_actions(self) -> None:
        """Run the actions that are scheduled up to the current time."""
        for action in self.timeline.pop_due_actions():
            action()

    def _transfer(self, begin: float, size: float, direction: Literal["send", "receive"]) -> float:
        """Return the time at which the master's link has finished transferring a message.

        Messages in one direction are transferred one by one.
        """
        end = max(begin, self._link_free_at[direction]) + size / self.costs.bandwidth
        self._link_free_at[direction] = end
        return end

    def _send_answer(self, rank: int, job: Job) -> None:
        """Send the answer of a machine to the master."""
        if rank not in self.roster:
            return
        scale = self.store.column_scale if job.product.adjoint else self.store.row_scale
        end = self._transfer(self.clock.monotonic(), scale * job.pieces[0].nbytes, "receive")
        self.timeline.schedule(end + self.costs.latency, partial(self._deliver, rank, job))

    def _deliver(self, rank: int, job: Job) -> None:
        """Deliver an answer to the master."""
        if rank not in self.roster:
            return
        self._jobs.pop(rank, None)
        job.is_borrowed = False
        self._events.append(JobsAnswered((job,)))
        if self.roster[rank].is_excluded:
            return
        if job.report_fields.leaving:
            self.roster.exclude(rank, LEAVE_REASON, MachineLeft)
        else:
            self.roster.mark_answered(rank, job.machine)
        self._assign_spares()

    # --- processes --------------------------------------------------------------------------------

    def _record_change(self, change: RosterChange) -> None:
        self._events.append(change)
        self.presence.append((self.clock.monotonic(), frozenset(self.roster.available)))

    def _end_process(self, rank: int) -> None:
        if rank not in self.roster:
            return
        self._jobs.pop(rank, None)
        self.roster.remove_host(rank, "its process has ended")
        self._assign_spares()

    def _lose_machine(self, machine: int) -> None:
        for host in self.roster.hosts:
            if machine in host.machines:
                self._end_process(host.rank)

    def _join_machine(self, machine: int) -> None:
        self._pending_joins.remove(machine)
        if self.roster.state_of(machine) is State.UNRESPONSIVE:
            self.roster.vacate(machine)
        rank = self.roster.add_host().rank
        if machine in self.roster.vacant:
            self._assign_machine(rank, machine)

    def _assign_spares(self) -> None:
        for spare in self.roster.spares():
            if self.roster.vacant:
                self._assign_machine(spare.rank, self.roster.vacant[0])

    def _assign_machine(self, rank: int, machine: int) -> None:
        self.roster.assign(rank, machine)
        ready_at = self.clock.monotonic() + self.costs.process_start
        self.timeline.schedule(ready_at, partial(self._finish_opening, rank, machine))

    def _finish_opening(self, rank: int, number: int) -> None:
        if rank in self.roster and number in self.roster[rank].machines:
            machine = self.open_on_host(rank, number)
            # Scheduled faults were for the previous process.
            machine.faults = replace(machine.faults, scheduled=())
            self.roster.mark_joined(rank, number)


class SimulatedEndpoint(LocalMasterEndpoint):
    """The master's endpoint in lockstep, with simulated times."""

    hub: SimulatedHub

    def __init__(self, hub: SimulatedHub, machines: list[Machine], opening: Opening) -> None:
        super().__init__(hub, machines, opening)
        self._store, self._costs = hub.store, hub.costs
        self._tree_depth = math.ceil(math.log2(len(machines) + 1))

    def announce(
        self, step: int, product: Product, assignment: Assignment, operand: NDArray[Any]
    ) -> int:
        """Announce a step by a broadcast along a tree."""
        interval_bytes = 0
        if assignment is not self._assignment:
            interval_bytes = INTERVAL_BYTES * sum(map(len, assignment.all_intervals().values()))
        super().announce(step, product, assignment, operand)
        operand_bytes = self._represented_bytes(operand) if self._is_inline(operand) else 0
        self._broadcast(interval_bytes + operand_bytes)
        self.hub.run_due_actions()
        return interval_bytes

    def share(self, operand: NDArray[Any]) -> int:
        """Broadcast w along a tree, or scatter v."""
        super().share(operand)
        if not self._is_inline(operand):
            self._broadcast(0)
            self.hub.clock.sleep(self._represented_bytes(operand) / self._costs.bandwidth)
        return operand.nbytes

    def collect(self) -> Answers:
        """Compute on all machines; advance the clock to the arrival of the last answer."""
        leaving = self._check_faults()
        answers = super().collect()
        if self._costs.source.is_shared:  # machines read one by one
            read_ends = np.cumsum(answers.load_seconds)
            load_seconds = np.where(answers.load_seconds > 0, read_ends, 0.0)
            answers = replace(answers, load_seconds=load_seconds)
        self.hub.clock.sleep(float((answers.load_seconds + answers.seconds).max()))
        scale = self._store.column_scale if self._product.adjoint else self._store.row_scale
        size = scale * answers.values.nbytes
        messages = 1 if size <= MAX_INLINE_ANSWERS else 2
        self.hub.clock.sleep(messages * self._costs.latency + size / self._costs.bandwidth)
        self.hub.run_due_actions()
        return self.hub.exclude_leaving(replace(answers, leaving=leaving))

    def _check_faults(self) -> list[int]:
        """Raise `MachineError` for faults that end a run; return the machines that leave."""
        faults: list[Fault] = []
        for machine in self._machines:
            if machine.faults and machine.row_count:
                faults += machine.faults.at(machine.number, self._step)
        for fault in faults:
            if fault.kind in ("kill", "stop"):
                raise MachineError(
                    f"machine {fault.machine} is lost in step {self._step}, which ends a lockstep "
                    "run"
                )
        return [fault.machine for fault in faults if fault.kind == "leave"]

    def _represented_bytes(self, operand: NDArray[Any]) -> float:
        """Return the bytes of an operand in the modelled run, whose X is larger."""
        scale = self._store.row_scale if self._product.adjoint else self._store.column_scale
        return scale * operand.nbytes

    def _is_inline(self, operand: NDArray[Any]) -> bool:
        return not self._product.adjoint and self._represented_bytes(operand) <= MAX_INLINE_OPERAND

    def _broadcast(self, size: float) -> None:
        """Advance the clock by the time of a broadcast along the tree."""
        costs = self._costs
        self.hub.clock.sleep(self._tree_depth * (costs.latency + size / costs.bandwidth))
