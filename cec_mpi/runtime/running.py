"""A step by messages on its way: jobs are given, answered, given up and given to others."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.answers import RowAnswers, replacement
from cec_mpi.core.replan import replan
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.exchange import Answers
from cec_mpi.runtime.jobs import Answered, GivenUp, Intervals, Job, Joined, Left, Lost
from cec_mpi.runtime.master import Buffers, Multiplied
from cec_mpi.runtime.step import CannotEnd, Step
from cec_mpi.runtime.waiting import Patience

if TYPE_CHECKING:
    from cec_mpi.runtime.resilient import ResilientMaster

__all__ = ["AdjointRun", "ForwardRun"]

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


class Run:
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

    def first_jobs(self) -> None:
        """Give the jobs of the plan."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Whether the result is there."""
        raise NotImplementedError

    def take(self, job: Job) -> None:
        """Use an answer."""
        raise NotImplementedError

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine."""
        raise NotImplementedError

    def hand_on(self) -> None:
        """Give what is missing to others.

        Raises
        ------
        InfeasibleError
            There are too few.
        """
        raise NotImplementedError

    def next_job(self, machine: int) -> None:
        """Give a machine that has answered what else was put aside for it."""

    def cannot_end(self) -> None:
        """Say why there are too few machines, if it is another reason than losses."""

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
        if job.machine in self.ready():
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
            # Machines that are late may answer after all, and spares may join.
            if self.outstanding or set(self.hub.joining()) & self._up():
                return
            self.cannot_end()
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


class ForwardRun(Run):
    """X W: any L answers to a row will do."""

    def __init__(
        self, master: ResilientMaster, step: Step, shared: NDArray[Any], answers: RowAnswers
    ) -> None:
        super().__init__(master, step)
        self._shared = shared
        self._answers = answers
        self._accused: set[int] = set()
        self._aside: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def first_jobs(self) -> None:
        """Give the jobs of the plan."""
        planned = self.master.intervals_of(self.step.plan)
        for n, intervals in planned.items():
            for start, stop in intervals:
                self._answers.expect(n, start, stop)
        missing = self._answers.missing(planned)  # rows to be compared
        if missing:
            more = {n: list(intervals) for n, intervals in planned.items()}
            for share in replan(missing, self.master.planned_with):
                self._answers.expect(share.machine, share.start, share.stop)
                more[share.machine].append((share.start, share.stop))
            planned = {n: _merged(intervals) for n, intervals in more.items()}
        for n, intervals in planned.items():
            if intervals:
                self.ask(n, intervals, self._shared)

    def is_done(self) -> bool:
        """Whether the result is there."""
        return not self._answers.undecoded

    def take(self, job: Job) -> None:
        """Use an answer."""
        with self.step.timed("code"):
            position = 0
            for start, stop in job.intervals:
                size = (stop - start) * job.product.columns
                self._answers.give(job.machine, start, stop, job.values[position : position + size])
                position += size
        for machine in sorted(self._answers.accused - self._accused):
            log.error("machine %d answered wrong numbers in step %d", machine, self.step.number)
            self.step.events.append({"wrong": machine})
        self._accused = set(self._answers.accused)
        if self._answers.missing(()):
            self._hand_on()

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine."""
        self._answers.give_up(machine)
        self._aside.pop(machine, None)

    def hand_on(self) -> None:
        """Give what is missing to others."""
        missing = self._answers.missing(self.helpers())
        shares = replan(missing, self.master.planned_with)
        for share in shares:
            self._answers.expect(share.machine, share.start, share.stop)
            self._aside[share.machine].append((share.start, share.stop))
        for machine in self.ready() & set(self._aside):
            self.next_job(machine)

    def cannot_end(self) -> None:
        """Name rows whose answers disagree."""
        doubtful = self._answers.doubtful()
        if doubtful:
            start, stop, machines = doubtful[0]
            more = f" (and {len(doubtful) - 1} more such places)" if len(doubtful) > 1 else ""
            raise MachineError(
                f"step {self.step.number} is refused: the answers of machines "
                f"{', '.join(map(str, machines))} to rows {start}..{stop - 1} of their shards "
                f"disagree{more}, and no further machine can tell which of them is wrong"
            )

    def next_job(self, machine: int) -> None:
        """Give a machine what was put aside for it."""
        rows = _merged(self._aside.pop(machine, ()))
        if rows:
            self.ask(machine, rows, self._shared)


def _merged(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The same rows in as few intervals as possible, ascending."""
    cuts = sorted(intervals)
    merged = cuts[:1]
    for _, (start, stop) in pairwise(cuts):
        if start == merged[-1][1]:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((start, stop))
    return tuple(merged)


@dataclass(eq=False)
class _Term:
    """A part of the sum X' V: some rows of one shard, each with its coefficients.

    Its value comes from its machine, or from others that it was made of: whichever is first.
    """

    machine: int
    intervals: Intervals
    coefficients: NDArray[Any]
    stands_in_for: _Term | None = None
    made_of: list[_Term] = field(default_factory=list)
    value: NDArray[Any] | None = None
    lost: bool = False  # its machine will not answer

    @property
    def is_known(self) -> bool:
        return self.value is not None or (
            bool(self.made_of) and all(term.is_known for term in self.made_of)
        )

    @property
    def is_wanted(self) -> bool:
        """Whether neither it nor what it stands in for is known."""
        above = self.stands_in_for
        return not self.is_known and (above is None or above.is_wanted)

    def add_to(self, total: NDArray[np.float64]) -> None:
        """Add its value."""
        if self.value is not None:
            total += self.value
        else:
            for term in self.made_of:
                term.add_to(total)


class AdjointRun(Run):
    """X' V: every term is needed, and one that is missing is made of L others.

    ``shard_lost[rows]' u`` is the sum of ``shard_m[rows]' (c_m u)`` over L other machines m
    (see `replacement`).
    """

    def __init__(
        self, master: ResilientMaster, step: Step, coded: NDArray[Any], columns: int
    ) -> None:
        super().__init__(master, step)
        self._coded = coded
        self._size = columns * step.product.columns
        self._terms: list[_Term] = []  # of the plan
        self._asked: dict[Job, _Term] = {}
        self._aside: dict[int, list[_Term]] = defaultdict(list)
        self._missing: list[_Term] = []  # to be had from others

    def first_jobs(self) -> None:
        """Give the jobs of the plan."""
        k = self.step.product.columns
        position = 0
        for n, intervals in self.master.intervals_of(self.step.plan).items():
            size = sum(stop - start for start, stop in intervals) * k
            if size:
                self._terms.append(_Term(n, intervals, self._coded[position : position + size]))
                self._give(self._terms[-1])
            position += size

    def is_done(self) -> bool:
        """Whether all terms are known."""
        return all(term.is_known for term in self._terms)

    def take(self, job: Job) -> None:
        """Use an answer, a late one too."""
        self._asked.pop(job).value = job.values

    def drop(self, machine: int) -> None:
        """Have the terms of a machine from others."""
        is_late = machine in self.outstanding
        for job, term in list(self._asked.items()):
            if term.machine == machine and term.is_wanted:
                if not is_late:
                    del self._asked[job]
                    term.lost = True
                elif term.stands_in_for is not None and not term.stands_in_for.lost:
                    continue  # as late as what it stands in for: more work would not help
                if not term.made_of:
                    self._missing.append(term)
        self._missing += [term for term in self._aside.pop(machine, ()) if term.is_wanted]

    def hand_on(self) -> None:
        """Give what is missing to others, or to its own machine if that is there again."""
        while self._missing:
            term = self._missing[-1]
            if term.machine in self.helpers() and term.machine not in self.outstanding:
                self._aside[term.machine].append(term)
            elif term.is_wanted:
                self._make_of_others(term)
            self._missing.pop()
        for machine in self.ready() & set(self._aside):
            self.next_job(machine)

    def next_job(self, machine: int) -> None:
        """Give a machine the next part that is still wanted."""
        terms = self._aside.get(machine, [])
        while terms and machine not in self.outstanding:
            term = terms.pop(0)
            if term.is_wanted:
                self._give(term)

    def result(self) -> NDArray[Any]:
        """The sum of all terms, in the order of machines."""
        total = np.zeros(self._size)
        for term in self._terms:
            term.add_to(total)
        return total

    def _give(self, term: _Term) -> None:
        self.ask(term.machine, term.intervals, term.coefficients)
        self._asked[self.outstanding[term.machine]] = term

    def _make_of_others(self, term: _Term) -> None:
        code, dtype = self.master.manifest.code, self._coded.dtype
        others = self._others(term.machine)
        for machine, weight in zip(others, replacement(code, term.machine, others), strict=True):
            part = (weight * term.coefficients).astype(dtype, copy=False)
            made = _Term(machine, term.intervals, part, stands_in_for=term)
            term.made_of.append(made)
            self._aside[machine].append(made)

    def _others(self, machine: int) -> tuple[int, ...]:
        """The L fastest machines that can stand in for one."""
        needed, speeds = self.master.manifest.code.recovery, self.master.planned_with
        able = sorted(self.helpers() - {machine}, key=lambda n: -speeds[n - 1])
        if len(able) < needed:
            raise InfeasibleError(
                f"step {self.step.number} has lost machine {machine}: its part can be made with "
                f"{needed} others, and {len(able)} are left"
            )
        return tuple(sorted(able[:needed]))
