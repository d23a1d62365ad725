"""A run of another process, read from its directory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.report.live.descriptions import describe_wait, format_clock
from cec_mpi.report.live.run_state import RunState
from cec_mpi.runtime.records.directory import STEPS, has_checkpoint, read_summary
from cec_mpi.runtime.records.reading import RecordFollower
from cec_mpi.store.files.durable import has_lock_file, is_locked
from cec_mpi.store.files.paths import directory_problem

# A run seems stuck after this many seconds and this many typical steps without a new step.
_STUCK_SECONDS = 10.0
_STUCK_STEPS = 10
_ENDED_SECONDS = 60.0  # without new records: the run counts as ended if locks are unsupported


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    Attributes
    ----------
    text : str
    is_over : bool
        Whether the run has ended.
    """

    text: str
    is_over: bool = False


class WatchedRun:
    """A run of another process.

    Parameters
    ----------
    out : Path
        Directory of the results.

    Raises
    ------
    InputError
        The directory contains no run.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.state = RunState({})
        self._records = RecordFollower(out / STEPS)
        self._modified_at = 0.0  # of the records; 0 before they are read
        self._last_growth = 0.0  # monotonic time
        if problem := directory_problem(out):
            raise InputError(f"{out} {problem}: expected the directory of the results of a run")
        self.read(0)
        if not self._records.exists and not is_locked(out):
            raise InputError(f"{out} contains no run: expected {STEPS} in it")

    @property
    def unread_bytes(self) -> int:
        """Number of bytes of records that are not read yet."""
        return self._records.unread_bytes

    def read(self, limit: int = 1 << 22) -> None:
        """Read about `limit` bytes of new records."""
        is_new, lines = self._records.read_new(limit)
        if is_new:
            self.state = RunState({})
        for line in lines:
            self.state.add(line)
        if self._records.modified_at != self._modified_at:
            now = time.monotonic()
            age = 0.0 if self._modified_at else max(0.0, time.time() - self._records.modified_at)
            self._last_growth, self._modified_at = now - age, self._records.modified_at

    @property
    def seconds_since_growth(self) -> float:
        """Seconds since the records grew."""
        return time.monotonic() - self._last_growth if self._modified_at else 0.0

    @property
    def status(self) -> RunStatus:
        """Status of the run."""
        seconds_since_growth = self.seconds_since_growth
        locked = is_locked(self.out)
        if locked or (locked is None and seconds_since_growth < _ENDED_SECONDS):
            if self.state.shortage is not None:
                return RunStatus(describe_wait(self.state.shortage, seconds_since_growth))
            if self.state.last_step is None:
                return RunStatus("no step yet")
            rate = self.state.rate
            if seconds_since_growth > max(_STUCK_SECONDS, _STUCK_STEPS / rate if rate else 0.0):
                return RunStatus(f"seems stuck: no step for {format_clock(seconds_since_growth)}")
            return RunStatus("running")
        if read_summary(self.out) is not None:
            return RunStatus("done", True)
        text = "interrupted" if has_lock_file(self.out) else "stopped"
        if self.state.last_step is None:
            return RunStatus(f"{text} before the first step", True)
        if has_checkpoint(self.out):
            return RunStatus(f"{text}, continue with --resume", True)
        return RunStatus(f"{text} without a checkpoint", True)
