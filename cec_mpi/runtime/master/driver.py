"""The driver of an elastic step: it connects the state machine with a hub and with NumPy."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.events import (
    Adopt,
    AnswerRejected,
    BusyMachineAnswered,
    Compare,
    ComputationFailed,
    Decode,
    Done,
    Exclude,
    FaultyIdentified,
    GiveUp,
    IdentifyFaulty,
    Instruction,
    MachineEvent,
    MachineLate,
    MarkLate,
    PendingMachines,
    Request,
    RequestAnswered,
    RequestsSent,
    StartStep,
    StepFailed,
    WaitUntil,
    WrongAnswer,
)
from cec_mpi.core.elastic.losses import State
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.errors import CecError
from cec_mpi.runtime.master.measurements import Measurements
from cec_mpi.runtime.master.planning import StepPlanner
from cec_mpi.runtime.master.products import Products
from cec_mpi.runtime.master.step import Step
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.roster import State as ProcessState
from cec_mpi.runtime.wire.jobs import ElasticHub, Job, JobsAnswered, JobsEndpoint

log = logging.getLogger(__name__)

_NOBODY = PendingMachines()
Outcome = StartStep | Done | StepFailed | WaitUntil
_STATES = {
    ProcessState.IDLE: State.IDLE,
    ProcessState.COMPUTING: State.BUSY,
    ProcessState.LATE: State.BUSY,
}


def states_of(roster: Roster) -> dict[int, State]:
    """Return the states of machines before a step."""
    return {
        n: _STATES[state]
        for host in roster.hosts
        for n, state in host.machines.items()
        if state in _STATES
    }


class _PoisonOnInterrupt:
    """Marks a hub as unusable if a block is interrupted, because a message may be incomplete."""

    __slots__ = ("_hub",)

    def __init__(self, hub: ElasticHub) -> None:
        self._hub = hub

    def __enter__(self) -> None:
        self._hub.is_poisoned = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, CecError):  # the hub is as it should be
            self._hub.is_poisoned = False


class StepDriver:
    """Feeds events to the state machine, and executes its instructions.

    Parameters
    ----------
    endpoint : JobsEndpoint
    state : ElasticStep
    busy : mapping of int to Job
        Jobs of earlier steps, by machine.
    recorder : Recorder
        Takes what happens to machines.
    on_damage : callable
        Called with a machine that has failed because its shard is damaged.

    Attributes
    ----------
    events : list of MachineEvent
        What has happened to machines.
    """

    def __init__(
        self,
        endpoint: JobsEndpoint,
        state: ElasticStep,
        busy: Mapping[int, Job],
        recorder: Recorder,
        on_damage: Callable[[int], None],
    ) -> None:
        self._endpoint, self._hub, self._clock = endpoint, endpoint.hub, endpoint.hub.clock
        self._state, self._recorder, self._on_damage = state, recorder, on_damage
        self._busy = busy
        self._poison_on_interrupt = _PoisonOnInterrupt(self._hub)
        self._expected = _NOBODY
        self._has_changed = True  # the machines that are about to be available may have changed
        self._reasons: dict[int, str] = {}  # why machines are excluded
        self.events: list[MachineEvent] = []
        # Of a running step:
        self._step: Step
        self._products: Products
        self.measured: Measurements

    def poll_hub(self, until: float = -math.inf) -> bool:
        """Process pending events; return whether there were any. See `ElasticHub.events`."""
        with self._poison_on_interrupt:
            events = list(self._hub.events(until))
            for event in events:
                if isinstance(event, JobsAnswered):
                    self._take_answers(event.jobs)
                else:
                    log.warning("%s", event)
                    self._has_changed = True
                    self._note(event)
                    self._state.handle(event, self._clock.monotonic())
        return bool(events)

    def follow_instructions(self) -> Outcome:
        """Follow all instructions until one says that the step begins, ends or waits."""
        with self._poison_on_interrupt:
            if self._has_changed or self._hub.roster.vacant:
                self._update_expected()
            while True:
                requests = []
                for instruction in self._state.instructions(self._clock.monotonic()):
                    if isinstance(instruction, Outcome):
                        return instruction
                    if isinstance(instruction, Request):
                        requests.append(instruction)
                    else:
                        self._follow(instruction)
                if requests:
                    self._send_requests(requests)

    def _update_expected(self) -> None:
        """Tell the step which machines are about to be available."""
        opening = self._hub.roster.opening
        vacant = self._hub.expected_machines() - opening
        adoptable = self._hub.roster.adoptable if self._state.can_adopt_machines else ()
        found = PendingMachines(frozenset(opening), frozenset(vacant), frozenset(adoptable))
        self._has_changed = found != _NOBODY
        if found != self._expected:
            self._expected = found
            self._state.handle(found, self._clock.monotonic())

    def run(
        self,
        step: Step,
        products: Products,
        planner: StepPlanner,
        refine: Callable[[], Decode | None],
    ) -> Done | StepFailed:
        """Follow a step, which has begun, to its end.

        Parameters
        ----------
        step : Step
        products : Products
        planner : StepPlanner
            Its schedule may end the run while a step waits.
        refine : callable
            Returns rows that can be decoded again while nothing else happens.
        """
        self._step, self._products = step, products
        self.measured = Measurements(planner.placement.machines, self._clock.monotonic())
        self.events = step.events
        with step.timed("announce"):
            outcome = self.follow_instructions()
        planned = self._state.pending
        with step.timed("collect"):
            while isinstance(outcome, WaitUntil):
                moment = outcome.moment
                if (rows := refine()) is not None:
                    with step.timed("code"):
                        products.execute(rows)
                    moment = -math.inf
                if self.poll_hub(moment):
                    outcome = self.follow_instructions()
                    continue
                planner.schedule.check_cancelled()
                if not self._state.pending or self._clock.monotonic() >= outcome.moment:
                    outcome = self.follow_instructions()
            now = self._clock.monotonic()
            step.delays = self.measured.delays(planned, self.events, now)
        step.unanswered = list(self._state.pending)
        assert not isinstance(outcome, StartStep)
        return outcome

    # Events.

    def _note(self, event: MachineEvent) -> None:
        self.events.append(event)
        self._recorder.note(event)

    def _take_answers(self, jobs: tuple[Job, ...]) -> None:
        """Take the answers to jobs of a host; for X' V, jobs that have not failed have one sum."""
        now, done = self._clock.monotonic(), []
        for job in jobs:
            machine = job.machine
            if not self._state.is_pending(job.request):
                if self._busy.get(machine) is job:
                    self._state.handle(BusyMachineAnswered(machine), now)
            elif job.failed:
                if job.report_fields.damaged == 1:
                    self._on_damage(machine)
                self._reasons[machine] = self._hub.last_error(machine)
                self._state.handle(ComputationFailed(job.request), now)
            else:
                done.append(job)
        if done and done[0].product.adjoint:
            self._keep(done, now)
        else:
            for job in done:
                self._keep([job], now)

    def _keep(self, jobs: list[Job], now: float) -> None:
        """Keep the answer to a job, or to jobs of one sum, unless it is wrong."""
        requests = [job.request for job in jobs]
        kept = self._products.take(requests, jobs[0].pieces)
        terms = tuple(request.term for request in requests if request.term is not None)
        self._step.count(collect=sum([piece.nbytes for piece in jobs[0].pieces]))
        for job in jobs:
            job.pieces = []  # the products have what they need
            if isinstance(kept, NonfiniteAnswer):
                if kept.coincident is None:
                    self._note_wrong(job.machine, self._step.describe(kept))
                self._state.handle(AnswerRejected(job.request, kept), now)
                continue
            self.measured.count(job, now)
            if kept:
                self._state.handle(RequestAnswered(job.request, terms), now)
            else:
                self._note_wrong(job.machine)
                self._state.handle(AnswerRejected(job.request), now)

    def _note_wrong(self, machine: int, reason: str = "") -> None:
        event = WrongAnswer(machine, reason)
        if event in self.events:
            return
        log.error("%s in step %d", event, self._step.number)
        self._reasons[machine] = f"wrong in step {self._step.number}"
        self._note(event)

    # Instructions.

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case Compare() | IdentifyFaulty() | Decode():
                with self._step.timed("code"):
                    outcome = self._products.execute(instruction)
                if isinstance(outcome, FaultyIdentified):
                    for machine in outcome.machines:
                        self._note_wrong(machine)
                if outcome is not None:
                    self._state.handle(outcome, self._clock.monotonic())
            case MarkLate(machine):
                log.warning("machine %d is late in step %d", machine, self._step.number)
                self._note(MachineLate(machine))
                self._hub.mark_late(machine)
            case GiveUp(machine, seconds):
                self._hub.give_up(machine, f"no answer for {seconds:.1f} s")
                self._update_expected()  # a spare may have taken the machine
            case Exclude(machine, kind):
                self._hub.exclude(machine, self._reasons[machine], kind)
                self._update_expected()
            case Adopt(machine):
                host = self._hub.roster.adoption_hosts(machine)[0]
                self._hub.adopt(host.rank, machine)
                self._update_expected()

    def _send_requests(self, requests: list[Request]) -> None:
        step, product = self._step, self._products.product
        operands = {request: self._products.content(request) for request in requests}
        share = announce = 0
        for jobs in self._endpoint.send_jobs(step.number, product, operands):
            vectors = [job.operand for job in jobs] if product.adjoint else [jobs[0].operand]
            share += sum([vector.nbytes for vector in vectors])
            announce += sum([16 * len(job.intervals) for job in jobs])
        step.count(share=share, announce=announce)
        self._state.handle(RequestsSent(requests), self._clock.monotonic())
