"""What a run leaves so that a later one goes on: a small file, and when to stop for it.

``checkpoint.npz`` holds the arrays that the task handed over last, and what they are of.
It is replaced at once: after a crash it is the old or the new one.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, StoppedError
from cec_mpi.store.files import publish
from cec_mpi.store.manifest import Manifest

__all__ = ["CheckpointFile", "TimeLimit", "check_same", "describe_run", "read_checkpoint"]

_VERSION = 1
_ABOUT = "about"  # beside the task's arrays: version, task, options, shape of X
_SHARDS = "shards"  # checksums of the store's shards
_DIGITS = 16  # of a checksum
_ARRAY = "state."  # before their names
_STEPS_BETWEEN = 200  # writes, where only the end of the time is known
_END_OF_JOB = "SLURM_JOB_END_TIME"  # seconds since 1970
_MARGIN = 60.0  # seconds before the end of a job in which a step may end and all leave
_LEAST_PART = 0.1  # or this part of the time that the job has left, if that is less


class CheckpointFile:
    """The checkpoint that a task is given (see `cec_mpi.tasks.checkpoint.Checkpoint`).

    Parameters
    ----------
    path : Path
    about : mapping
        What the arrays are of: a run with another one does not go on from them.
    state : dict of ndarray
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
        path: Path,
        about: Mapping[str, Any],
        state: dict[str, NDArray[Any]],
        every: int | None,
        wanted: bool,
        steps: Callable[[], int],
    ) -> None:
        self.state = state
        self.wanted = wanted or every is not None
        self.every = every or (_STEPS_BETWEEN if wanted else sys.maxsize)
        self.before_writing: Callable[[], None] = lambda: None
        self._path = path
        self._about = dict(about)
        self.steps = steps
        self._written = steps()
        self._last: dict[str, NDArray[Any]] = {}

    def save(self, **state: ArrayLike) -> None:
        """Take what is needed to go on from here, and write it when it is due."""
        self._last = {name: np.array(value) for name, value in state.items()}
        if self.steps() - self._written >= self.every:
            self.write()

    def write(self) -> bool:
        """Write what was handed over last; False if that is nothing new."""
        if not self._last:
            return False
        self.before_writing()
        arrays = {_ARRAY + name: value for name, value in self._last.items()}
        file = io.BytesIO()
        about = json.dumps({"version": _VERSION, **self._about})
        np.savez(file, allow_pickle=False, **{_ABOUT: np.array(about)}, **arrays)
        publish(self._path, file.getvalue())
        self._written = self.steps()
        self._last = {}
        return True

    def remove(self) -> None:
        """The run is done: nothing is to be gone on with."""
        self._path.unlink(missing_ok=True)


def read_checkpoint(path: Path, about: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a checkpoint; empty when there is none.

    Raises
    ------
    InputError
        It cannot be read, or is of another task, other options or another matrix.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = json.loads(str(file[_ABOUT]))
            arrays = {n.removeprefix(_ARRAY): file[n] for n in file.files if n != _ABOUT}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is no checkpoint that can be read ({error}): --overwrite starts anew"
        ) from None
    check_same(path, found, {"version": _VERSION, **about})
    return arrays


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
