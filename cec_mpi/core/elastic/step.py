"""The state machine of an elastic step.

::

    waiting --StartStep--> running --Done--> ended
       |                      |                ^
       +----------------------+-- StepFailed --+

A driver reports events (`ElasticStep.handle`) and follows the instructions
(`ElasticStep.instructions`) until an instruction ends the step or requires a wait. After an
exception or a cancellation the object is discarded, and the next step starts from the state of the
roster.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.events import (
    Adopt,
    AnswerRejected,
    AvailabilityChanged,
    BusyMachineAnswered,
    Compare,
    ComputationFailed,
    Decode,
    Disagreement,
    Done,
    Event,
    Exclude,
    ExpectedMachines,
    FaultsIdentified,
    FaultUndetermined,
    IdentifyFaults,
    Instruction,
    MachineExcluded,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineUnavailable,
    MachineUnresponsive,
    MarkLate,
    MarkUnresponsive,
    Request,
    RequestAnswered,
    RequestsSent,
    RowsAgree,
    RowsDisagree,
    StartStep,
    StepFailed,
    TooFewMachines,
    WaitUntil,
)
from cec_mpi.core.elastic.states import (
    DISPUTE_SECONDS,
    PENDING_STATES,
    TIMED_CAUSES,
    WAIT_MARGIN,
    Cause,
    Consequence,
    Deadline,
    State,
    seconds_until_late,
    seconds_until_unresponsive,
    transition,
)
from cec_mpi.core.elastic.terms import Term

_CAUSES = {
    MachineLost: Cause.LOST,
    MachineUnresponsive: Cause.UNRESPONSIVE,
    MachineLeft: Cause.LEFT,
    MachineExcluded: Cause.EXCLUDED,
    MachineJoined: Cause.JOINED,
}


class Ledger(Protocol):
    """The answers that a step needs: `RowLedger`, `TermLedger` or `ProbeLedger`."""

    may_have_unassigned_work: bool

    @property
    def is_done(self) -> bool:
        """Whether the result is complete."""

    @property
    def assigned_machines(self) -> Collection[int]:
        """Machines with assigned work that has not been requested yet."""

    def next_request(self, machine: int) -> Request | None:
        """Return the next request for an idle machine; None if it has no assigned work."""

    def reassign(self, helpers: Collection[int], idle_machines: Collection[int]) -> None:
        """Assign missing answers to helpers, and update `may_have_unassigned_work`."""

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Stop waiting for a machine's answer.

        With `may_answer`, its pending request may still be answered.
        """

    def drop(self, machine: int) -> None:
        """Stop waiting for a machine's answer, and discard the answers that it sent."""

    def record_answer(self, request: Request, added_terms: Sequence[Term] = ()) -> None:
        """Record an answer: rows, or the sum of the requested term and `added_terms`."""

    def record_comparison(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Record the outcome of a comparison."""

    def instructions(self) -> Collection[Compare | IdentifyFaults | Decode]:
        """Return instructions to compare or decode answers, or to identify faults."""

    def conclude_dispute(self) -> IdentifyFaults | Disagreement | None:
        """Return what to do if no further machine can answer in a dispute.

        None if there is no dispute.
        """


class ElasticStep:
    """A step whose machines may be late, lost or faulty.

    Parameters
    ----------
    states : mapping of int to State
        State of each machine before the step: absent, busy or idle.
    request_times : mapping of int to float
        Time of the pending request of each busy machine.
    count_missing : callable
        Takes machines, and returns how many more a step needs.
    deadline : Deadline or None
        If None, no machine becomes late or unresponsive.
    time_limit : float or None
        Time limit for answers in the previous step, in seconds.
    waits_for_joins : bool
        Whether a running step waits for machines without a process, which may still join.
    adopt_after : float
        How long, in seconds, a shortage of machines must last before hosts adopt missing machines.

    Attributes
    ----------
    time_limit : float or None
        Time limit for answers in this step, in seconds; at first that of the previous step.
    """

    def __init__(
        self,
        states: Mapping[int, State],
        request_times: Mapping[int, float],
        count_missing: Callable[[Sequence[int]], int],
        deadline: Deadline | None = None,
        time_limit: float | None = None,
        waits_for_joins: bool = True,
        adopt_after: float = float("inf"),
    ) -> None:
        self._states = dict(states)
        self._request_times = dict(request_times)  # of pending requests, by machine
        self._count_missing = count_missing
        self._deadline, self.time_limit = deadline, time_limit
        self._waits_for_joins, self._adopt_after = waits_for_joins, adopt_after
        self._time_limits: dict[Cause, float] = {}  # in seconds
        self._shortest_limits: dict[State, float] = {}  # in seconds
        self._shortage_start = float("inf")  # infinite without a shortage of machines
        self._expected = ExpectedMachines()
        self._ledger: Ledger | None = None
        self._listed_machines: frozenset[int] = frozenset()
        self._predicted_seconds: float | None = None
        self._start_time = 0.0
        self._answer_seconds: list[float] = []  # ascending
        self._pending_requests: dict[int, Request] = {}
        self._exclusions: dict[int, type[MachineLost | MachineExcluded]] = {}
        self._failure: StepFailed | None = None
        self._has_new_helper = False
        self._dispute_start: float | None = None
        self._responders: set[int] = set()  # machines whose current process has answered
        self._nonfinite_answers: list[NonfiniteAnswer] = []
        self._faulty_machines: list[int] = []  # machines with other wrong answers

    def begin(
        self, ledger: Ledger, machines: Collection[int], predicted_seconds: float | None, now: float
    ) -> None:
        """Start the step, after the instruction `StartStep`.

        Parameters
        ----------
        ledger : Ledger
        machines : collection of int
            Machines that may get requests while they are available.
        predicted_seconds : float or None
            Predicted makespan of the plan.
        now : float
            Time of the clock, in seconds.
        """
        self._ledger, self._listed_machines = ledger, frozenset(machines)
        self._predicted_seconds, self._start_time = predicted_seconds, now
        self._has_new_helper = True
        for machine in set(ledger.assigned_machines).difference(self._idle_machines()):
            ledger.release(machine)

    @property
    def allows_adoption(self) -> bool:
        """Whether hosts may adopt missing machines."""
        return self._adopt_after < float("inf")

    @property
    def pending(self) -> tuple[int, ...]:
        """Machines with a pending request of this step."""
        return tuple(sorted(self._pending_requests))

    def is_pending(self, request: Request) -> bool:
        """Return whether a request is pending, so that its answer would be used."""
        return self._pending_requests.get(request.machine) is request

    # Events.

    def handle(self, event: Event, now: float) -> None:
        """Handle an event.

        Parameters
        ----------
        event : Event
        now : float
            Time of the clock, in seconds.
        """
        match event:
            case ExpectedMachines():
                self._expected = event
            case AvailabilityChanged():
                self._listed_machines = event.listed_machines
            case RequestsSent(requests):
                self._request_times |= {request.machine: now for request in requests}
            case RequestAnswered() | ComputationFailed() | AnswerRejected():
                if self.is_pending(event.request):
                    insort(self._answer_seconds, now - self._start_time)
                    self._handle_answer(event)
            case BusyMachineAnswered(machine):
                self._apply(machine, Cause.FREED)
            case MachineUnavailable() | MachineJoined():
                self._apply(event.machine, _CAUSES[type(event)])
            case FaultsIdentified(machines):
                for machine in machines:
                    self._faulty_machines.append(machine)
                    self._apply(machine, Cause.IDENTIFIED)
            case RowsAgree() | RowsDisagree() | FaultUndetermined():
                if self._ledger is not None:
                    self._ledger.record_comparison(event)

    def _handle_answer(self, event: RequestAnswered | ComputationFailed | AnswerRejected) -> None:
        machine = event.request.machine
        if isinstance(event, RequestAnswered):
            assert self._ledger is not None
            self._ledger.record_answer(event.request, event.added_terms)
            self._responders.add(machine)
            self._apply(machine, Cause.ANSWERED)
        elif isinstance(event, ComputationFailed):
            self._apply(machine, Cause.FAILED)
        elif event.nonfinite is not None and event.nonfinite.coincident_answer is not None:
            self._failure = StepFailed(event.nonfinite)
        else:
            if event.nonfinite is not None:
                self._nonfinite_answers.append(event.nonfinite)
            else:
                self._faulty_machines.append(machine)
            self._responders.add(machine)
            self._apply(machine, Cause.WRONG)

    def _apply(self, machine: int, cause: Cause) -> None:
        """Change the state of a machine, and apply the consequence."""
        old_state = self._states.get(machine, State.ABSENT)
        state, consequence = transition(cause, old_state)
        self._states[machine] = state
        if old_state in PENDING_STATES and state not in PENDING_STATES:
            self._pending_requests.pop(machine, None)
        if state in (State.IDLE, State.ABSENT):
            self._request_times.pop(machine, None)
        has_answered = machine in self._responders
        if state is State.ABSENT:
            self._responders.discard(machine)
        if self._ledger is None:
            return
        if consequence is Consequence.OFFER:
            self._has_new_helper = True
        elif consequence is Consequence.SHARE:
            self._ledger.release(machine, may_answer=True)
        elif consequence in (Consequence.REASSIGN, Consequence.EXCLUDE):
            self._ledger.release(machine)
        elif consequence is Consequence.DROP:
            self._ledger.drop(machine)
        if consequence is Consequence.REASSIGN:
            self._exclusions.pop(machine, None)  # it is already unavailable
        elif consequence is Consequence.EXCLUDE:
            self._exclusions[machine] = MachineLost
        # Exclude a faulty machine only if its current process has answered.
        elif consequence is Consequence.DROP and has_answered:
            self._exclusions[machine] = MachineExcluded

    # Instructions.

    def instructions(self, now: float) -> list[Instruction]:
        """Return the current instructions, in order.

        Call again until the result has a `Done`, `StepFailed`, `StartStep` or `WaitUntil`.
        """
        if self._failure is not None:
            return [self._failure]
        if self._ledger is None:
            return self._begin_or_wait(now)
        # A change of the ledger after `is_done` must queue an instruction: the driver then calls
        # this method again, and `is_done` is tested again.
        queue: list[Instruction] = [Exclude(n, event) for n, event in self._exclusions.items()]
        self._exclusions = {}
        queue += self._ledger.instructions()
        if self._ledger.is_done:
            return queue or [Done()]
        queue += self._check_timeouts(now)
        queue += self._make_requests(self._ledger)
        queue += self._check_shortage(self._ledger.may_have_unassigned_work, now)
        return queue or [self._wait_or_fail(self._ledger, now)]

    def _begin_or_wait(self, now: float) -> list[Instruction]:
        instructions = self._check_timeouts(now)
        if instructions:
            return [*instructions, WaitUntil(now)]
        idle_machines = self._idle_machines()
        if idle_machines and not self._count_missing(idle_machines):
            return [StartStep(idle_machines)]
        adopted = self._check_shortage(True, now)
        if adopted:
            return adopted
        if (
            self._busy_machines()
            or self._expected.opening
            or self._expected.vacant
            or self._expects_adoption
        ):
            return [WaitUntil(self._next_timeout())]
        return [StepFailed(TooFewMachines(idle_machines))]

    def _make_requests(self, ledger: Ledger) -> list[Instruction]:
        """Reassign missing answers, and return requests for idle machines."""
        if ledger.may_have_unassigned_work or self._has_new_helper:
            self._has_new_helper = False
            ledger.reassign(self._helpers(), self._idle_machines())
        requests: list[Instruction] = []
        for machine in self._idle_machines() if ledger.assigned_machines else ():
            request = ledger.next_request(machine)
            if request is not None:
                self._states[machine] = State.COMPUTING
                self._pending_requests[machine] = request
                requests.append(request)
        return requests

    def _wait_or_fail(self, ledger: Ledger, now: float) -> Instruction:
        """Return an instruction to wait, or to resolve a dispute, or the failure of the step."""
        unready = self._expected.opening | self._busy_machines()
        if self._pending_requests or unready & self._listed_machines:
            return WaitUntil(self._next_timeout())
        conclusion = ledger.conclude_dispute()
        if isinstance(conclusion, IdentifyFaults):
            return conclusion
        if self._expects_adoption:
            return WaitUntil(self._next_timeout())
        if self._waits_for_joins and self._expected.vacant & self._listed_machines:
            if conclusion is None:
                return WaitUntil(self._next_timeout())
            if self._dispute_start is None:
                self._dispute_start = now
            dispute_end = self._dispute_start + DISPUTE_SECONDS
            if now < dispute_end:
                return WaitUntil(dispute_end)
        if self._nonfinite_answers:
            return StepFailed(self._nonfinite_answers[0])
        if conclusion is not None:
            return StepFailed(conclusion)
        if self._faulty_machines:
            return StepFailed(FaultsIdentified(tuple(self._faulty_machines)))
        return StepFailed(TooFewMachines(self._helpers()))

    # Machines.

    def _idle_machines(self) -> tuple[int, ...]:
        candidates = self._listed_machines - self._expected.opening
        return tuple(n for n in sorted(candidates) if self._states.get(n) is State.IDLE)

    def _busy_machines(self) -> set[int]:
        return {n for n, state in self._states.items() if state is State.BUSY}

    def _helpers(self) -> tuple[int, ...]:
        """Return the machines that may compute missing answers."""
        computing = {n for n, state in self._states.items() if state is State.COMPUTING}
        return tuple(sorted(computing.union(self._idle_machines())))

    def _remaining_machines(self) -> set[int]:
        """Return the listed machines that are present, or opening shards and not adoptable yet."""
        present = {n for n, state in self._states.items() if state is not State.ABSENT}
        opening = self._expected.opening - self._expected.adoptable
        return (present | opening).intersection(self._listed_machines)

    # The clock.

    def _check_timeouts(self, now: float) -> list[Instruction]:
        """Apply expired time limits, and return instructions for late and unresponsive ones."""
        seconds = seconds_until_late(self._deadline, self._answer_seconds, self._predicted_seconds)
        self.time_limit = seconds or self.time_limit
        limits = {
            Cause.DEADLINE: float("inf") if seconds is None else seconds,
            Cause.UNRESPONSIVE: seconds_until_unresponsive(self._deadline, self.time_limit),
        }
        if limits != self._time_limits:
            self._time_limits = limits
            self._shortest_limits = {
                state: min(limits[cause] for cause in causes)
                for state, causes in TIMED_CAUSES.items()
            }
        instructions: list[Instruction] = []
        if now <= min(self._request_times.values(), default=now) + min(self._time_limits.values()):
            return instructions
        for machine, request_time in sorted(self._request_times.items()):
            silence = now - request_time
            for cause in TIMED_CAUSES.get(self._states[machine], ()):
                if silence > self._time_limits[cause]:
                    self._apply(machine, cause)
                    is_late = cause is Cause.DEADLINE
                    instructions.append(
                        MarkLate(machine) if is_late else MarkUnresponsive(machine, silence)
                    )
        return instructions

    def _check_shortage(self, may_have_unassigned_work: bool, now: float) -> list[Instruction]:
        """Return an instruction to adopt a machine if a shortage of machines lasts too long."""
        remaining = self._remaining_machines()
        if not may_have_unassigned_work or not self._count_missing(sorted(remaining)):
            self._shortage_start = float("inf")
            return []
        self._shortage_start = min(self._shortage_start, now)
        if now < self._adoption_due():
            return []
        candidates = self._expected.adoptable & self._listed_machines
        shortages = {n: self._count_missing(sorted(remaining | {n})) for n in candidates}
        return [Adopt(min(candidates, key=lambda n: (shortages[n], n)))]

    @property
    def _expects_adoption(self) -> bool:
        return self._adoption_due() < float("inf")

    def _adoption_due(self) -> float:
        """Return the time at which a host adopts a machine if the shortage lasts until then."""
        candidates = self._expected.adoptable & self._listed_machines
        return self._shortage_start + self._adopt_after if candidates else float("inf")

    def _next_timeout(self) -> float:
        """Return the time at which instructions change without an event."""
        never = float("inf")
        expiries = [
            request_time + self._shortest_limits.get(self._states[machine], never)
            for machine, request_time in self._request_times.items()
        ]
        return min(self._adoption_due(), min(expiries, default=never)) + WAIT_MARGIN
