"""What a run leaves behind: ``steps.jsonl``, a line per step as it happens, and ``summary.json``.

The first line of ``steps.jsonl`` is a header (``"kind": "header"``), each further one a
step (``"kind": "step"``). Times are in seconds; loads in rows; ``makespan`` is the time
of the machine that took longest.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from cec_mpi.errors import InputError

__all__ = [
    "CHECKPOINT",
    "PREVIOUS",
    "RESULT",
    "STEPS",
    "SUMMARY",
    "Recorder",
    "StepRecord",
    "prepare_directory",
    "keep_results",
    "read_steps",
    "read_summary",
    "restore_results",
    "resume_steps",
    "set_results_aside",
]

STEPS = "steps.jsonl"
SUMMARY = "summary.json"
RESULT = "result.npy"
CHECKPOINT = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
_RESULTS = (STEPS, SUMMARY, RESULT, CHECKPOINT, PREVIOUS)
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
    store : int
        Which store, in the order in which they were opened; 0 is the run's own.
    adjoint : bool
        X' V instead of X W.
    columns : int
        Of W or V.
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
        What no assignment could beat at the speeds that were expected, in seconds.
    hindsight_makespan : float or None
        What no assignment could beat at the speeds that the machines had in this step;
        the regret of the step is ``measured_makespan / hindsight_makespan - 1``.
    announce_seconds, share_seconds, collect_seconds, decode_seconds : float
        Time of each part of the step on the master; collect includes the computation, and
        decode is the transposed decoder, before share, when the step is an adjoint one.
    bytes : dict of str to int
        Payload of the master's part in announce, share and collect.
    plan_changed : bool
        Whether the assignment was sent.
    condition : float
        The largest condition number that the step was decoded with.
    error_bound : float or None
        For X W a bound of the error of a row of the L parts over the largest row, both in the
        1-norm (see `decode_error_bound`): certain only as far as rounding was not larger than
        in all steps before. None for X' V.
    events : list of dict
        What happened to machines: ``{"lost": n, "reason": text}``, ``{"late": n}``,
        ``{"given up": n, "reason": text}``, ``{"leaving": n}``, ``{"wrong": n}``,
        ``{"joined": n, "rank": r}``.
    """

    step: int
    tick: int
    waited_ticks: int
    available: tuple[int, ...]
    store: int
    adjoint: bool
    columns: int
    rows: list[int]
    seconds: list[float]
    load_seconds: list[float]
    load_bytes: list[int]
    predicted_makespan: float | None
    measured_makespan: float
    bound: float | None
    hindsight_makespan: float | None
    announce_seconds: float
    share_seconds: float
    collect_seconds: float
    decode_seconds: float
    bytes: dict[str, int]
    plan_changed: bool
    condition: float
    error_bound: float | None
    events: list[dict[str, Any]]


class Recorder:
    """Sums up the steps of a session, and writes them down where it is told to.

    Parameters
    ----------
    watch : callable, optional
        Called with each `StepRecord`.
    earlier : list of dict
        Steps, as `read_steps` gives them, of the runs that this one goes on from.

    Attributes
    ----------
    common : dict
        What the steps have in common: the header.
    steps : int
        Steps so far, those of earlier runs included.
    next_step, next_tick : int
        Where a run that goes on from earlier ones begins.
    """

    def __init__(
        self,
        watch: Callable[[StepRecord], None] | None = None,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._watch = watch
        self._stream: TextIO | None = None
        self.common: dict[str, Any] = {}
        self.steps = 0
        self.plan_changes = 0
        self.waited_ticks = 0
        self.next_step = self.next_tick = 0
        self._makespans: list[float] = []
        self._ratios: list[float] = []
        self._regrets: list[float] = []
        for step in earlier:
            self._count(step)
            self.next_step, self.next_tick = step["step"] + 1, step["tick"] + 1

    def header(self, content: dict[str, Any]) -> None:
        """Say what the steps have in common."""
        self.common = content

    def write_to(self, stream: TextIO, watch: Callable[[StepRecord], None] | None = None) -> None:
        """Write the header now and each step as it happens, one JSON object a line."""
        self._stream = stream
        self._watch = watch or self._watch
        self._write({"kind": "header", **self.common})

    def step(self, record: StepRecord) -> None:
        """Take one step."""
        self._count(vars(record))
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
            "median_makespan": _median(self._makespans),
            "median_measured_over_predicted": _median(self._ratios),
            "median_regret": _median(self._regrets),
        }

    def _count(self, step: Mapping[str, Any]) -> None:
        self.steps += 1
        self.plan_changes += step["plan_changed"]
        self.waited_ticks += step["waited_ticks"]
        measured = step["measured_makespan"]
        self._makespans.append(measured)
        if step["predicted_makespan"]:
            self._ratios.append(measured / step["predicted_makespan"])
        if step["hindsight_makespan"]:
            self._regrets.append(measured / step["hindsight_makespan"] - 1)

    def _write(self, content: dict[str, Any]) -> None:
        assert self._stream is not None
        finite = {name: None if value == math.inf else value for name, value in content.items()}
        self._stream.write(json.dumps(finite, allow_nan=False) + "\n")
        self._stream.flush()


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def prepare_directory(path: Path, used: bool) -> None:
    """Make the directory of a run; refuse one with results, unless they may be there.

    Raises
    ------
    InputError
        It holds results and should not be `used`, it is a store, or it cannot be made.
    """
    try:
        found = [name for name in _RESULTS if (path / name).exists()]
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None
    if found and not used:
        raise InputError(
            f"{path} holds results ({', '.join(found)}): use --resume, --overwrite or a new DIR"
        )
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


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of the run that came to its end in a directory; None when none did."""
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return summary if isinstance(summary, dict) else None


def resume_steps(path: Path) -> list[dict[str, Any]]:
    """The steps of a run that is to go on, without a last line that was cut off.

    Steps after the checkpoint are among them: they were made, and their numbers are taken.
    What they computed is computed again, in steps with numbers of their own.

    Raises
    ------
    InputError
        The file is missing or not such a record.
    """
    try:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be gone on with: {error.strerror}") from None
    return read_steps(path)[1]


def _results_in(path: Path) -> list[str]:
    """The files of a run's results, with the other arrays that its task saved."""
    arrays = (read_summary(path) or {}).get("arrays")
    if not isinstance(arrays, list):
        arrays = []  # no run that came to its end
    names = [f"{name}.npy" for name in arrays if str(name).isidentifier()]
    return [name for name in dict.fromkeys((*_RESULTS, *names)) if (path / name).exists()]


def read_steps(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and steps of a ``steps.jsonl``.

    A run that was resumed has a header for each of its parts; the first is given.

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
    if set(kinds) - {"header", "step"}:
        raise InputError(f"{path} is not a record of steps: it has other lines too")
    return lines[0], [line for line in lines if line["kind"] == "step"]
