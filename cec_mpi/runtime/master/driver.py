"""The driver of an elastic step: it connects the state machine with the hub and the arrays."""

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
    ExpectedMachines,
    FaultsIdentified,
    IdentifyFaults,
    Instruction,
    MachineEvent,
    MachineLate,
    MarkLate,
    MarkUnresponsive,
    Request,
    RequestAnswered,
    RequestsSent,
    StartStep,
    StepFailed,
    WaitUntil,
    WrongAnswer,
)
from cec_mpi.core.elastic.states import State
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.errors import CecError
from cec_mpi.runtime.master.computation import Computation
from cec_mpi.runtime.master.measurements import Measurements
from cec_mpi.runtime.master.planning import StepPlanner
from cec_mpi.runtime.master.step import Step
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.roster import State as RosterState
from cec_mpi.runtime.wire.jobs import INTERVAL_BYTES, ElasticHub, Job, JobsAnswered, JobsEndpoint

log = logging.getLogger(__name__)

_NONE_EXPECTED = ExpectedMachines()
Outcome = StartStep | Done | StepFailed | WaitUntil
_STEP_STATES = {
    RosterState.IDLE: State.IDLE,
    RosterState.COMPUTING: State.BUSY,
    RosterState.LATE: State.BUSY,
}


def initial_states(roster: Roster) -> dict[int, State]:
    """Return the state before a step of each machine that is not absent."""
    return {
        n: _STEP_STATES[state]
        for host in roster.hosts
        for n, state in host.machines.items()
        if state in _STEP_STATES
    }


class _PoisonOnInterrupt:
    """Marks the hub as unusable if a block is interrupted, because a message may be incomplete."""

    __slots__ = ("_hub",)

    def __init__(self, hub: ElasticHub) -> None:
        self._hub = hub

    def __enter__(self) -> None:
        self._hub.is_poisoned = True

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None or issubclass(error_type, CecError):  # all messages are complete
            self._hub.is_poisoned = False


class StepDriver:
    """Feeds the events of the hub to the state machine, and executes its instructions.

    Parameters
    ----------
    endpoint : JobsEndpoint
    elastic_step : ElasticStep
    earlier_jobs : mapping of int to Job
        Pending jobs of earlier steps, by machine.
    recorder : Recorder
        Records the events of machines.
    on_damage : callable
        Called with each machine that fails because its shard is damaged.

    Attributes
    ----------
    events : list of MachineEvent
        Events of machines since the last step.
    measurements : Measurements
        Set by `run`.
    """

    def __init__(
        self,
        endpoint: JobsEndpoint,
        elastic_step: ElasticStep,
        earlier_jobs: Mapping[int, Job],
        recorder: Recorder,
        on_damage: Callable[[int], None],
    ) -> None:
        self._endpoint, self._hub, self._clock = endpoint, endpoint.hub, endpoint.hub.clock
        self._elastic_step, self._recorder, self._on_damage = elastic_step, recorder, on_damage
        self._earlier_jobs = earlier_jobs
        self._poison_on_interrupt = _PoisonOnInterrupt(self._hub)
        self._expected_machines = _NONE_EXPECTED
        self._must_update_expected = True
        self._exclusion_reasons: dict[int, str] = {}
        self.events: list[MachineEvent] = []
        # Set by `run`:
        self._step: Step
        self._computation: Computation
        self.measurements: Measurements

    def poll_hub(self, until: float) -> bool:
        """Process pending events; return whether there were any. See `ElasticHub.events`."""
        with self._poison_on_interrupt:
            events = list(self._hub.events(until))
            for event in events:
                if isinstance(event, JobsAnswered):
                    self._process_answers(event.jobs)
                else:
                    log.warning("%s", event)
                    self._must_update_expected = True
                    self._record_event(event)
                    self._elastic_step.handle(event, self._clock.monotonic())
        return bool(events)

    def follow_instructions(self) -> Outcome:
        """Execute instructions, and return the first that starts, ends or pauses the step."""
        with self._poison_on_interrupt:
            if self._must_update_expected or self._hub.roster.vacant:
                self._update_expected()
            while True:
                requests = []
                for instruction in self._elastic_step.instructions(self._clock.monotonic()):
                    if isinstance(instruction, Outcome):
                        return instruction
                    if isinstance(instruction, Request):
                        requests.append(instruction)
                    else:
                        self._execute(instruction)
                if requests:
                    self._send_requests(requests)

    def _update_expected(self) -> None:
        """Report to the step which machines may soon be available."""
        opening = self._hub.roster.opening
        vacant = self._hub.expected_machines() - opening
        adoptable = self._hub.roster.adoptable if self._elastic_step.allows_adoption else ()
        expected = ExpectedMachines(frozenset(opening), frozenset(vacant), frozenset(adoptable))
        self._must_update_expected = expected != _NONE_EXPECTED
        if expected != self._expected_machines:
            self._expected_machines = expected
            self._elastic_step.handle(expected, self._clock.monotonic())

    def run(
        self,
        step: Step,
        computation: Computation,
        planner: StepPlanner,
        redecode: Callable[[], Decode | None],
    ) -> Done | StepFailed:
        """Execute a step until its result is complete or it has failed.

        Parameters
        ----------
        step : Step
        computation : Computation
        planner : StepPlanner
            Its schedule may cancel the run while the step waits.
        redecode : callable
            Returns an instruction to decode rows again more accurately, executed while waiting.
        """
        self._step, self._computation = step, computation
        self.measurements = Measurements(planner.placement.machines, self._clock.monotonic())
        self.events = step.events
        with step.timed("announce"):
            outcome = self.follow_instructions()
        planned_machines = self._elastic_step.pending
        with step.timed("collect"):
            while isinstance(outcome, WaitUntil):
                poll_until = outcome.clock_time
                if (decode := redecode()) is not None:
                    with step.timed("decode"):
                        computation.execute(decode)
                    poll_until = -math.inf
                if self.poll_hub(poll_until):
                    outcome = self.follow_instructions()
                    continue
                planner.schedule.check_cancelled()
                if not self._elastic_step.pending or self._clock.monotonic() >= outcome.clock_time:
                    outcome = self.follow_instructions()
            now = self._clock.monotonic()
            step.delays = self.measurements.delays(planned_machines, self.events, now)
        step.unanswered = list(self._elastic_step.pending)
        assert not isinstance(outcome, StartStep)
        return outcome

    # Events.

    def _record_event(self, event: MachineEvent) -> None:
        self.events.append(event)
        self._recorder.add_event(event)

    def _process_answers(self, jobs: tuple[Job, ...]) -> None:
        """Process the answers to jobs of a host.

        For X' V the host has summed the answers of the jobs that did not fail.
        """
        now, succeeded = self._clock.monotonic(), []
        for job in jobs:
            machine = job.machine
            if not self._elastic_step.is_pending(job.request):
                if self._earlier_jobs.get(machine) is job:
                    self._elastic_step.handle(BusyMachineAnswered(machine), now)
            elif job.has_failed:
                if job.report_fields.damaged == 1:
                    self._on_damage(machine)
                self._exclusion_reasons[machine] = self._hub.last_error(machine)
                self._elastic_step.handle(ComputationFailed(job.request), now)
            else:
                succeeded.append(job)
        if succeeded and succeeded[0].product.adjoint:
            self._accept(succeeded, now)
        else:
            for job in succeeded:
                self._accept([job], now)

    def _accept(self, jobs: list[Job], now: float) -> None:
        """Accept the answer to a job, or the sum of the answers to several, unless it is wrong."""
        requests = [job.request for job in jobs]
        verdict = self._computation.accept(requests, jobs[0].pieces)
        terms = tuple(request.term for request in requests if request.term is not None)
        self._step.count_bytes(collect=sum([piece.nbytes for piece in jobs[0].pieces]))
        for job in jobs:
            job.pieces = []  # releases the memory of a rejected or copied answer
            if isinstance(verdict, NonfiniteAnswer):
                if verdict.coincident_answer is None:
                    self._record_wrong_answer(job.machine, self._step.describe_nonfinite(verdict))
                self._elastic_step.handle(AnswerRejected(job.request, verdict), now)
                continue
            self.measurements.add(job, now)
            if verdict:
                self._elastic_step.handle(RequestAnswered(job.request, terms), now)
            else:
                self._record_wrong_answer(job.machine)
                self._elastic_step.handle(AnswerRejected(job.request), now)

    def _record_wrong_answer(self, machine: int, reason: str = "") -> None:
        event = WrongAnswer(machine, reason)
        if event in self.events:
            return
        log.error("%s in step %d", event, self._step.number)
        self._exclusion_reasons[machine] = f"wrong in step {self._step.number}"
        self._record_event(event)

    # Instructions.

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Compare() | IdentifyFaults() | Decode():
                with self._step.timed("decode"):
                    check_outcome = self._computation.execute(instruction)
                if isinstance(check_outcome, FaultsIdentified):
                    for machine in check_outcome.machines:
                        self._record_wrong_answer(machine)
                if check_outcome is not None:
                    self._elastic_step.handle(check_outcome, self._clock.monotonic())
            case MarkLate(machine):
                log.warning("machine %d is late in step %d", machine, self._step.number)
                self._record_event(MachineLate(machine))
                self._hub.mark_late(machine)
            case MarkUnresponsive(machine, seconds):
                self._hub.mark_unresponsive(machine, f"no answer for {seconds:.1f} s")
                self._update_expected()  # a spare may have replaced the machine
            case Exclude(machine, event_type):
                self._hub.exclude(machine, self._exclusion_reasons[machine], event_type)
                self._update_expected()
            case Adopt(machine):
                host = self._hub.roster.adoption_hosts(machine)[0]
                self._hub.adopt(host.rank, machine)
                self._update_expected()

    def _send_requests(self, requests: list[Request]) -> None:
        step, product = self._step, self._computation.product
        operands = {request: self._computation.operand(request) for request in requests}
        share_bytes = announce_bytes = 0
        for jobs in self._endpoint.send_jobs(step.number, product, operands):
            vectors = [job.operand for job in jobs] if product.adjoint else [jobs[0].operand]
            share_bytes += sum([vector.nbytes for vector in vectors])
            announce_bytes += sum([INTERVAL_BYTES * len(job.intervals) for job in jobs])
        step.count_bytes(share=share_bytes, announce=announce_bytes)
        self._elastic_step.handle(RequestsSent(requests), self._clock.monotonic())
