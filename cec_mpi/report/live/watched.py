"""The state of a run of another process, from its directory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.report.live.seen import Seen
from cec_mpi.report.live.words import clock, waiting_words
from cec_mpi.runtime.records.directory import STEPS, has_checkpoint, read_summary
from cec_mpi.runtime.records.reading import Following
from cec_mpi.store.files.durable import is_locked, was_locked

_STUCK = 10.0  # seconds without a step, at the least, and
_STEPS = 10  # the time of so many steps
_UNKNOWN = 60.0  # seconds without a step where nobody says whether the run is still there


@dataclass(frozen=True)
class State:
    """The state of a run.

    Attributes
    ----------
    words : str
    is_over : bool
        No more steps are to come.
    """

    words: str
    is_over: bool = False


class WatchedRun:
    """A run of another process.

    Parameters
    ----------
    out : Path
        The directory of its results.

    Raises
    ------
    InputError
        There is no run.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.seen = Seen({})
        self._steps = Following(out / STEPS)
        self._changed = 0.0
        self._grew = 0.0  # by this computer's clock
        if not out.is_dir():
            what = "is no directory" if out.exists() else "is missing"
            raise InputError(f"{out} {what}: expected the directory of the results of a run")
        self.read(0)
        if not self._steps.is_there and not is_locked(out):
            raise InputError(f"{out} holds no run: expected {STEPS} in it")

    @property
    def behind(self) -> int:
        """Bytes of its records that have not been read yet."""
        return self._steps.behind

    def read(self, most: int = 1 << 22) -> None:
        """Read what is new in its records, about so many bytes."""
        anew, lines = self._steps.new(most)
        if anew:
            self.seen = Seen({})
        for line in lines:
            self.seen.read(line)
        if self._steps.changed != self._changed:
            now = time.monotonic()
            age = max(0.0, time.time() - self._steps.changed) if not self._changed else 0.0
            self._grew, self._changed = now - age, self._steps.changed

    @property
    def silent(self) -> float:
        """Seconds since its records grew."""
        return time.monotonic() - self._grew if self._changed else 0.0

    @property
    def state(self) -> State:
        """How the run is."""
        silent = self.silent
        locked = is_locked(self.out)
        if locked or (locked is None and silent < _UNKNOWN):
            if self.seen.short is not None:
                return State(waiting_words(self.seen.short, silent))
            if self.seen.last is None:
                return State("no step yet")
            rate = self.seen.rate
            if silent > max(_STUCK, _STEPS / rate if rate else 0.0):
                return State(f"seems stuck: no step for {clock(silent)}")
            return State("going")
        if read_summary(self.out) is not None:
            return State("done", True)
        how = "broke off" if was_locked(self.out) else "stopped"
        if self.seen.last is None:
            return State(f"{how} before a step", True)
        if has_checkpoint(self.out):
            return State(f"{how}, --resume continues", True)
        return State(f"{how} without a checkpoint", True)
