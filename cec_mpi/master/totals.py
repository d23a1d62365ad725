"""What machines did in a step by messages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cec_mpi.wire.jobs import Job


@dataclass
class Totals:
    """What machines did in a step, over all their jobs."""

    rows: NDArray[np.int64]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def of(cls, machines: int) -> Totals:
        """Nothing yet, of N machines."""
        seconds, load_seconds, load_bytes = np.zeros((3, machines))
        return cls(np.zeros(machines, np.int64), seconds, load_seconds, load_bytes)

    def add(self, job: Job) -> None:
        """Count an answer."""
        n, reported = job.machine - 1, job.reported
        self.rows[n] += job.count
        # It was not asked longer ago; what is no number is left out later.
        self.seconds[n] += min(reported.seconds, time.monotonic() - job.begun)
        self.load_seconds[n] += reported.load_seconds
        self.load_bytes[n] += reported.load_bytes
        self.jobs.append(job)
