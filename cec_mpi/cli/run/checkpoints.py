"""Checkpoints: files from which a later run continues.

``checkpoint.npz`` holds the arrays that the task saved last, a description of the run, and a
checksum. ``checkpoint.previous.npz`` is the checkpoint before it. At any moment, also after a
crash, at least one of them is complete. A run of another task, with other options or with another
matrix does not continue from them.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.runtime.options.values import Interval
from cec_mpi.runtime.records.directory import CHECKPOINT, PREVIOUS_CHECKPOINT, has_checkpoint
from cec_mpi.store.files.archive import ArchiveDamagedError, pack_arrays, unpack_arrays
from cec_mpi.store.files.durable import publish, replace_by_copy
from cec_mpi.store.files.saving import writing
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import shorten

log = logging.getLogger(__name__)

_VERSION = 2
_ABOUT = "about"  # key of the description: version, task, options, shape of X
_CHECKSUM = "checksum"  # xxh3_128 of the arrays and of the text `about`
_ARRAY = "state."  # before their names
_SHARDS = "shards"  # key of the checksums of shards and of row exponents
_DIGITS = 16  # of a checksum


@dataclass(frozen=True)
class ResumeState:
    """The state from which a run continues.

    Attributes
    ----------
    state : dict of ndarray
        Arrays that the task saved; empty if there is no checkpoint.
    problem : str
        Why the newest checkpoint was not used; empty if it was.
    """

    state: dict[str, NDArray[Any]]
    problem: str = ""

    def remaining(self, products: int) -> int | None:
        """Return how many of `products` are left; None if the state is not of ``matvec``."""
        done = self.state.get("done", 0)
        if np.ndim(done) or not np.issubdtype(np.asarray(done).dtype, np.integer):
            return None  # the task raises an error
        return max(0, products - int(done))


class CheckpointFile:
    """The checkpoint that a task is given (see `cec_mpi.tasks.common.checkpoint.Checkpoint`).

    Parameters
    ----------
    directory : Path
        Directory of the results.
    about : mapping
        Description of the run; runs with another description do not continue from it.
    found : ResumeState
        State that an earlier run left.
    interval : Interval
        Interval between two writes; if it is infinite, a checkpoint is written only when the run
        ends early.
    steps : callable
        Returns the number of steps made so far.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        directory: Path,
        about: Mapping[str, Any],
        found: ResumeState,
        interval: Interval,
        steps: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = found.state
        self.before_writing: Callable[[], None] = lambda: None
        self.after_writing: Callable[[], None] = lambda: None
        self.progress: Callable[..., None] = lambda **numbers: None
        self._directory = directory
        self._about = dict(about)
        self.steps = steps
        self._interval = interval
        self._clock = clock
        self._begin = self._written = steps(), clock()
        self._last: dict[str, NDArray[Any] | Callable[[], ArrayLike]] = {}
        self._has_valid_newest = bool(found.state) and not found.problem

    @property
    def wanted(self) -> bool:
        """Whether checkpoints are written while the run goes on."""
        return self._interval != Interval()

    @property
    def every(self) -> int:
        """Number of steps between two writes, estimated if the interval is a time."""
        if self._interval.steps < math.inf:
            return int(self._interval.steps)
        made, passed = self.steps() - self._begin[0], self._clock() - self._begin[1]
        if made == 0 or passed <= 0 or not self.wanted:
            return sys.maxsize
        return max(1, int(self._interval.seconds * made / passed))

    def __repr__(self) -> str:
        held = ", ".join(sorted(self.state)) or "nothing"
        every = f"every {self._interval}" if self.wanted else "when the run ends early"
        return f"<checkpoint of {held} in {str(self._directory)!r}, written {every}>"

    def save(self, **state: ArrayLike | Callable[[], ArrayLike]) -> None:
        """Keep the state that is needed to continue from here, and write it if a write is due."""
        self._last = {
            name: value if callable(value) else np.array(value) for name, value in state.items()
        }
        steps, moment = self._written
        made, passed = self.steps() - steps, self._clock() - moment
        if made >= self._interval.steps or passed >= self._interval.seconds:
            self.write()

    def write(self) -> bool:
        """Write the state that was saved last; return False if nothing is new.

        The newest checkpoint becomes the previous one, unless it is damaged.

        Raises
        ------
        ResultsError
            The checkpoint cannot be written; the previous one is unchanged.
        """
        if not self._last:
            return False
        newest = self._directory / CHECKPOINT
        state = {k: np.asarray(v() if callable(v) else v) for k, v in self._last.items()}
        content = _content(self._about, state)
        with writing(newest):
            self.before_writing()
            if self._has_valid_newest:
                replace_by_copy(newest, self._directory / PREVIOUS_CHECKPOINT)
            publish(newest, content)
        self.after_writing()
        log.info("checkpoint after %d steps", self.steps())
        self._has_valid_newest = True
        self._written = self.steps(), self._clock()
        self._last = {}
        return True

    def remove(self) -> None:
        """Delete the checkpoints of a run that is complete."""
        for name in (PREVIOUS_CHECKPOINT, CHECKPOINT):
            (self._directory / name).unlink(missing_ok=True)


def read_checkpoint(directory: Path, about: Mapping[str, Any]) -> ResumeState:
    """Read the newest checkpoint, or the previous one if that is damaged.

    Parameters
    ----------
    directory : Path
        Of the results.
    about : mapping
        Description of this run (see `describe_run`).

    Raises
    ------
    InputError
        No checkpoint can be read, or it belongs to another task, other options or another matrix.
    """
    if not has_checkpoint(directory):
        return ResumeState({})
    problems: list[str] = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        path = directory / name
        try:
            found, state = _parsed(unpack_arrays(path))
        except FileNotFoundError:
            if name == CHECKPOINT:
                problems.append(f"{path} is missing")
        except (OSError, ArchiveDamagedError) as error:
            problems.append(f"{path} cannot be read as a checkpoint ({error})")
        else:
            check_same(path, found, about)
            return ResumeState(
                state, *(f"{problem}: the run continues from {name}" for problem in problems)
            )
    raise InputError(f"{' and '.join(problems)}: use --overwrite to start from the beginning")


def _content(about: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a checkpoint's file."""
    text = json.dumps({"version": _VERSION, **about})
    arrays = {_ARRAY + name: value for name, value in state.items()}
    arrays |= {_ABOUT: np.array(text), _CHECKSUM: np.array(_checksum(text, arrays))}
    return pack_arrays(arrays)


def _parsed(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the description and the arrays of a checkpoint; raise `ArchiveDamagedError`."""
    try:
        text, checksum = str(arrays.pop(_ABOUT)), str(arrays.pop(_CHECKSUM, ""))
        about = json.loads(text)
        version = about.pop("version")
    except (KeyError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise ArchiveDamagedError(
            f"its description is missing or damaged: {type(error).__name__}"
        ) from None
    if version != _VERSION:
        raise ArchiveDamagedError(f"found version {shorten(version)}, expected {_VERSION}")
    if checksum != _checksum(text, arrays):
        raise ArchiveDamagedError("its content does not match its checksum")
    return about, {name.removeprefix(_ARRAY): value for name, value in arrays.items()}


def _checksum(about: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the checksum of a description and of arrays with their names, dtypes and shapes."""
    digest = xxhash.xxh3_128(json.dumps(about).encode())
    for name, array in sorted(arrays.items()):
        kind = np.lib.format.dtype_to_descr(array.dtype)
        digest.update(json.dumps([name, kind, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe_run(
    task: str, options: Mapping[str, Any], manifest: Manifest, vectors: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Return the description of a run: only runs with the same one continue from its checkpoint.

    Parameters
    ----------
    task : str
    options : mapping
        Options of the task. The number of iterations is left out, so that a run can be extended.
    manifest : Manifest
    vectors : (T, r) ndarray, optional
        Vectors that ``matvec`` multiplies.
    """
    about = {
        "task": task,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "options": {k: repr(v) for k, v in sorted(options.items()) if k != "iterations"},
        _SHARDS: _shards(manifest),
    }
    if vectors is not None:
        about["vectors"] = _digest(vectors)
    return about


def _shards(manifest: Manifest) -> list[str]:
    """Return checksums of shards and exponents: shards of X and 2 X have the same bytes."""
    exponents = manifest.row_exponents.xxh3_128 if manifest.row_exponents else ""
    sums = [shard.xxh3_128 + exponents for shard in manifest.shards]
    return [xxhash.xxh3_128_hexdigest(text.encode())[:_DIGITS] for text in sums]


def _digest(vectors: NDArray[Any]) -> str:
    digest = xxhash.xxh3_128()
    for vector in vectors:
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()[:_DIGITS]


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise if a file belongs to another task, other options or another matrix.

    Stores of the same matrix have at least one shard in common, because repairs and added machines
    leave the other shards unchanged.

    Raises
    ------
    InputError
        Names the file and what differs.
    """
    shards = found.get(_SHARDS)
    if not isinstance(shards, list) or not any(
        description in wanted[_SHARDS] for description in shards
    ):
        raise InputError(
            f"{path} belongs to another matrix, or to another encoding of it: --resume continues "
            "only with the same task, options and matrix"
        )
    for name in dict.fromkeys((*wanted, *found)):
        if name == _SHARDS:
            continue
        if found.get(name) != wanted.get(name):
            were, are = (_value(description.get(name)) for description in (found, wanted))
            raise InputError(
                f"{path} has {name} {were}, but this run has {are}: --resume continues only with "
                "the same task, options and matrix"
            )


def _value(value: Any) -> str:
    """Return a value as text, options of the task as they are given."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in value.items()) or "(none)"
    return shorten(value)
