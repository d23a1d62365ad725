"""An elastic step in flight: jobs are sent, answered, given up, and sent to other machines."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.finite import NotFinite, Unusable
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.master.step import CannotEnd, Multiplied, Step
from cec_mpi.processes.waiting import RESOLUTION, Patience, never
from cec_mpi.records.events import kind_and_machine
from cec_mpi.roster import Excluded, GivenUp, Gone, Joined, Lost, State
from cec_mpi.times import ANSWER_SLEEP
from cec_mpi.wire.jobs import Answered, Answers, Event, Intervals, Job, credible

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne

log = logging.getLogger(__name__)

_MISSING = {"lost", "given up", "late", "left", "excluded"}  # events: it does not answer


class StepInFlight(ABC):
    """A step in flight: which machines have jobs, which have answered, and what is missing.

    Parameters
    ----------
    master : MadeOneByOne
    step : Step

    Attributes
    ----------
    machines : set of int
        Machines that may take part in the step.
    outstanding : dict of int to Job
        Jobs that have not been answered.
    refused : dict of int to Unusable
        Machines with an answer that is not finite.
    wrong : set of int
        Machines whose answers are not used any more.
    """

    def __init__(self, master: MadeOneByOne, step: Step) -> None:
        self.master = master
        self.step = step
        self.end = master.end
        self.hub = master.end.hub
        self.roster = self.hub.roster
        self.machines = set(step.available)
        self.outstanding: dict[int, Job] = {}
        self.refused: dict[int, Unusable] = {}
        self.wrong: set[int] = set()
        self._not_finite = NotFinite(step.product.columns, step.product.adjoint)
        machines = master.steps.placement.machines
        self._rows = np.zeros(machines, np.int64)
        self._reported = np.zeros((3, machines))  # seconds, seconds of reading, bytes read
        self.answered: list[Job] = []
        self._answered_after: list[float] = []
        self._planned: set[int] = set()  # machines with a job of the plan
        self._used: list[tuple[float, int]] = []  # seconds and machine of each answer
        self._computed: dict[int, float] = {}  # seconds until the first answer of each machine
        self._plan_seconds: float | None = None
        self._due, self._is_due_known = 0.0, False  # when the clock must be looked at
        self._clock = self.hub.clock
        self._begin = self._clock.monotonic()

    # What differs between X W and X' V.

    @abstractmethod
    def first_jobs(self) -> None:
        """Send the jobs of the plan."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the result is complete."""

    @abstractmethod
    def take(self, job: Job) -> None:
        """Use an answer."""

    def use_the_time(self) -> bool:
        """Do some work while the step waits; whether there was any."""
        return False

    @abstractmethod
    def drop(self, machine: int) -> None:
        """Expect no more answers of a machine."""

    def refuse(self, machine: int) -> None:
        """Do not use a machine whose answer is not finite."""
        self.drop(machine)

    @abstractmethod
    def hand_on(self) -> None:
        """Send what is missing to other machines.

        Raises
        ------
        InfeasibleError
            Too few machines are left.
        """

    @abstractmethod
    def next_job(self, machine: int) -> None:
        """Send the next job to a machine that has answered."""

    def disagreement(self) -> MachineError | None:
        """Return why too few machines are left, if losses are not the reason."""
        return None

    # Who is asked.

    def ask(self, machine: int, intervals: Intervals, content: NDArray[Any]) -> None:
        """Send a job to an idle machine."""
        step = self.step
        job = self.end.ask(machine, step.number, step.product, intervals, content)
        if not self.outstanding:
            self._is_due_known = False
        self.outstanding[job.machine] = job
        step.count(announce=16 * len(intervals), share=content.nbytes)

    def ready(self) -> set[int]:
        """Return the machines that can get a job: idle ones whose last answer is taken."""
        return self.roster.machines(State.IDLE) - set(self.outstanding)

    def helpers(self) -> set[int]:
        """Return the machines that may compute what others do not answer."""
        computing = self.roster.machines(State.COMPUTING) & set(self.outstanding)
        usable = self.roster.machines(State.IDLE) | computing
        return (self.machines & usable) - set(self.refused) - self.wrong

    # The course of a step.

    def to_its_end(self) -> None:
        """Send jobs and take answers until the result is complete."""
        step = self.step
        kind, rows = step.product, step.plan.assignment.counts(len(self._rows))
        self._plan_seconds = self.master.steps.speeds.predict(kind, step.plan.amounts(rows))
        self.master.steps.begin(step)
        with step.timed("announce"):
            self.first_jobs()
        self._planned = set(self.outstanding)
        with step.timed("collect"):
            patience = Patience(longest=ANSWER_SLEEP, rhythm=self.master.rhythm, clock=self._clock)
            while not self.is_done():
                something = False
                for event in self.hub.events():
                    self._handle(event)
                    something = True
                if something:
                    patience.again()
                    continue
                if not self.outstanding and not self._joining() and not self._busy_before():
                    self._hand_on()
                    if self.is_done():
                        break
                    if not self.outstanding and not self.hub.awaited():
                        raise RuntimeError(f"step {step.number} waits for nobody")
                self._look_at_the_clock()
                if self.use_the_time():
                    continue
                self.master.steps.schedule.gate()
                patience.pause(lambda: self._due)
            patience.over()
        step.unanswered = sorted(self.outstanding)
        step.delays = self._delays(self._clock.monotonic() - self._begin)

    def _delays(self, ended: float) -> dict[int, float]:
        """Return the machines that delayed the step, and by how much."""
        troubled = set()
        for kind, machine in map(kind_and_machine, self.step.events):
            is_missing = kind == "late" or (kind in _MISSING and machine not in self._computed)
            if machine in self._planned and (is_missing or kind == "wrong"):
                troubled.add(machine)
        if troubled:
            others = (self._computed.get(n, 0.0) for n in self._planned - troubled)
            seconds = (ended - max(others, default=0.0)) / len(troubled)
            return dict.fromkeys(sorted(troubled), seconds)
        if not self._used:
            return {}
        *_, (before, _), (after, last) = (0.0, 0), *self._used
        return {last: after - before}

    def collected(self, condition: float) -> Multiplied:
        """Return the result and what the machines did; releases their buffers."""
        self.step.count(collect=sum(job.values.nbytes for job in self.answered))
        self.end.release(self.answered)
        seconds, load_seconds, load_bytes = credible(self._reported)
        answers = Answers(self.result(), seconds, load_seconds, load_bytes, [])
        return Multiplied(answers, condition, self._rows.tolist())

    def result(self) -> NDArray[Any]:
        """Return the sum of the answers to X' V; empty for X W, which is decoded already."""
        return np.empty(0)

    def _handle(self, event: Event) -> None:
        master, step = self.master, self.step
        master.note(step.events, event)
        if isinstance(event, Lost | GivenUp | Excluded):
            self.outstanding.pop(event.machine, None)
        if isinstance(event, Gone):
            self.drop(event.machine)
            self._hand_on()
        elif isinstance(event, Joined):
            if event.machine in self.master.up:
                self.machines.add(event.machine)
            self._hand_on()
        elif isinstance(event, Answered):
            self._answer(event.job)

    def _answer(self, job: Job) -> None:
        if job.step != self.step.number or self.outstanding.get(job.machine) is not job:
            if job.machine in self.master.up - self.machines:  # it answered too late for the plan
                self.machines.add(job.machine)
                self._hand_on()
            return
        del self.outstanding[job.machine]
        self._answered_after.append(self._clock.monotonic() - self._begin)
        if job.failed:
            if job.reported.damaged == 1:
                self.master.note_damage(job.machine)
            self._failed(job.machine)
            return
        unusable = self._not_finite.take(job.machine, job.intervals, job.values)
        if unusable is not None:
            self._refuse(unusable)
            return
        self._count(job)
        self.take(job)
        if self.roster.state_of(job.machine) is State.IDLE:
            self.next_job(job.machine)

    def _count(self, job: Job) -> None:
        """Count an answer for the records."""
        n, told = job.machine - 1, job.reported
        self._rows[n] += job.count
        # At most the time since the job was sent; invalid numbers are replaced later.
        seconds = min(told.seconds, self._clock.monotonic() - job.begun)
        self._reported[:, n] += seconds, told.load_seconds, told.load_bytes
        self.answered.append(job)
        after = self._clock.monotonic() - self._begin
        self._used.append((after, job.machine))
        computed = job.begun - self._begin + told.load_seconds + seconds
        self._computed.setdefault(job.machine, computed if 0 <= computed <= after else after)

    def _refuse(self, found: Unusable) -> None:
        """Get the rows of an answer that is not finite from other machines."""
        if found.other is not None:
            raise self.step.both_wrong(found)
        number, reason = found.machine, self.step.answered(found)
        self.refused[number] = found
        self.exclude(number, reason)
        self.refuse(number)
        self._hand_on()

    def exclude(self, machine: int, reason: str = "answered wrong numbers") -> None:
        """Use nothing of a machine that was wrong, and make it leave."""
        log.error("machine %d %s in step %d", machine, reason, self.step.number)
        self.step.note_wrong(machine, "" if machine not in self.refused else reason)
        self.wrong.add(machine)
        self.hub.exclude(machine, f"wrong in step {self.step.number}", Excluded)

    def _failed(self, machine: int) -> None:
        self.hub.exclude(machine, self.hub.report(machine), Lost)

    def _hand_on(self) -> None:
        try:
            self.hand_on()
        except InfeasibleError:
            # Machines that are late may answer after all, and others may join.
            if self.outstanding or self._joining() & self.master.up or self._busy_before():
                return
            # A machine without a process may never join: a step waits for it only if no later tick
            # can bring enough machines.
            waits = not self.master.steps.schedule.waits
            if waits and self.hub.awaited() & self.master.up:
                return
            if self.refused:
                first = next(iter(self.refused.values()))
                raise self.step.cannot_replace(first) from None
            disagreement = self.disagreement()
            if disagreement is not None:
                raise disagreement from None
            raise self.too_few(sorted(self.helpers())) from None

    def too_few(self, left: list[int]) -> CannotEnd:
        """Return the error for a step of which too few machines are left."""
        needed = self.master.manifest.code.recovery
        needed += 0 if self.step.product.adjoint else self.master.spare
        return CannotEnd(
            f"step {self.step.number} cannot end: {len(left)} of its machines are left "
            f"({', '.join(map(str, left)) or 'none'}), and "
            f"{self.master.steps.placement.needs(needed, left)}"
            f"{self._last_loss()}"
        )

    def _last_loss(self) -> str:
        lost = [event for event in self.step.events if "lost" in event]
        return f"; lost last: machine {lost[-1]['lost']}, {lost[-1]['reason']}" if lost else ""

    def _joining(self) -> set[int]:
        """Return the machines whose processes open their shards."""
        return self.roster.machines(State.JOINING)

    def _busy_before(self) -> set[int]:
        """Return the machines that still compute for an earlier step, and may help afterwards."""
        return self.hub.busy().keys() & self.master.up - self.machines

    def _look_at_the_clock(self) -> None:
        now = self._clock.monotonic()
        if now < self._due and self._is_due_known:
            return
        allowed = self._allowed()
        late = [
            n
            for n, job in self.outstanding.items()
            if allowed is not None
            and now - job.begun > allowed
            and self.roster.state_of(n) is State.COMPUTING
        ]
        for n in late:
            log.warning("machine %d is late in step %d", n, self.step.number)
            self.step.events.append({"late": n})
            self.hub.late(n)
            self.drop(n)
        if late:
            self._hand_on()
        self.master.give_up_silent(allowed)
        self._due, self._is_due_known = self._next_look(allowed), allowed is not None

    def _next_look(self, allowed: float | None) -> float:
        """Return when a machine will be late or given up, unless one answers before.

        It can only become later: answers come one after the other, so their median grows.
        """
        found = self.master.next_giving_up(allowed)
        if allowed is not None:
            computing = self.roster.machines(State.COMPUTING)
            jobs = (job for n, job in self.outstanding.items() if n in computing)
            begun = min((job.begun for job in jobs), default=never())
            found = min(found, begun + allowed + RESOLUTION)
        return found

    def _allowed(self) -> float | None:
        """Return the seconds that a machine has for its answer; None if that is not limited yet."""
        deadline = self.master.deadline
        if deadline is None:
            return None
        expected = [median(self._answered_after)] if self._answered_after else []
        if self._plan_seconds is not None:
            expected.append(self._plan_seconds)
        return deadline.allowed(max(expected, default=None))
