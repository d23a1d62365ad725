"""Checkpoint files, from which a later run continues.

``checkpoint.npz`` contains the last arrays that the task saved, a description of the run, and a
checksum. ``checkpoint.previous.npz`` is the checkpoint before that. At any time, even after a
crash, at least one of them is complete. Only a run with the same task, options and matrix can
continue from them.
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
from cec_mpi.store.files.archive import ArchiveDamagedError, pack_arrays, read_arrays
from cec_mpi.store.files.durable import publish, replace_by_link
from cec_mpi.store.files.saving import convert_to_results_error
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import shorten

log = logging.getLogger(__name__)

_VERSION = 2
_DESCRIPTION = "about"  # key of the description of the run
_CHECKSUM = "checksum"  # xxh3_128 of the arrays and of the description
_ARRAY_PREFIX = "state."
_SHARDS = "shards"  # key of the checksums of shards
_CHECKSUM_DIGITS = 16


@dataclass(frozen=True)
class ResumeState:
    """The state from which a run continues.

    Attributes
    ----------
    state : dict of ndarray
        Arrays that the task saved; empty if there is no checkpoint.
    problem : str
        Warning that the newest checkpoint was not used, and why; empty if it was used.
    """

    state: dict[str, NDArray[Any]]
    problem: str = ""

    def remaining_products(self, products: int) -> int | None:
        """Return how many of `products` are left to compute; None if the state is invalid."""
        done = self.state.get("done", 0)  # saved by `matvec`
        if np.ndim(done) or not np.issubdtype(np.asarray(done).dtype, np.integer):
            return None  # `matvec` rejects this value when it begins
        return max(0, products - int(done))


class CheckpointFile:
    """A `cec_mpi.tasks.common.checkpoint.Checkpoint` that is stored in files.

    Parameters
    ----------
    directory : Path
        Directory of the results.
    description : mapping
        Description of the run (see `describe_run`).
    resume_state : ResumeState
        State of an earlier run.
    interval : Interval
        Interval between writes; if it is infinite, the file is written only if the run ends
        early.
    steps : callable
        Returns the number of completed steps.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        directory: Path,
        description: Mapping[str, Any],
        resume_state: ResumeState,
        interval: Interval,
        steps: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = resume_state.state
        self.before_writing: Callable[[], None] = lambda: None
        self.after_writing: Callable[[], None] = lambda: None
        self.progress: Callable[..., None] = lambda **numbers: None
        self._directory = directory
        self._description = dict(description)
        self.steps = steps
        self._interval = interval
        self._clock = clock
        self._start = self._last_write = steps(), clock()
        self._unwritten_state: dict[str, NDArray[Any] | Callable[[], ArrayLike]] = {}
        self._newest_is_valid = bool(resume_state.state) and not resume_state.problem

    @property
    def wanted(self) -> bool:
        """Whether checkpoints are written during the run."""
        return self._interval != Interval()

    @property
    def every(self) -> int:
        """Number of steps between writes, estimated if the interval is a time."""
        if self._interval.steps < math.inf:
            return int(self._interval.steps)
        steps_done, seconds_passed = self.steps() - self._start[0], self._clock() - self._start[1]
        if steps_done == 0 or seconds_passed <= 0 or not self.wanted:
            return sys.maxsize
        return max(1, int(self._interval.seconds * steps_done / seconds_passed))

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.state)) or "nothing"
        every = f"every {self._interval}" if self.wanted else "when the run ends early"
        return f"<checkpoint of {names} in {str(self._directory)!r}, written {every}>"

    def save(self, **state: ArrayLike | Callable[[], ArrayLike]) -> None:
        """Save the state from which a run can continue; write it to the file if a write is due."""
        self._unwritten_state = {
            name: value if callable(value) else np.array(value) for name, value in state.items()
        }
        steps, seconds = self._last_write
        steps_done, seconds_passed = self.steps() - steps, self._clock() - seconds
        if steps_done >= self._interval.steps or seconds_passed >= self._interval.seconds:
            self.write()

    def write(self) -> bool:
        """Write the last saved state; return False if there is none or it has already been written.

        The newest checkpoint becomes the previous one, unless it is damaged.

        Raises
        ------
        ResultsError
            The checkpoint cannot be written; the newest complete one is unchanged.
        """
        if not self._unwritten_state:
            return False
        newest = self._directory / CHECKPOINT
        state = {k: np.asarray(v() if callable(v) else v) for k, v in self._unwritten_state.items()}
        content = _serialize(self._description, state)
        with convert_to_results_error(newest):
            self.before_writing()
            if self._newest_is_valid:
                replace_by_link(newest, self._directory / PREVIOUS_CHECKPOINT)
            publish(newest, content)
        self.after_writing()
        log.info("checkpoint after %d steps", self.steps())
        self._newest_is_valid = True
        self._last_write = self.steps(), self._clock()
        self._unwritten_state = {}
        return True

    def remove(self) -> None:
        """Delete both checkpoint files, because the run is complete."""
        for name in (PREVIOUS_CHECKPOINT, CHECKPOINT):
            (self._directory / name).unlink(missing_ok=True)


def read_checkpoint(directory: Path, description: Mapping[str, Any]) -> ResumeState:
    """Read the newest checkpoint, or the previous one if the newest is damaged or missing.

    Parameters
    ----------
    directory : Path
        Directory of the results.
    description : mapping
        Description of this run (see `describe_run`).

    Raises
    ------
    InputError
        No checkpoint can be read, or it is from another task, other options or another matrix.
    """
    if not has_checkpoint(directory):
        return ResumeState({})
    problems: list[str] = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        path = directory / name
        try:
            recorded, state = _parse(read_arrays(path))
        except FileNotFoundError:
            if name == CHECKPOINT:
                problems.append(f"{path} is missing")
        except (OSError, ArchiveDamagedError) as error:
            problems.append(f"{path} cannot be read as a checkpoint ({error})")
        else:
            check_description(path, recorded, description)
            return ResumeState(
                state, *(f"{problem}: the run continues from {name}" for problem in problems)
            )
    raise InputError(f"{' and '.join(problems)}: use --overwrite to start from the beginning")


def _serialize(description: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of a checkpoint file."""
    text = json.dumps({"version": _VERSION, **description})
    arrays = {_ARRAY_PREFIX + name: value for name, value in state.items()}
    arrays |= {_DESCRIPTION: np.array(text), _CHECKSUM: np.array(_checksum(text, arrays))}
    return pack_arrays(arrays)


def _parse(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the description and the arrays of a checkpoint.

    Raises
    ------
    ArchiveDamagedError
    """
    try:
        text, checksum = str(arrays.pop(_DESCRIPTION)), str(arrays.pop(_CHECKSUM, ""))
        description = json.loads(text)
        version = description.pop("version")
    except (KeyError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise ArchiveDamagedError(
            f"its description is missing or damaged: {type(error).__name__}"
        ) from None
    if version != _VERSION:
        raise ArchiveDamagedError(f"found version {shorten(version)}, expected {_VERSION}")
    if checksum != _checksum(text, arrays):
        raise ArchiveDamagedError("its content does not match its checksum")
    return description, {name.removeprefix(_ARRAY_PREFIX): value for name, value in arrays.items()}


def _checksum(description: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the checksum of a description and of arrays with their names, dtypes and shapes."""
    digest = xxhash.xxh3_128(json.dumps(description).encode())
    for name, array in sorted(arrays.items()):
        dtype = np.lib.format.dtype_to_descr(array.dtype)
        digest.update(json.dumps([name, dtype, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe_run(
    task: str, options: Mapping[str, Any], manifest: Manifest, vectors: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Return the description of a run, which `check_description` compares with a checkpoint's.

    Parameters
    ----------
    task : str
    options : mapping
        Options of the task. The description omits ``iterations``, so that a run can be extended.
    manifest : Manifest
    vectors : (T, r) ndarray, optional
        Vectors that ``matvec`` multiplies.
    """
    description = {
        "task": task,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "options": {k: repr(v) for k, v in sorted(options.items()) if k != "iterations"},
        _SHARDS: _shard_checksums(manifest),
    }
    if vectors is not None:
        description["vectors"] = _hash_rows(vectors)
    return description


def _shard_checksums(manifest: Manifest) -> list[str]:
    """Return a checksum for each shard, which includes the row exponents.

    Stores of X and 2 X differ only in the row exponents.
    """
    exponents = manifest.row_exponents.xxh3_128 if manifest.row_exponents else ""
    sums = [shard.xxh3_128 + exponents for shard in manifest.shards]
    return [xxhash.xxh3_128_hexdigest(text.encode())[:_CHECKSUM_DIGITS] for text in sums]


def _hash_rows(vectors: NDArray[Any]) -> str:
    digest = xxhash.xxh3_128()
    for vector in vectors:
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()[:_CHECKSUM_DIGITS]


def check_description(path: Path, recorded: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise if the description in a file has another task, other options or another matrix.

    Stores of the same matrix have at least one shard in common, because `repair` and
    `add_machine` do not change all shards.

    Raises
    ------
    InputError
        The message names the file and the difference.
    """
    shards = recorded.get(_SHARDS)
    if not isinstance(shards, list) or not any(shard in expected[_SHARDS] for shard in shards):
        raise InputError(
            f"{path} belongs to another matrix, or to another encoding of it: --resume continues "
            "only with the same task, options and matrix"
        )
    for name in dict.fromkeys((*expected, *recorded)):
        if name == _SHARDS:
            continue
        if recorded.get(name) != expected.get(name):
            old, new = (_value_text(d.get(name)) for d in (recorded, expected))
            raise InputError(
                f"{path} has {name} {old}, but this run has {new}: --resume continues only with "
                "the same task, options and matrix"
            )


def _value_text(value: Any) -> str:
    """Return a value as text, and options of the task as on the command line."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in value.items()) or "(none)"
    return shorten(value)
