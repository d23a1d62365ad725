"""What machines did in an elastic step, and which of them delayed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import MachineEvent, MachineLate, MachineUnavailable, WrongAnswer
from cec_mpi.runtime.wire.answers import Answers
from cec_mpi.runtime.wire.jobs import Job


class Measurements:
    """Rows and seconds of machines in one step.

    Parameters
    ----------
    machines : int
        N.
    begin : float
        When the step began, in seconds of the hub's clock.

    Attributes
    ----------
    jobs : list of Job
        Jobs whose answers were used, in the order of answers.
    """

    def __init__(self, machines: int, begin: float) -> None:
        self.jobs: list[Job] = []
        self._begin, self._machines = begin, machines
        self._answer_times: list[tuple[float, int]] = []  # seconds and machine of each answer
        self._finish_times: dict[int, float] = {}  # seconds until the first answer of each machine

    def count(self, job: Job, now: float) -> None:
        """Take an answer that has arrived now."""
        reported, machine, after = job.report_fields, job.machine, now - self._begin
        self.jobs.append(job)
        self._answer_times.append((after, machine))
        computed = job.sent_at - self._begin + reported.load_seconds + reported.seconds
        self._finish_times.setdefault(machine, computed if 0 <= computed <= after else after)

    def answers(self, values: NDArray[np.float64]) -> Answers:
        """Return what the machines did, with the result of X' V."""
        reported = np.zeros((3, self._machines))
        for job in self.jobs:
            reported[:, job.machine - 1] += job.report_fields[1:4]
        seconds, load_seconds, load_bytes = reported
        return Answers(values, seconds, load_seconds, load_bytes, [])

    def rows(self) -> list[int]:
        """Return the rows that machines 1..N computed."""
        found = [0] * self._machines
        for job in self.jobs:
            found[job.machine - 1] += job.count
        return found

    def delays(
        self, planned: Collection[int], events: Iterable[MachineEvent], now: float
    ) -> dict[int, float]:
        """Return the machines that delayed the step, and by how much: see `StepRecord`.

        Parameters
        ----------
        planned : collection of int
            Machines of the plan.
        events : iterable of MachineEvent
            Events of the step, which ends now.
        now : float
        """
        troubled = sorted({e.machine for e in events if e.machine in planned and self._delays(e)})
        if troubled:
            others = (self._finish_times.get(n, 0.0) for n in set(planned).difference(troubled))
            seconds = (now - self._begin - max(others, default=0.0)) / len(troubled)
            return dict.fromkeys(troubled, seconds)
        if not self._answer_times:
            return {}
        *_, (before, _), (after, last) = (0.0, 0), *self._answer_times
        return {last: after - before}

    def _delays(self, event: MachineEvent) -> bool:
        """Whether the machine did not do what was planned."""
        if isinstance(event, MachineUnavailable):
            return event.machine not in self._finish_times
        return isinstance(event, MachineLate | WrongAnswer)
