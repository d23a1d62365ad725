"""X W of an elastic step: decoded from the first L answers to each row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cec_mpi.core.plan.replan import Missing, replan
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.errors import MachineError
from cec_mpi.master.checked import disagreement
from cec_mpi.master.in_flight import StepInFlight
from cec_mpi.master.step import Step
from cec_mpi.wire.jobs import Intervals, Job

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne

log = logging.getLogger(__name__)


class ForwardStep(StepInFlight):
    """X W: any L answers to a row are enough."""

    def __init__(
        self, master: MadeOneByOne, step: Step, shared: NDArray[Any], answers: RowAnswers
    ) -> None:
        super().__init__(master, step)
        self._shared = shared
        self._answers = answers
        self._aside: dict[int, list[tuple[int, int]]] = {}  # rows, by machine
        self._expected: dict[int, list[tuple[int, int]]] = {}  # rows, by machine

    def first_jobs(self) -> None:
        """Give the jobs of the plan."""
        for machine, intervals in self.step.plan.assignment.intervals_of_all().items():
            for start, stop in intervals:
                self._set_aside(machine, start, stop)
        missing = self._answers.missing(self.helpers())  # rows to be compared
        if missing:
            self._share_out(missing)
        for machine in list(self._aside):
            self.next_job(machine)

    def _share_out(self, missing: Sequence[Missing]) -> None:
        for machine, start, stop in replan(missing, self.step.speeds):
            self._set_aside(machine, start, stop)

    def _set_aside(self, machine: int, start: int, stop: int) -> None:
        """Expect rows of a machine, which it will be asked for when it can be."""
        self._answers.expect(machine, start, stop)
        self._expected.setdefault(machine, []).append((start, stop))
        self._aside.setdefault(machine, []).append((start, stop))

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
        for machine in sorted(self._answers.accused - self.wrong):
            self.exclude(machine)
        if self._answers.missing(()):
            self._hand_on()

    def use_the_time(self) -> bool:
        """Decode rows more exactly, from answers that came after they were decoded."""
        with self.step.timed("code"):
            return self._answers.improve()

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine."""
        for start, stop in self._expected.get(machine, ()):
            self._answers.give_up(machine, start, stop)
        self._aside.pop(machine, None)

    def refuse(self, machine: int) -> None:
        """Use nothing of a machine whose answer is not finite."""
        self._answers.do_without(machine)
        self._aside.pop(machine, None)

    def hand_on(self) -> None:
        """Give what is missing to others."""
        missing = self._answers.missing(self.helpers())
        self._share_out([each for each in missing if len(each.eligible) >= each.needed])
        for machine in self.ready() & set(self._aside):
            self.next_job(machine)
        self._share_out([each for each in missing if len(each.eligible) < each.needed])

    def disagreement(self) -> MachineError | None:
        """Name rows whose answers disagree, and the machines that may be wrong."""
        doubtful = self._answers.doubtful()
        if not doubtful:
            return None
        start, stop, verdict, machines = doubtful[0]
        more = f" (and {len(doubtful) - 1} more such places)" if len(doubtful) > 1 else ""
        manifest = self.master.manifest
        whose = "of their shards" if manifest.replicas is None else ""
        rows = f"to rows {start}..{stop - 1} {whose}{more} "
        return disagreement(self.step, machines, rows, verdict, manifest)

    def next_job(self, machine: int) -> None:
        """Give a machine what was put aside for it."""
        mine = self._aside.pop(machine, None)
        if mine:
            self.ask(machine, _merged(mine), self._shared)


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
