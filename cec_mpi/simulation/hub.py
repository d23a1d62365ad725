"""A hub without a wire, whose machines answer at the moments that a model says."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from cec_mpi.core.elastic.events import Change, Left
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.errors import MachineError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.faults import Fault, read_faults
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.processes.places import Place
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import WARNED, Roster, State
from cec_mpi.runtime.session.local import LocalHub, LocalMasterEnd
from cec_mpi.runtime.wire.jobs import Answered, Answers, Event, Job, JobsEnd
from cec_mpi.runtime.wire.orders import SHORT_ANSWERS, SHORT_VECTOR, Opening, Reported
from cec_mpi.runtime.wire.protocol import StaticHub
from cec_mpi.simulation.clock import SimulatedClock
from cec_mpi.simulation.machine import SimulatedMachine
from cec_mpi.simulation.scenario import Costs, Happening
from cec_mpi.simulation.store import SimulatedStore

_INTERVAL = 16  # bytes
_LEAVING = Reported._fields.index("leaving")


class SimulatedHub(LocalHub):
    """Machines whose answers, losses and arrivals come at simulated moments.

    Parameters
    ----------
    store : SimulatedStore
    costs : Costs
    elastic : bool
        Whether machines get jobs.
    waits : bool
        Whether machines that may still join are waited for.
    happenings : sequence of Happening

    Attributes
    ----------
    costs, store
        As given.
    is_elastic : bool
        Whether machines get jobs.
    timeline : SimulatedClock
        The clock, with what is to happen.
    there : deque of (float, frozenset of int)
        The machines that were there, and from when on; the recorder takes away what is over.
    """

    def __init__(
        self,
        store: SimulatedStore,
        costs: Costs,
        elastic: bool,
        waits: bool,
        happenings: Sequence[Happening] = (),
    ) -> None:
        self.timeline = SimulatedClock()
        super().__init__(elastic=elastic, clock=self.timeline)
        self.costs, self.store, self.is_elastic = costs, store, elastic
        self.roster = Roster(self._note)
        self.there: deque[tuple[float, frozenset[int]]] = deque()
        self._waits = waits
        self._sent = self._received = 0.0  # until when the master sends and receives
        first: dict[int, Happening] = {}
        for each in sorted(happenings, key=lambda each: each.seconds):
            first.setdefault(each.machine, each)
            happen = self._lose_one if each.kind == "lost" else self._join_one
            self.timeline.schedule(each.seconds, partial(happen, each.machine))
        self._absent = {n for n, each in first.items() if each.kind == "joins"}
        self._to_join = [each.machine for each in happenings if each.kind == "joins"]

    def assign_machines(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """See `Hub.assign_machines`; machines that join later have no rank yet."""
        return tuple(n for n in machines if n not in self._absent), places

    def admit(self, emulation: Emulation | None) -> LocalMasterEnd | JobsEnd:
        """See `Hub.admit`."""
        assert self._opening is not None
        end = super().admit(emulation)
        self.roster.expect(self._opening.expected)
        self.there.append((self.clock.monotonic(), frozenset(self.roster.available)))
        return end

    def end_of(self, machines: list[Machine], opening: Opening) -> LocalMasterEnd:
        """See `LocalHub.end_of`."""
        return SimulatedEnd(self, machines, opening)

    def machine_of(self, number: int, opening: Opening) -> Machine:
        """See `LocalHub.machine_of`."""
        shard = self.store.open_shard(number)
        manifest, tall = self.store.manifest, self.store.tall
        given = shard, manifest.columns, opening.arithmetic, tall, self.costs.call
        machine = SimulatedMachine(number, *given)
        options = opening.options
        machine.faults = read_faults(options.inject, manifest.machines, options.seed)
        return machine

    # Jobs.

    def ask(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """See `ElasticHub.ask`; what the machine answers is known now, and told later."""
        super().ask(rank, jobs)
        self.clock.sleep(self.costs.each)
        (job,), store = jobs, self.store
        scale = store.tall if job.product.adjoint else store.wide
        size = _INTERVAL * len(job.intervals) + scale * job.content.nbytes
        begins = self._through(self.clock.monotonic(), size, "_sent") + self.costs.latency
        machine = self._machines[rank]
        faults = machine.faults.at(job.machine, job.step)
        kinds = {fault.kind for fault in faults}
        if "kill" in kinds:
            self.timeline.schedule(begins, partial(self._end, rank))
        elif "stop" not in kinds:
            self.compute(rank, job)
            if "leave" in kinds:
                job.report[_LEAVING] = True
            told = job.reported
            seconds = 0.0 if told.failed else told.load_seconds + told.seconds
            self.timeline.schedule(begins + seconds, partial(self._answer, rank, job))

    def awaited(self) -> set[int]:
        """See `ElasticHub.awaited`."""
        joining = self.roster.opening
        return joining | set(self.roster.vacant) & set(self._to_join) if self._waits else joining

    def events(self) -> Iterator[Event]:
        """See `Hub.events`: what has happened up to now."""
        for happen in self.timeline.due():
            happen()
            yield from StaticHub.events(self)
        yield from StaticHub.events(self)

    def _through(self, begins: float, size: float, direction: str) -> float:
        """Return when bytes are through the network of the master, one message after the other."""
        ends = max(begins, getattr(self, direction)) + size / self.costs.bandwidth
        setattr(self, direction, ends)
        return float(ends)

    def _answer(self, rank: int, job: Job) -> None:
        """A machine sends its answer."""
        if rank not in self.roster:
            return
        scale = self.store.wide if job.product.adjoint else self.store.tall
        ends = self._through(self.clock.monotonic(), scale * job.values.nbytes, "_received")
        self.timeline.schedule(ends + self.costs.latency, partial(self._take, rank, job))

    def _take(self, rank: int, job: Job) -> None:
        """The master has an answer."""
        if rank not in self.roster:
            return
        self._jobs.pop(rank, None)
        job.is_held = False
        self._events.append(Answered((job,)))
        if self.roster[rank].is_excluded:
            return
        if job.leaving:
            self.roster.exclude(rank, WARNED, Left)
        else:
            self.roster.answer(rank, job.machine)
        self._fill()

    # Processes.

    def _note(self, change: Change) -> None:
        self._events.append(change)
        self.there.append((self.clock.monotonic(), frozenset(self.roster.available)))

    def _end(self, rank: int) -> None:
        if rank not in self.roster:
            return
        self._jobs.pop(rank, None)
        self.roster.lose(rank, "its process has ended")
        self._fill()

    def _lose_one(self, machine: int) -> None:
        for host in self.roster.processes:
            if machine in host.machines:
                self._end(host.rank)

    def _join_one(self, machine: int) -> None:
        self._to_join.remove(machine)
        if self.roster.state_of(machine) is State.GIVEN_UP:
            self.roster.hand_over(machine)
        rank = self.roster.add().rank
        if machine in self.roster.vacant:
            self._become(rank, machine)

    def _fill(self) -> None:
        for spare in self.roster.spares():
            if self.roster.vacant:
                self._become(spare.rank, self.roster.vacant[0])

    def _become(self, rank: int, machine: int) -> None:
        self.roster.join(rank, machine)
        opened = self.clock.monotonic() + self.costs.start
        self.timeline.schedule(opened, partial(self._open_one, rank, machine))

    def _open_one(self, rank: int, number: int) -> None:
        if rank in self.roster and number in self.roster[rank].machines:
            machine = self.open_for(rank, number)
            machine.faults = replace(machine.faults, ordered=())  # others were for the one before
            self.roster.joined(rank, number)


class SimulatedEnd(LocalMasterEnd):
    """The master's end for steps that all machines make together, at simulated costs."""

    hub: SimulatedHub

    def __init__(self, hub: SimulatedHub, machines: list[Machine], opening: Opening) -> None:
        super().__init__(hub, machines, opening)
        self._store, self._costs = hub.store, hub.costs
        self._depth = math.ceil(math.log2(len(machines) + 1))

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Begin a step, by messages along a tree."""
        size = 0
        if assignment is not self._assignment:
            size = _INTERVAL * sum(map(len, assignment.intervals_of_all().values()))
        super().announce(step, product, assignment, values)
        self._pass(size + (self._size_of(values) if self._is_short(values) else 0))
        self._happen()
        return size

    def share(self, values: NDArray[Any]) -> int:
        """Keep the values, which all machines get along a tree, or each its part."""
        super().share(values)
        if not self._is_short(values):
            self._pass(0)
            self.hub.clock.sleep(self._size_of(values) / self._costs.bandwidth)
        return values.nbytes

    def collect(self) -> Answers:
        """Make the machines compute; their answers are there when the last one has computed."""
        leaving = self._faults()
        answers = super().collect()
        self.hub.clock.sleep(float((answers.load_seconds + answers.seconds).max()))
        scale = self._store.wide if self._product.adjoint else self._store.tall
        size = scale * answers.values.nbytes
        messages = 1 if size <= SHORT_ANSWERS else 2
        self.hub.clock.sleep(messages * self._costs.latency + size / self._costs.bandwidth)
        self._happen()
        return self.hub.exclude_leaving(replace(answers, leaving=leaving))

    def _faults(self) -> list[int]:
        """Raise for faults that end a lockstep run; returns the machines that must leave."""
        found: list[Fault] = []
        for machine in self._machines:
            if machine.faults and machine.count:
                found += machine.faults.at(machine.number, self._step)
        for fault in found:
            if fault.kind in ("kill", "stop"):
                raise MachineError(
                    f"machine {fault.machine} is lost in step {self._step}, which ends a lockstep "
                    "run"
                )
        return [fault.machine for fault in found if fault.kind == "leave"]

    def _happen(self) -> None:
        for happen in self.hub.timeline.due():
            happen()

    def _size_of(self, values: NDArray[Any]) -> float:
        scale = self._store.tall if self._product.adjoint else self._store.wide
        return scale * values.nbytes

    def _is_short(self, values: NDArray[Any]) -> bool:
        return not self._product.adjoint and self._size_of(values) <= SHORT_VECTOR

    def _pass(self, size: float) -> None:
        """Let a message pass along the tree."""
        costs = self._costs
        self.hub.clock.sleep(self._depth * (costs.latency + size / costs.bandwidth))
