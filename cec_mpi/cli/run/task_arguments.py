"""Arguments of a task: its options, KEY=VALUE, and the vectors of ``matvec``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.cli.run.options import RunOptions
from cec_mpi.errors import InputError
from cec_mpi.store.files.npy import open_npy
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.tasks import TASKS, Task, options_of
from cec_mpi.tasks.common.options import check_integer
from cec_mpi.text import join_names, suggest

MATVEC_OPTIONS = {
    "vectors": "a .npy file of shape (T, r) with one vector per row; required",
    "iterations": "number of vectors to multiply, starting with the first; default all",
}


def option_names(task: Task) -> set[str] | None:
    """Return the names of a task's options on the command line; None if any name is accepted."""
    return set(MATVEC_OPTIONS) if task is TASKS["matvec"] else options_of(task)


def parse_task_options(task: Task, run: RunOptions, seed: int) -> dict[str, Any]:
    """Return the options of a task.

    Raises
    ------
    InputError
        An option is unknown, repeated or invalid, or a required one is missing. The option
        ``vectors`` of ``matvec`` is checked by `read_vectors` instead.
    """
    options = _parse_options(run.task_options)
    is_matvec = task is TASKS["matvec"]
    names = option_names(task)
    if names is None or "seed" in names:
        options.setdefault("seed", seed)
    if names is not None and not names >= set(options):
        unknown = sorted(set(options) - names)[0]
        hint = ""
        if is_matvec:
            tasks = [name for name in TASKS if unknown in (option_names(TASKS[name]) or ())]
            hint = "; the default task is matvec: name a task before the options"
            hint += f", such as {join_names(tasks)}" if tasks else ""
        raise InputError(
            f"task {run.task} has no option {unknown}{suggest(unknown, names)}: expected "
            f"{', '.join(sorted(names)) or 'no options'}{hint}"
        )
    if not is_matvec:
        _check_call(task, run.task, options)
    elif "iterations" in options:
        check_integer("iterations", options["iterations"], 1)
    return options


def _check_call(task: Task, name: str, options: Mapping[str, Any]) -> None:
    """Raise if a task cannot be called with X and these options."""
    parameters = list(inspect.signature(task).parameters.values())[1:]
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in options]
    if required := [parameter for parameter in missing if parameter != "checkpoint"]:
        expected = " ".join(f"{parameter}=..." for parameter in required)
        raise InputError(f"task {name} needs {join_names(required)}: expected {expected}")
    try:
        inspect.signature(task).bind(None, **select_arguments(task, checkpoint=None), **options)
    except TypeError as error:
        raise InputError(
            f"task {name} cannot be called as task(X, option=value, ...): {error}"
        ) from None


def select_arguments(task: Task, **arguments: Any) -> dict[str, Any]:
    """Return the arguments for which the task has a parameter."""
    parameters = inspect.signature(task).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def _parse_options(texts: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key == "checkpoint":
            raise InputError(f"{text}: the run sets the checkpoint itself, expected another option")
        if key in options:
            raise InputError(f"{text}: {key} is already set to {options[key]!r}, expected it once")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            options[key] = value
    return options


def read_vectors(path: str | None, manifest: Manifest, limit: int | None) -> NDArray[Any]:
    """Return the memory-mapped vectors of ``matvec``, after checking the first `limit` of them.

    Raises
    ------
    InputError
        The path is None, the file does not hold vectors for this store, or a value is not finite.
    """
    from cec_mpi.encoding.sources.binary import check_finite

    columns = manifest.columns
    if path is None:
        raise InputError("task matvec needs a file of vectors: expected vectors=W.npy")
    vectors = open_npy(as_path(path))
    if vectors.ndim != 2 or vectors.shape[1] != columns or not len(vectors):
        raise InputError(
            f"{path} has shape {vectors.shape}, expected (T, {columns}) with T at least 1"
        )
    check_finite(Path(path), len(vectors) if limit is None else limit)
    return vectors


@dataclass(frozen=True)
class WatchedVectors:
    """A file of vectors that must not be modified, because a run reads it step by step.

    Replacing it with another file is allowed, because the run keeps the first file open.

    Attributes
    ----------
    path : Path
    inode, size, mtime_ns : int
        Inode, size in bytes, and modification time at the beginning.
    """

    path: Path
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def from_path(cls, path: str | None) -> WatchedVectors | None:
        """Return the current state of a file, or None if it cannot be read."""
        try:
            status = Path(path or "").stat()
        except (OSError, ValueError):
            return None
        return cls(Path(path or ""), status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raise `InputError` if the file has changed since the beginning of the run."""
        try:
            status = self.path.stat()
        except OSError:  # the file was deleted, but the run has it open
            return
        if status.st_ino == self.inode and (status.st_size, status.st_mtime_ns) != (
            self.size,
            self.mtime_ns,
        ):
            raise InputError(
                f"{self.path} was modified during the run: restore its content, and continue with "
                "--resume"
            )
