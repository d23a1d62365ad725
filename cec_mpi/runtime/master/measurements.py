"""Rows and times of machines in an elastic step, and the machines that delayed it."""

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
        Start of the step, in seconds of the hub's clock.
    """

    def __init__(self, machines: int, begin: float) -> None:
        self._jobs: list[Job] = []  # whose answers were used
        self._begin, self._machines = begin, machines
        self._arrivals: list[tuple[float, int]] = []  # seconds and machine of each answer
        self._finish_times: dict[int, float] = {}  # of the first computation of each machine

    def add(self, job: Job, now: float) -> None:
        """Add a job whose answer has arrived now."""
        report, machine, arrival = job.report_fields, job.machine, now - self._begin
        self._jobs.append(job)
        self._arrivals.append((arrival, machine))
        finish = job.sent_at - self._begin + report.load_seconds + report.seconds
        self._finish_times.setdefault(machine, finish if 0 <= finish <= arrival else arrival)

    def answers(self, values: NDArray[np.float64]) -> Answers:
        """Return `values` with the total seconds and bytes that each machine reported."""
        sums = np.zeros((3, self._machines))
        for job in self._jobs:
            sums[:, job.machine - 1] += job.report_fields[1:4]
        seconds, load_seconds, load_bytes = sums
        return Answers(values, seconds, load_seconds, load_bytes, [])

    def rows(self) -> list[int]:
        """Return the number of rows that each machine computed."""
        rows = [0] * self._machines
        for job in self._jobs:
            rows[job.machine - 1] += job.row_count
        return rows

    def delays(
        self, planned_machines: Collection[int], events: Iterable[MachineEvent], now: float
    ) -> dict[int, float]:
        """Return the seconds by which machines delayed the step, see `StepRecord`.

        Parameters
        ----------
        planned_machines : collection of int
        events : iterable of MachineEvent
            Events of the step.
        now : float
            End of the step.
        """
        delayed = sorted(
            {e.machine for e in events if e.machine in planned_machines and self._is_delay(e)}
        )
        if delayed:
            others = (
                self._finish_times.get(n, 0.0) for n in set(planned_machines).difference(delayed)
            )
            seconds = (now - self._begin - max(others, default=0.0)) / len(delayed)
            return dict.fromkeys(delayed, seconds)
        if not self._arrivals:
            return {}
        *_, (second_last, _), (last, machine) = (0.0, 0), *self._arrivals
        return {machine: last - second_last}

    def _is_delay(self, event: MachineEvent) -> bool:
        """Return whether an event delays the step."""
        if isinstance(event, MachineUnavailable):
            return event.machine not in self._finish_times
        return isinstance(event, MachineLate | WrongAnswer)
