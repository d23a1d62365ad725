"""What machines did in an elastic step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cec_mpi.wire.jobs import Job


@dataclass
class Totals:
    """What machines did in a step, over all their jobs.

    Attributes
    ----------
    rows : (N,) ndarray of int
    reported : (3, N) ndarray of float
        Seconds, seconds of reading, and bytes that were read.
    jobs : list of Job
    """

    rows: NDArray[np.int64]
    reported: NDArray[np.float64]
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def of(cls, machines: int) -> Totals:
        """Nothing yet, of N machines."""
        return cls(np.zeros(machines, np.int64), np.zeros((3, machines)))

    def add(self, job: Job) -> None:
        """Count an answer."""
        n, reported = job.machine - 1, job.reported
        self.rows[n] += job.count
        # It was not asked longer ago; what is no number is left out later.
        seconds = min(reported.seconds, time.monotonic() - job.begun)
        self.reported[:, n] += seconds, reported.load_seconds, reported.load_bytes
        self.jobs.append(job)
