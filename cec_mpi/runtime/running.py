"""A step by messages on its way: jobs are given, answered, given up and given to others."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.buffers import Buffers
from cec_mpi.runtime.exchange import Answers
from cec_mpi.runtime.jobs import Answered, GivenUp, Intervals, Job, Joined, Left, Lost
from cec_mpi.runtime.master import Multiplied
from cec_mpi.runtime.step import CannotEnd, Step
from cec_mpi.runtime.waiting import Patience

if TYPE_CHECKING:
    from cec_mpi.runtime.resilient import ResilientMaster

__all__ = ["Run"]

log = logging.getLogger(__name__)


@dataclass
class _Totals:
    """What machines did in a step, over all their jobs."""

    rows: NDArray[np.int64]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def of(cls, machines: int) -> _Totals:
        seconds, load_seconds, load_bytes = np.zeros((3, machines))
        return cls(np.zeros(machines, np.int64), seconds, load_seconds, load_bytes)

    def add(self, job: Job) -> None:
        n = job.machine - 1
        self.rows[n] += job.count
        self.seconds[n] += job.seconds
        self.load_seconds[n] += job.load_seconds
        self.load_bytes[n] += job.load_bytes
        self.jobs.append(job)


class Run(ABC):
    """A step on its way: jobs are given, answered, given up and given to others."""

    def __init__(self, master: ResilientMaster, step: Step) -> None:
        self.master = master
        self.step = step
        self.end = master.end
        self.hub = master.end.hub
        self.machines = set(step.moment.available)
        self.outstanding: dict[int, Job] = {}  # of this step, by machine
        self.given_up: set[int] = set()  # machines, for this step
        self.totals = _Totals.of(master.manifest.code.machines)
        self._answered_after: list[float] = []
        self._plan_seconds: float | None = None
        self._begin = time.monotonic()

    # What differs between X W and X' V.

    @abstractmethod
    def first_jobs(self) -> None:
        """Give the jobs of the plan."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the result is there."""

    @abstractmethod
    def take(self, job: Job) -> None:
        """Use an answer."""

    @abstractmethod
    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine."""

    @abstractmethod
    def hand_on(self) -> None:
        """Give what is missing to others.

        Raises
        ------
        InfeasibleError
            There are too few.
        """

    @abstractmethod
    def next_job(self, machine: int) -> None:
        """Give a machine that has answered what else was put aside for it."""

    def disagreement(self) -> MachineError | None:
        """Why there are too few machines, if it is another reason than losses."""
        return None

    # What does not.

    def to_its_end(self, buffers: Buffers) -> None:
        """Give jobs and take answers until the result is there.

        Parameters
        ----------
        buffers : Buffers
            With what is sent; others take its place where a machine may not have all of it.
        """
        try:
            self._go()
        finally:
            if self.outstanding:
                buffers.renew()

    def _go(self) -> None:
        step = self.step
        kind, rows = step.product, step.plan.assignment.counts(len(self.totals.rows))
        self._plan_seconds = self.master.speeds.predict(kind, rows)
        self.master.begun(step)
        with step.timed("announce"):
            self.first_jobs()
        with step.timed("collect"):
            patience = Patience()
            while not self.is_done():
                events = self.hub.events()
                for event in events:
                    self._handle(event)
                if events:
                    patience = Patience()
                    continue
                if not self.outstanding and not self.hub.joining():
                    self._hand_on()
                    if not self.outstanding:
                        raise RuntimeError(f"step {step.number} waits for nobody")
                self._look_at_the_clock()
                self.master.gate()
                patience.pause()

    def ask(self, machine: int, intervals: Intervals, content: NDArray[Any]) -> None:
        """Give a job to an idle machine."""
        step = self.step
        job = self.end.ask(machine, step.number, step.product, intervals, content)
        self.outstanding[machine] = job
        for name, size in (("announce", 16 * len(intervals)), ("share", content.nbytes)):
            step.bytes[name] = step.bytes.get(name, 0) + size

    def ready(self) -> set[int]:
        """Machines that can be given a job: idle, and their last answer is taken."""
        return set(self.hub.idle()) - set(self.outstanding)

    def helpers(self) -> set[int]:
        """Machines that may be asked for what others do not answer."""
        usable = set(self.hub.idle()) | set(self.outstanding)
        return (self.machines & usable) - self.given_up

    def collected(self, condition: float, gain: float) -> Multiplied:
        """What the machines did, for the records; their buffers can be used again."""
        totals = self.totals
        self.step.bytes["collect"] = sum(job.values.nbytes for job in totals.jobs)
        self.end.release(totals.jobs)
        answers = Answers(self.result(), totals.seconds, totals.load_seconds, totals.load_bytes, [])
        return Multiplied(answers, condition, gain, totals.rows.tolist())

    def result(self) -> NDArray[Any]:
        """The sum of the answers to X' V; nothing for X W, which is decoded already."""
        return np.empty(0)

    def _handle(self, event: object) -> None:
        master, step = self.master, self.step
        master.note(step.events, event)
        if isinstance(event, Lost):
            master.check_loss(event, f"in step {step.number}")
            self.outstanding.pop(event.machine, None)
            self._without(event.machine)
        elif isinstance(event, GivenUp):
            self.outstanding.pop(event.machine, None)
            self._without(event.machine)
        elif isinstance(event, Left):
            self._without(event.machine)
        elif isinstance(event, Joined):
            if event.machine in self._up():
                self.machines.add(event.machine)
                self.given_up.discard(event.machine)
            self._hand_on()
        elif isinstance(event, Answered):
            self._answer(event.job)

    def _answer(self, job: Job) -> None:
        if job.step != self.step.number or self.outstanding.get(job.machine) is not job:
            return  # to an earlier step: nobody waits for it
        del self.outstanding[job.machine]
        self._answered_after.append(time.monotonic() - self._begin)
        if job.failed:
            self._failed(job.machine)
            return
        if self.master.checker is None or job.product.adjoint:
            self.master.check_finite(job.machine, self.step, job.values)
        self.totals.add(job)
        self.take(job)
        if job.machine in self.given_up:
            self.given_up.discard(job.machine)
        if self.hub.is_idle(job.machine):
            self.next_job(job.machine)

    def _failed(self, machine: int) -> None:
        text = self.hub.report(machine)
        if not self.hub.continues:
            raise MachineError(f"step {self.step.number} failed on machine {machine}: {text}")
        self.hub.dismiss(machine, text)

    def _without(self, machine: int) -> None:
        self.given_up.add(machine)
        self.drop(machine)
        self._hand_on()

    def _hand_on(self) -> None:
        try:
            self.hand_on()
        except InfeasibleError:
            # Machines that are late may answer after all, and others may join.
            self.hub.start_processes(soon=True)
            if self.outstanding or set(self.hub.joining()) & self._up():
                return
            disagreement = self.disagreement()
            if disagreement is not None:
                raise disagreement from None
            left = sorted(self.helpers())
            raise CannotEnd(
                f"step {self.step.number} cannot end: {len(left)} of its machines are left "
                f"({', '.join(map(str, left)) or 'none'}), and each row needs "
                f"{self.master.manifest.code.recovery}"
            ) from None

    def _up(self) -> set[int]:
        return self.master.mask

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        allowed = self._allowed()
        late = [
            n
            for n, job in self.outstanding.items()
            if allowed is not None and now - job.begun > allowed and n not in self.given_up
        ]
        for n in late:
            log.warning("machine %d is late in step %d", n, self.step.number)
            self.step.events.append({"late": n})
            self.given_up.add(n)
            self.drop(n)
        if late:
            self._hand_on()
        lost_after = self.master.lost_after(allowed)
        for n, job in list(self.outstanding.items()):
            if now - job.begun > lost_after:
                self.hub.give_up(n, f"no answer for {now - job.begun:.1f} s")

    def _allowed(self) -> float | None:
        """Seconds that a machine has for its answer, if that is limited and known by now."""
        deadline = self.master.deadline
        if deadline is None:
            return None
        expected = [median(self._answered_after)] if self._answered_after else []
        if self._plan_seconds is not None:
            expected.append(self._plan_seconds)
        return deadline.allowed(max(expected, default=None))
