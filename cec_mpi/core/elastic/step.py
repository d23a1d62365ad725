"""The state machine of an elastic step.

::

    waiting --Begin--> running --Done--> ended
       |                  |
       +----- Failed -----+

A driver tells it what has happened (`ElasticStep.take`), and then follows its instructions
(`ElasticStep.instructions`) until one of them ends the step or says how long to wait. What an
exception interrupts is forgotten with the object: the next step begins with what the roster says.
A step that is cancelled is forgotten likewise.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.events import (
    Adopt,
    Answered,
    AnswerRejected,
    AvailabilityTick,
    BusyMachineAnswered,
    Compare,
    ComputationFailed,
    Decode,
    Disagreement,
    Done,
    Event,
    Exclude,
    Excluded,
    FaultUndetermined,
    GivenUp,
    GiveUp,
    IdentifyFaulty,
    Instruction,
    Joined,
    Left,
    Lost,
    MachineUnavailable,
    MarkLate,
    Named,
    PendingMachines,
    Request,
    RowsAgree,
    RowsDisagree,
    Sent,
    StartStep,
    StepFailed,
    TooFewMachines,
    WaitUntil,
)
from cec_mpi.core.elastic.losses import (
    ASKED,
    DISPUTE_SECONDS,
    RESOLUTION,
    TIME_LIMITS,
    Cause,
    Consequence,
    Deadline,
    State,
    react,
    seconds_until_given_up,
    seconds_until_late,
)
from cec_mpi.core.elastic.terms import Term

_CAUSES = {
    Lost: Cause.LOST,
    GivenUp: Cause.GIVEN_UP,
    Left: Cause.LEFT,
    Excluded: Cause.EXCLUDED,
    Joined: Cause.JOINED,
}


class Ledger(Protocol):
    """What a step still needs: `RowLedger`, `TermLedger` or `ProbeLedger`."""

    is_lacking: bool

    @property
    def is_done(self) -> bool:
        """Whether the result is complete."""

    @property
    def assigned(self) -> Collection[int]:
        """Machines that are to be asked for something."""

    def next_request(self, machine: int) -> Request | None:
        """Return the next request for an idle machine."""

    def reassign(self, helpers: Collection[int], idle: Collection[int]) -> None:
        """Assign what is missing to helpers, some of them idle; sets `is_lacking`."""

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Do not rely on a machine, whose answer may be used if it is the first."""

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine, and do not use its answers."""

    def answered(self, request: Request, summed: Sequence[Term] = ()) -> None:
        """Note an answer; that to a term may be the sum of several."""

    def judged(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Take the outcome of a comparison."""

    def instructions(self) -> Collection[Compare | IdentifyFaulty | Decode]:
        """Return what is to be compared or decoded."""

    def conclude(self) -> IdentifyFaulty | Disagreement | None:
        """Return what is left to do, or wrong, if nobody else can be asked."""


class ElasticStep:
    """A step whose machines are asked one by one, and may be late, lost or wrong.

    Parameters
    ----------
    machines : mapping of int to State
        States of machines before the step: absent, busy or idle.
    begun : mapping of int to float
        When each busy machine was asked.
    missing : callable
        Returns how many machines a step needs beside these.
    deadline : Deadline or None
        None: no machine is late.
    allowed : float or None
        Seconds that the step before allowed for an answer.
    waits_for_vacant : bool
        Whether a running step waits for processes that may still become machines.
    adopt_after : float
        Seconds for which machines may be too few before hosts carry missing ones.

    Attributes
    ----------
    allowed : float or None
        Seconds that this step allows for an answer, once it is known.
    """

    def __init__(
        self,
        machines: Mapping[int, State],
        begun: Mapping[int, float],
        missing: Callable[[Sequence[int]], int],
        deadline: Deadline | None = None,
        allowed: float | None = None,
        waits_for_vacant: bool = True,
        adopt_after: float = float("inf"),
    ) -> None:
        self._states = dict(machines)
        self._request_times = dict(begun)  # when each machine was asked that has not answered
        self._count_missing = missing
        self._deadline, self.allowed = deadline, allowed
        self._waits_for_vacant, self._adopt_after = waits_for_vacant, adopt_after
        self._limits: dict[Cause, float] = {}  # seconds that machines have now
        self._seconds: dict[State, float] = {}  # the least of these in each state
        self._shortage_start = float("inf")  # when too few machines were left
        self._awaited = PendingMachines()
        self._ledger: Ledger | None = None
        self._listed: frozenset[int] = frozenset()
        self._predicted: float | None = None
        self._start = 0.0
        self._answer_seconds: list[float] = []  # ascending
        self._pending: dict[int, Request] = {}
        self._to_exclude: dict[int, type[Lost | Excluded]] = {}
        self._failed: StepFailed | None = None
        self._has_new_helper = False
        self._disputed_since: float | None = None
        self._responders: set[int] = set()  # machines whose processes have answered
        self._nonfinite_answers: list[NonfiniteAnswer] = []  # answers that are not finite
        self._faulty_machines: list[int] = []  # machines that have answered other wrong numbers

    def begin(
        self, ledger: Ledger, listed: Collection[int], predicted: float | None, now: float
    ) -> None:
        """Begin the step, after `StartStep`.

        Parameters
        ----------
        ledger : Ledger
        listed : collection of int
            Machines that may be asked, whenever they are there.
        predicted : float or None
            Seconds that the plan is predicted to take.
        now : float
        """
        self._ledger, self._listed = ledger, frozenset(listed)
        self._predicted, self._start = predicted, now
        self._has_new_helper = True
        for machine in set(ledger.assigned).difference(self._idle_machines(self._listed)):
            ledger.release(machine)

    @property
    def adopts(self) -> bool:
        """Whether hosts may carry missing machines."""
        return self._adopt_after < float("inf")

    @property
    def pending(self) -> tuple[int, ...]:
        """Machines that have not answered a request of this step."""
        return tuple(sorted(self._pending))

    def is_pending(self, request: Request) -> bool:
        """Whether the answer to a request would be used."""
        return self._pending.get(request.machine) is request

    # Events.

    def take(self, event: Event, now: float) -> None:
        """Take note of what has happened.

        Parameters
        ----------
        event : Event
        now : float
            The time of the clock, in seconds.
        """
        match event:
            case PendingMachines():
                self._awaited = event
            case AvailabilityTick():
                self._listed = event.listed
            case Sent(requests):
                self._request_times |= {request.machine: now for request in requests}
            case Answered() | ComputationFailed() | AnswerRejected():
                if self.is_pending(event.request):
                    insort(self._answer_seconds, now - self._start)
                    self._handle_answer(event)
            case BusyMachineAnswered(machine):
                self._apply(machine, Cause.FREED)
            case MachineUnavailable() | Joined():
                self._apply(event.machine, _CAUSES[type(event)])
            case Named(machines):
                for machine in machines:
                    self._faulty_machines.append(machine)
                    self._apply(machine, Cause.NAMED)
            case RowsAgree() | RowsDisagree() | FaultUndetermined():
                if self._ledger is not None:
                    self._ledger.judged(event)

    def _handle_answer(self, event: Answered | ComputationFailed | AnswerRejected) -> None:
        machine = event.request.machine
        if isinstance(event, Answered):
            assert self._ledger is not None
            self._ledger.answered(event.request, event.summed)
            self._responders.add(machine)
            self._apply(machine, Cause.ANSWERED)
        elif isinstance(event, ComputationFailed):
            self._apply(machine, Cause.FAILED)
        elif event.found is not None and event.found.other is not None:
            self._failed = StepFailed(event.found)
        else:
            if event.found is not None:
                self._nonfinite_answers.append(event.found)
            else:
                self._faulty_machines.append(machine)
            self._responders.add(machine)
            self._apply(machine, Cause.WRONG)

    def _apply(self, machine: int, cause: Cause) -> None:
        """Change the state of a machine, and do what follows."""
        before = self._states.get(machine, State.ABSENT)
        state, consequence = react(cause, before)
        self._states[machine] = state
        if before in ASKED and state not in ASKED:
            self._pending.pop(machine, None)
        if state in (State.IDLE, State.ABSENT):
            self._request_times.pop(machine, None)
        is_known = machine in self._responders
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
            self._to_exclude.pop(machine, None)  # it has gone by itself
        elif consequence is Consequence.EXCLUDE:
            self._to_exclude[machine] = Lost
        elif consequence is Consequence.DROP and is_known:  # not another process of the machine
            self._to_exclude[machine] = Excluded

    # Instructions.

    def instructions(self, now: float) -> list[Instruction]:
        """Return what is to be done now, in this order.

        The last call at this moment returns a `Done`, `StepFailed`, `StartStep` or
        `WaitUntil`. What changes the ledger after `is_done` is read must also give an instruction.
        """
        if self._failed is not None:
            return [self._failed]
        if self._ledger is None:
            return self._begin_or_wait(now)
        queue: list[Instruction] = [Exclude(n, kind) for n, kind in self._to_exclude.items()]
        self._to_exclude = {}
        queue += self._ledger.instructions()
        if self._ledger.is_done:
            return queue or [Done(self.pending)]
        queue += self._check_timeouts(now)
        queue += self._make_requests(self._ledger)
        queue += self._adopt(self._ledger.is_lacking, now)
        return queue or [self._wait_or_fail(self._ledger, now)]

    def _begin_or_wait(self, now: float) -> list[Instruction]:
        silent = self._check_timeouts(now)
        if silent:
            return [*silent, WaitUntil(now)]
        able = self._idle_machines(self._listed)
        if able and not self._count_missing(able):
            return [StartStep(able)]
        adopted = self._adopt(True, now)
        if adopted:
            return adopted
        if (
            self._busy_machines()
            or self._awaited.opening
            or self._awaited.vacant
            or self._can_adopt
        ):
            return [WaitUntil(self._next_timeout())]
        return [StepFailed(TooFewMachines(able))]

    def _make_requests(self, ledger: Ledger) -> list[Instruction]:
        """Return requests for idle machines, after missing work is reassigned."""
        if ledger.is_lacking or self._has_new_helper:
            self._has_new_helper = False
            ledger.reassign(self._helpers(), self._idle_machines(self._listed))
        found: list[Instruction] = []
        for machine in self._idle_machines(self._listed) if ledger.assigned else ():
            request = ledger.next_request(machine)
            if request is not None:
                self._states[machine] = State.COMPUTING
                self._pending[machine] = request
                found.append(request)
        return found

    def _wait_or_fail(self, ledger: Ledger, now: float) -> Instruction:
        """Return how long to wait; or why that is useless, or what to do instead."""
        if self._pending or (self._awaited.opening | self._busy_machines()) & self._listed:
            return WaitUntil(self._next_timeout())
        left = ledger.conclude()
        if isinstance(left, IdentifyFaulty):
            return left
        if self._can_adopt:
            return WaitUntil(self._next_timeout())
        if self._waits_for_vacant and self._awaited.vacant & self._listed:
            if left is None:
                return WaitUntil(self._next_timeout())
            if self._disputed_since is None:
                self._disputed_since = now
            due = self._disputed_since + DISPUTE_SECONDS
            if now < due:
                return WaitUntil(due)
        if self._nonfinite_answers:
            return StepFailed(self._nonfinite_answers[0])
        if left is not None:
            return StepFailed(left)
        if self._faulty_machines:
            return StepFailed(Named(tuple(self._faulty_machines)))
        return StepFailed(TooFewMachines(self._helpers()))

    # Machines.

    def _idle_machines(self, listed: frozenset[int]) -> tuple[int, ...]:
        return tuple(
            n for n in sorted(listed - self._awaited.opening) if self._states.get(n) is State.IDLE
        )

    def _busy_machines(self) -> set[int]:
        return {n for n, state in self._states.items() if state is State.BUSY}

    def _helpers(self) -> tuple[int, ...]:
        """Return the machines that may compute what others do not answer."""
        computing = {n for n, state in self._states.items() if state is State.COMPUTING}
        return tuple(sorted(computing.union(self._idle_machines(self._listed))))

    def _remaining_machines(self) -> set[int]:
        """Return the machines that have not gone, and those that will have opened soon."""
        there = {n for n, state in self._states.items() if state is not State.ABSENT}
        soon = self._awaited.opening - self._awaited.adoptable
        return (there | soon).intersection(self._listed)

    # The clock.

    def _check_timeouts(self, now: float) -> list[Instruction]:
        """Return the machines that are late, or silent for so long that they are given up."""
        allowed = seconds_until_late(self._deadline, self._answer_seconds, self._predicted)
        self.allowed = allowed or self.allowed
        limits = {
            Cause.DEADLINE: float("inf") if allowed is None else allowed,
            Cause.GIVEN_UP: seconds_until_given_up(self._deadline, self.allowed),
        }
        if limits != self._limits:
            self._limits = limits
            self._seconds = {
                state: min(limits[cause] for cause in causes)
                for state, causes in TIME_LIMITS.items()
            }
        found: list[Instruction] = []
        if now <= min(self._request_times.values(), default=now) + min(self._limits.values()):
            return found
        for machine, begun in sorted(self._request_times.items()):
            for cause in TIME_LIMITS.get(self._states[machine], ()):
                if now - begun > self._limits[cause]:
                    self._apply(machine, cause)
                    late = cause is Cause.DEADLINE
                    found.append(MarkLate(machine) if late else GiveUp(machine, now - begun))
        return found

    def _adopt(self, is_lacking: bool, now: float) -> list[Instruction]:
        """Return which machine a host is to carry, if too few have been left for long enough."""
        if not is_lacking or not self._count_missing(sorted(left := self._remaining_machines())):
            self._shortage_start = float("inf")
            return []
        self._shortage_start = min(self._shortage_start, now)
        if now < self._adoption_due():
            return []
        possible = self._awaited.adoptable & self._listed
        return [Adopt(min(possible, key=lambda n: (self._count_missing(sorted(left | {n})), n)))]

    @property
    def _can_adopt(self) -> bool:
        return self._adoption_due() < float("inf")

    def _adoption_due(self) -> float:
        """Return when a host is to carry a machine, unless others join before."""
        is_possible = self._awaited.adoptable & self._listed
        return self._shortage_start + self._adopt_after if is_possible else float("inf")

    def _next_timeout(self) -> float:
        """Return when the clock gives the next instruction."""
        never = float("inf")
        limits = [
            begun + self._seconds.get(self._states[machine], never)
            for machine, begun in self._request_times.items()
        ]
        return min(self._adoption_due(), min(limits, default=never)) + RESOLUTION
