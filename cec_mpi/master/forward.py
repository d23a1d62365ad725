"""X W by messages: the first L answers to each row, whoever gives them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from numpy.typing import NDArray

from cec_mpi.core.plan.replan import replan
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.errors import MachineError
from cec_mpi.master.context import Context
from cec_mpi.master.in_flight import StepInFlight
from cec_mpi.master.step import Step
from cec_mpi.wire.jobs import Intervals, Job

log = logging.getLogger(__name__)

_LUCK = 1e-6  # that two wrong machines look like one that is right, which is then blamed


class ForwardStep(StepInFlight):
    """X W: any L answers to a row will do."""

    def __init__(
        self, master: Context, step: Step, shared: NDArray[Any], answers: RowAnswers
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
            for share in replan(missing, self.step.planned.speeds):
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
                self._answers.give(job.shard, start, stop, job.values[position : position + size])
                position += size
        self._note_accused()
        if self._answers.missing(()):
            self._hand_on()

    def _note_accused(self) -> None:
        for machine in sorted(self._answers.accused - self._accused):
            log.error("machine %d answered wrong numbers in step %d", machine, self.step.number)
            self.step.note_wrong(machine)
        self._accused = set(self._answers.accused)

    def use_the_time(self) -> bool:
        """Decode rows more exactly, from answers that came after they were decoded."""
        with self.step.timed("code"):
            return self._answers.improve()

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine."""
        self._answers.give_up(machine)
        self._aside.pop(machine, None)

    def refuse(self, machine: int) -> None:
        """Use nothing of a machine whose answer is not finite."""
        self._accused.add(machine)
        self._answers.do_without(machine)
        self._aside.pop(machine, None)
        if self.master.samples and len(self.helpers()) <= self.master.manifest.code.recovery:
            self._answers.compare_no_more()

    def hand_on(self) -> None:
        """Give what is missing to others."""
        missing = self._answers.missing(self.helpers())
        shares = replan(missing, self.step.planned.speeds)
        for share in shares:
            self._answers.expect(share.machine, share.start, share.stop)
            self._aside[share.machine].append((share.start, share.stop))
        for machine in self.ready() & set(self._aside):
            self.next_job(machine)

    def settle(self) -> bool:
        """Do without the machine that is wrong by all odds, though two others may be."""
        found = self._answers.settle(_LUCK)
        if found:
            self._note_accused()
            if self._answers.missing(()):
                self._hand_on()
        return found

    def disagreement(self) -> MachineError | None:
        """Name rows whose answers disagree."""
        doubtful = self._answers.doubtful()
        if doubtful:
            start, stop, machines = doubtful[0]
            more = f" (and {len(doubtful) - 1} more such places)" if len(doubtful) > 1 else ""
            return MachineError(
                f"step {self.step.number} is refused: the answers of machines "
                f"{', '.join(map(str, machines))} to rows {start}..{stop - 1} of their shards "
                f"disagree{more}, and no further machine can tell which of them are wrong"
            )
        return None

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
