"""What a run leaves behind: ``steps.jsonl``, a line per step as it happens, and ``summary.json``.

The first line of ``steps.jsonl`` is a header (``"kind": "header"``), each further one a
step (``"kind": "step"``). Times are in seconds; loads in rows; ``makespan`` is the time
of the machine that took longest.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from cec_mpi.errors import InputError

__all__ = [
    "RESULT",
    "STEPS",
    "SUMMARY",
    "Recorder",
    "StepRecord",
    "prepare_directory",
    "keep_results",
    "read_steps",
    "restore_results",
    "set_results_aside",
]

STEPS = "steps.jsonl"
SUMMARY = "summary.json"
RESULT = "result.npy"
_RESULTS = (STEPS, SUMMARY, RESULT)
_EARLIER = ".earlier"


@dataclass(frozen=True)
class StepRecord:
    """One step.

    Attributes
    ----------
    step, tick : int
        Counted from 0; they differ where ticks were waited for.
    waited_ticks : int
        Ticks with too few machines before this step.
    available : tuple of int
        Numbers of the available machines.
    rows : list of int
        Rows computed by machines 1..N, 0 for the preempted.
    seconds : list of float
        What each machine measured, 0 for the preempted.
    load_seconds : list of float
        What machines 1..N spent, before `seconds`, on reading and checking rows that they
        had not read before: a cost of the first step, and of a new assignment.
    load_bytes : list of int
        How much they read for it.
    predicted_makespan : float or None
        From the plan and the speeds in rows per second, None before these are known.
    measured_makespan : float
        The largest of `seconds`.
    bound : float or None
        What no assignment could beat at these speeds, in seconds.
    announce_seconds, share_seconds, collect_seconds, decode_seconds : float
        Time of each part of the step on the master; collect includes the computation.
    bytes : dict of str to int
        Payload of the master's part in announce, share and collect.
    plan_changed : bool
        Whether the assignment was sent.
    condition : float
        The largest condition number that the step was decoded with.
    """

    step: int
    tick: int
    waited_ticks: int
    available: tuple[int, ...]
    rows: list[int]
    seconds: list[float]
    load_seconds: list[float]
    load_bytes: list[int]
    predicted_makespan: float | None
    measured_makespan: float
    bound: float | None
    announce_seconds: float
    share_seconds: float
    collect_seconds: float
    decode_seconds: float
    bytes: dict[str, int]
    plan_changed: bool
    condition: float


class Recorder:
    """Sums up the steps of a session, and writes them down where it is told to.

    Parameters
    ----------
    watch : callable, optional
        Called with each `StepRecord`.
    """

    def __init__(self, watch: Callable[[StepRecord], None] | None = None) -> None:
        self._watch = watch
        self._stream: TextIO | None = None
        self._header: dict[str, Any] = {}
        self.steps = 0
        self.plan_changes = 0
        self.waited_ticks = 0
        self._makespans: list[float] = []
        self._ratios: list[float] = []

    def header(self, content: dict[str, Any]) -> None:
        """Say what the steps have in common."""
        self._header = content

    def write_to(self, stream: TextIO, watch: Callable[[StepRecord], None] | None = None) -> None:
        """Write the header now and each step as it happens, one JSON object a line."""
        self._stream = stream
        self._watch = watch or self._watch
        self._write({"kind": "header", **self._header})

    def step(self, record: StepRecord) -> None:
        """Take one step."""
        self.steps += 1
        self.plan_changes += record.plan_changed
        self.waited_ticks += record.waited_ticks
        self._makespans.append(record.measured_makespan)
        if record.predicted_makespan:
            self._ratios.append(record.measured_makespan / record.predicted_makespan)
        if self._stream is not None:
            self._write({"kind": "step", **vars(record)})
        if self._watch is not None:
            self._watch(record)

    def summary(self) -> dict[str, Any]:
        """Totals over the steps so far."""
        return {
            "steps": self.steps,
            "waited_ticks": self.waited_ticks,
            "plan_changes": self.plan_changes,
            "compute_seconds": math.fsum(self._makespans),
            "median_makespan": median(self._makespans) if self._makespans else None,
            "median_measured_over_predicted": median(self._ratios) if self._ratios else None,
        }

    def _write(self, content: dict[str, Any]) -> None:
        assert self._stream is not None
        finite = {name: None if value == math.inf else value for name, value in content.items()}
        self._stream.write(json.dumps(finite, allow_nan=False) + "\n")
        self._stream.flush()


def prepare_directory(path: Path, overwrite: bool) -> None:
    """Make the directory of a run; refuse one with results, unless they may be overwritten.

    Raises
    ------
    InputError
        It holds results and `overwrite` is not given, it is a store, or it cannot be made.
    """
    try:
        found = [name for name in _RESULTS if (path / name).exists()]
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None
    if found and not overwrite:
        raise InputError(f"{path} holds results ({', '.join(found)}): use --overwrite or a new DIR")
    if (path / "manifest.json").exists():
        raise InputError(f"{path} is a store: give the results a directory of their own")
    try:
        (path / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None


def set_results_aside(path: Path) -> None:
    """Set the results of an earlier run aside.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        aside = path / _EARLIER
        for name in _results_in(path):
            aside.mkdir(exist_ok=True)
            (path / name).rename(aside / name)
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None


def keep_results(path: Path) -> None:
    """The run has results of its own: those that were set aside go."""
    shutil.rmtree(path / _EARLIER, ignore_errors=True)


def restore_results(path: Path) -> None:
    """The run came to nothing: its files go, and those that were set aside come back."""
    for name in _RESULTS:
        (path / name).unlink(missing_ok=True)
    if (path / _EARLIER).is_dir():
        for earlier in (path / _EARLIER).iterdir():
            earlier.rename(path / earlier.name)
        (path / _EARLIER).rmdir()


def _results_in(path: Path) -> list[str]:
    """The files of a run's results, with the other arrays that its task saved."""
    try:
        arrays = json.loads((path / SUMMARY).read_text(encoding="utf-8"))["arrays"]
        names = [f"{name}.npy" for name in arrays if str(name).isidentifier()]
    except (OSError, ValueError, KeyError, TypeError):
        names = []  # no such run, or not one that came to its end
    return [name for name in dict.fromkeys((*_RESULTS, *names)) if (path / name).exists()]


def read_steps(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and steps of a ``steps.jsonl``.

    Raises
    ------
    InputError
        The file is missing or not such a record.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    kinds = [line.get("kind") if isinstance(line, dict) else None for line in lines]
    if kinds[:1] != ["header"]:
        raise InputError(f"{path} is not a record of steps: it has no header")
    if set(kinds[1:]) - {"step"}:
        raise InputError(f"{path} is not a record of steps: it has other lines too")
    return lines[0], lines[1:]
