"""What a run leaves so that a later one goes on: a small file, and when to stop for it.

``checkpoint.npz`` holds the arrays that the task handed over last, what they are of, and a
checksum of all that. ``checkpoint.previous.npz`` is the one before it. At any moment, and so
after a crash, at least one of them is whole.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, StoppedError
from cec_mpi.records import CHECKPOINT, PREVIOUS
from cec_mpi.store.files import publish, rename_copy
from cec_mpi.store.manifest import Manifest

__all__ = [
    "CheckpointFile",
    "Found",
    "TimeLimit",
    "check_same",
    "describe_run",
    "has_checkpoint",
    "read_checkpoint",
]

_VERSION = 2
_ABOUT = "about"  # beside the task's arrays: version, task, options, shape of X
_CHECKSUM = "checksum"  # xxh3_128 of the arrays and of the text `about`
_SHARDS = "shards"  # checksums of the store's shards
_DIGITS = 16  # of a checksum
_ARRAY = "state."  # before their names
_STEPS_BETWEEN = 200  # writes, where only the end of the time is known
_END_OF_JOB = "SLURM_JOB_END_TIME"  # seconds since 1970
_MARGIN = 60.0  # seconds before the end of a job in which a step may end and all leave
_LEAST_PART = 0.1  # or this part of the time that the job has left, if that is less


@dataclass(frozen=True)
class Found:
    """What a run goes on from.

    Attributes
    ----------
    state : dict of ndarray
        What the task handed over; empty where there is no checkpoint.
    problem : str
        Why it is not that of the newest checkpoint; empty when it is.
    """

    state: dict[str, NDArray[Any]]
    problem: str = ""


class CheckpointFile:
    """The checkpoint that a task is given (see `cec_mpi.tasks.checkpoint.Checkpoint`).

    Parameters
    ----------
    directory : Path
        Of the results.
    about : mapping
        What the arrays are of: a run with another one does not go on from them.
    found : Found
        What an earlier run left.
    every : int or None
        Steps between two writes; None writes only when the run ends early.
    wanted : bool
        Whether it is known beforehand when the run has to end.
    steps : callable
        Steps made so far.
    """

    def __init__(
        self,
        directory: Path,
        about: Mapping[str, Any],
        found: Found,
        every: int | None,
        wanted: bool,
        steps: Callable[[], int],
    ) -> None:
        self.state = found.state
        self.wanted = wanted or every is not None
        self.every = every or (_STEPS_BETWEEN if wanted else sys.maxsize)
        self.before_writing: Callable[[], None] = lambda: None
        self._directory = directory
        self._about = dict(about)
        self.steps = steps
        self._written = steps()
        self._last: dict[str, NDArray[Any]] = {}
        self._newest_is_whole = bool(found.state) and not found.problem

    def save(self, **state: ArrayLike) -> None:
        """Take what is needed to go on from here, and write it when it is due."""
        self._last = {name: np.array(value) for name, value in state.items()}
        if self.steps() - self._written >= self.every:
            self.write()

    def write(self) -> bool:
        """Write what was handed over last; False if that is nothing new.

        The checkpoint so far becomes the one before, unless it is damaged: then the one
        before stays.
        """
        if not self._last:
            return False
        self.before_writing()
        newest = self._directory / CHECKPOINT
        content = _content(self._about, self._last)
        if self._newest_is_whole:
            rename_copy(newest, self._directory / PREVIOUS)
        publish(newest, content)
        self._newest_is_whole = True
        self._written = self.steps()
        self._last = {}
        return True

    def remove(self) -> None:
        """The run is done: nothing is to be gone on with."""
        for name in (PREVIOUS, CHECKPOINT):
            (self._directory / name).unlink(missing_ok=True)


def has_checkpoint(directory: Path) -> bool:
    """Whether an earlier run left a checkpoint, damaged or not."""
    return any((directory / name).exists() for name in (CHECKPOINT, PREVIOUS))


def read_checkpoint(directory: Path, about: Mapping[str, Any]) -> Found:
    """What a run goes on from: the newest checkpoint, or the one before if that is damaged.

    Parameters
    ----------
    directory : Path
        Of the results.
    about : mapping
        What this run is of, as `describe_run` has it.

    Raises
    ------
    InputError
        None can be read, or it is of another task, other options or another matrix.
    """
    if not has_checkpoint(directory):
        return Found({})
    problems: list[str] = []
    for name in (CHECKPOINT, PREVIOUS):
        path = directory / name
        try:
            found, state = _parsed(path.read_bytes())
        except FileNotFoundError:
            if name == CHECKPOINT:
                problems.append(f"{path} is missing")
        except (OSError, _DamagedError) as error:
            problems.append(f"{path} is no checkpoint that can be read ({error})")
        else:
            check_same(path, found, about)
            return Found(state, *(f"{each}: the run goes on from {name}" for each in problems))
    raise InputError(f"{' and '.join(problems)}: --overwrite starts anew")


class _DamagedError(Exception):
    """A checkpoint is not what was written, or not by this version."""


def _content(about: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> bytes:
    """A checkpoint as the bytes of its file."""
    text = json.dumps({"version": _VERSION, **about})
    arrays = {_ARRAY + name: value for name, value in state.items()}
    arrays |= {_ABOUT: np.array(text), _CHECKSUM: np.array(_checksum(text, arrays))}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _parsed(content: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and arrays of a checkpoint; raises `_DamagedError`."""
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # of headers that nobody has written
            np.load(io.BytesIO(content), allow_pickle=False) as file,
        ):
            arrays = {name: file[name] for name in file.files}
        text, checksum = str(arrays.pop(_ABOUT)), str(arrays.pop(_CHECKSUM, ""))
        about = json.loads(text)
        version = about.pop("version")
    except Exception as error:  # zipfile and NumPy raise a dozen kinds on altered bytes
        raise _DamagedError(f"no whole .npz file of ours: {type(error).__name__}") from None
    if version != _VERSION:
        raise _DamagedError(f"it has version {version!r}, expected {_VERSION}")
    if checksum != _checksum(text, arrays):
        raise _DamagedError("its content does not have its checksum")
    return about, {name.removeprefix(_ARRAY): value for name, value in arrays.items()}


def _checksum(about: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of names, dtypes, shapes and bytes of arrays, and of what they are of."""
    digest = xxhash.xxh3_128(json.dumps(about).encode())
    for name, array in sorted(arrays.items()):
        kind = np.lib.format.dtype_to_descr(array.dtype)
        digest.update(json.dumps([name, kind, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe_run(
    task: str, options: Mapping[str, Any], manifest: Manifest, vectors: NDArray[Any] | None = None
) -> dict[str, Any]:
    """What a run is of: one with another description does not go on from its checkpoint.

    Parameters
    ----------
    task : str
    options : mapping
        Of the task; that more steps are made does not make it another run.
    manifest : Manifest
    vectors : (T, r) ndarray, optional
        What X is multiplied with.
    """
    about = {
        "task": task,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "options": {k: repr(v) for k, v in sorted(options.items()) if k != "steps"},
        _SHARDS: [shard.xxh3_128[:_DIGITS] for shard in manifest.shards],
    }
    if vectors is not None:
        about["vectors"] = _digest(vectors)
    return about


def _digest(vectors: NDArray[Any]) -> str:
    digest = xxhash.xxh3_128()
    for vector in vectors:
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()[:_DIGITS]


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with what another task, other options or another matrix has left.

    A store of the same matrix has at least one shard in common: repairs and further
    machines leave others as they were.

    Raises
    ------
    InputError
        Names the file and what differs.
    """
    if not set(found.get(_SHARDS) or ()) & set(wanted[_SHARDS]):
        raise InputError(
            f"{path} is of another matrix, or of one that was encoded otherwise: --resume goes on "
            "with the same task, options and matrix"
        )
    for name in dict.fromkeys((*wanted, *found)):
        if name == _SHARDS:
            continue
        if found.get(name) != wanted.get(name):
            raise InputError(
                f"{path} has {name} {found.get(name)!r}, this run {wanted.get(name)!r}: "
                "--resume goes on with the same task, options and matrix"
            )


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
            self._reason = f"after the time limit of {seconds:g} seconds"
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
