"""When a run has to end, and leaves a checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from cec_mpi.errors import StoppedError
from cec_mpi.text import plural

_END_OF_JOB = "SLURM_JOB_END_TIME"  # seconds since 1970
_MARGIN = 60.0  # seconds before the end of a job in which a step may end and all leave
_LEAST_PART = 0.1  # or this part of the time that the job has left, if that is less


class TimeLimit:
    """When a run has to end, as its user or the batch system says.

    Parameters
    ----------
    seconds : float, optional
        From now.
    environment : mapping
        With ``SLURM_JOB_END_TIME`` in a job of a Slurm that sets it; the run ends a minute
        before that, or when nine tenths of the time are over.
    """

    def __init__(
        self, seconds: float | None = None, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._due = float("inf")
        self._reason = ""
        if seconds is not None:
            self._due = time.monotonic() + seconds
            self._reason = f"after the time limit of {plural(seconds, 'second')}"
        try:
            left = float(environment[_END_OF_JOB]) - time.time()
        except (KeyError, ValueError):
            return
        due = time.monotonic() + left - min(_MARGIN, max(0.0, _LEAST_PART * left))
        if due < self._due:
            self._due = due
            self._reason = "because the time of the job is nearly over"

    @property
    def is_known(self) -> bool:
        """Whether there is any."""
        return self._due < float("inf")

    def check(self) -> None:
        """Raise `StoppedError` when the time is over."""
        if time.monotonic() >= self._due:
            raise StoppedError(f"stopped {self._reason}")
