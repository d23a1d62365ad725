"""How long machines take to read a shard, from what they have read so far."""

from __future__ import annotations

import numpy as np

from cec_mpi.wire.jobs import Job

BANDWIDTH = 1e9  # bytes per second that are read or multiplied, where nothing is known


class Reading:
    """What machines have read, and how long that took.

    Parameters
    ----------
    machines : int
    size : int
        Bytes of a shard.
    """

    def __init__(self, machines: int, size: int) -> None:
        self._size = size
        self._read = np.zeros((2, machines))  # seconds, bytes

    def learn(self, job: Job) -> None:
        """Take what a machine has read for a job."""
        told = job.reported
        if told.load_bytes > 0 and 0 < told.load_seconds < float("inf"):
            self._read[:, job.machine - 1] += told.load_seconds, told.load_bytes

    def seconds(self, machine: int) -> float:
        """That a machine should take to read a shard; as all, where it has read nothing."""
        which = slice(machine - 1, machine) if self._read[1, machine - 1] else slice(None)
        seconds, count = self._read[:, which].sum(axis=1)
        return float(self._size * seconds / count) if count else self._size / BANDWIDTH
