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
    rows : (N,) ndarray of int
        Rows that machines 1..N computed.
    jobs : list of Job
        Jobs whose answers were used, in the order of answers.
    """

    def __init__(self, machines: int, begin: float) -> None:
        self.rows = np.zeros(machines, np.int64)
        self.jobs: list[Job] = []
        self._begin = begin
        self._totals = np.zeros((3, machines))  # seconds, seconds of reading, bytes read
        self._answer_times: list[tuple[float, int]] = []  # seconds and machine of each answer
        self._finish_times: dict[int, float] = {}  # seconds until the first answer of each machine

    def count(self, job: Job, now: float) -> None:
        """Count an answer that came now."""
        n, reported = job.machine - 1, job.report_fields
        self.rows[n] += job.count
        self._totals[:, n] += reported.seconds, reported.load_seconds, reported.load_bytes
        self.jobs.append(job)
        after = now - self._begin
        self._answer_times.append((after, job.machine))
        computed = job.sent_at - self._begin + reported.load_seconds + reported.seconds
        self._finish_times.setdefault(job.machine, computed if 0 <= computed <= after else after)

    def answers(self, values: NDArray[np.float64]) -> Answers:
        """Return what the machines did, with the result of X' V."""
        seconds, load_seconds, load_bytes = self._totals
        return Answers(values, seconds, load_seconds, load_bytes, [])

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
