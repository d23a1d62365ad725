"""What a task is given: its options, ``key=value``, and the vectors of ``matvec``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.npy import open_npy
from cec_mpi.run.options import RunOptions
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.tasks import TASKS, Task, options_of
from cec_mpi.tasks.common.options import whole
from cec_mpi.text import closest

CHECKPOINT = "checkpoint"
OF_MATVEC = {
    "vectors": "a .npy file of shape (T, r), one vector in each row; required",
    "iterations": "only the first T vectors",
}


def task_options(task: Task, run: RunOptions, seed: int) -> dict[str, Any]:
    """What a task is given.

    Raises
    ------
    InputError
        It has no such option.
    """
    options = _parsed(run.settings)
    known = set(OF_MATVEC) if task is TASKS["matvec"] else options_of(task)
    if task is not TASKS["matvec"] and (known is None or "seed" in known):
        options.setdefault("seed", seed)
    if known is not None and not known >= set(options):
        wrong = sorted(set(options) - known)[0]
        raise InputError(
            f"{wrong}: task {run.task} takes {', '.join(sorted(known))}{closest(wrong, known)}"
        )
    if task is TASKS["matvec"]:
        if "iterations" in options:
            whole("iterations", options["iterations"], 1)
        return options
    _check_call(task, run.task, options)
    return options


def _check_call(task: Task, name: str, options: Mapping[str, Any]) -> None:
    """Refuse a task that cannot be called with X and these options."""
    parameters = list(inspect.signature(task).parameters.values())[1:]
    others = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    missing = [p.name for p in others if p.default is p.empty and p.name not in options]
    if wanted := [each for each in missing if each != CHECKPOINT]:
        expected = " ".join(f"{each}=..." for each in wanted)
        raise InputError(f"task {name} needs {', '.join(wanted)}: expected {expected}")
    try:
        inspect.signature(task).bind(None, **of_run(task, checkpoint=None), **options)
    except TypeError as error:
        raise InputError(
            f"task {name} cannot be called with X and its options by name: {error}"
        ) from None


def of_run(task: Task, **given: Any) -> dict[str, Any]:
    """Those of the things that a run gives to tasks which this task has a parameter for."""
    parameters = inspect.signature(task).parameters
    return {name: value for name, value in given.items() if name in parameters}


def _parsed(settings: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for setting in settings:
        key, value = _parse_setting(setting)
        if key in options:
            raise InputError(f"{setting}: {key} was {options[key]!r} before, expected one")
        options[key] = value
    return options


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, _, text = setting.partition("=")
    if key == CHECKPOINT:
        raise InputError(f"{setting}: expected an option of the task")
    try:
        return key, ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return key, text


def read_vectors(path: str | None, manifest: Manifest, most: int | None) -> NDArray[Any]:
    """The vectors of ``matvec``, memory-mapped, of which the first `most` are used, or all.

    Raises
    ------
    InputError
        The file is none of vectors for this store, or one of them is not finite.
    """
    from cec_mpi.encoding.sources.binary import check_finite

    columns = manifest.columns
    if path is None:
        raise InputError("task matvec needs vectors: expected vectors=W.npy")
    vectors = open_npy(Path(path))
    if vectors.ndim != 2 or vectors.shape[1] != columns or not len(vectors):
        raise InputError(f"{path} has shape {vectors.shape}: expected (T, {columns}), T at least 1")
    check_finite(Path(path), len(vectors) if most is None else most)
    return vectors


@dataclass(frozen=True)
class WatchedVectors:
    """A file of vectors that a run reads as it goes: it may not be written to meanwhile.

    What takes its name does no harm: the run has the file that it has opened.

    Attributes
    ----------
    path : Path
    number, size, written : int
        Of its inode, in bytes, and when, as it was at first.
    """

    path: Path
    number: int
    size: int
    written: int

    @classmethod
    def at(cls, path: str | None) -> WatchedVectors | None:
        """The file as it is now; None where there is none, as whoever opens it says."""
        try:
            status = Path(path or "").stat()
        except (OSError, ValueError):
            return None
        return cls(Path(path or ""), status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Refuse to go on with other vectors than the run began with.

        Raises
        ------
        InputError
            It was written to.
        """
        try:
            now = self.path.stat()
        except OSError:  # it has lost its name, and is there still
            return
        if now.st_ino == self.number and (now.st_size, now.st_mtime_ns) != (
            self.size,
            self.written,
        ):
            raise InputError(
                f"{self.path} was written to while the run read it: expected the vectors that it "
                "began with; --resume goes on when they are there again"
            )
