"""What a task is given: options, also of ``--set key=value``, and the vectors of ``matvec``."""

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
from cec_mpi.text import closest


def task_options(task: Task, run: RunOptions, seed: int) -> dict[str, Any]:
    """What a task is given.

    Raises
    ------
    InputError
        It has no such option.
    """
    known = options_of(task)
    options = _parsed(run.settings)
    if task is TASKS["matvec"]:
        if options:
            raise InputError(f"--set {next(iter(options))}: task matvec has no such option")
        if run.iterations is not None:
            raise InputError("--iterations: task matvec has none, expected --steps T")
        return {}
    if run.vectors is not None:
        raise InputError(f"--vectors: task {run.task} takes none, only matvec does")
    if run.steps is not None and run.iterations is not None:
        raise InputError("--steps and --iterations: for this task they say the same, expected one")
    most = run.iterations if run.steps is None else run.steps
    if most is not None:
        options.setdefault("iterations", most)
    if known is None or "seed" in known:
        options.setdefault("seed", seed)
    if known is not None and not known >= set(options):
        wrong = sorted(set(options) - known)[0]
        raise InputError(
            f"--set {wrong}: task {run.task} takes {', '.join(sorted(known))}"
            f"{closest(wrong, known)}"
        )
    _check_call(task, run.task, options)
    return options


def _check_call(task: Task, name: str, options: Mapping[str, Any]) -> None:
    """Refuse a task that cannot be called with its checkpoint and these options."""
    parameters = list(inspect.signature(task).parameters.values())[1:]
    others = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    missing = [p.name for p in others if p.default is p.empty and p.name not in options]
    if wanted := [each for each in missing if each != "checkpoint"]:
        expected = " ".join(f"--set {each}=..." for each in wanted)
        raise InputError(f"task {name} needs {', '.join(wanted)}: expected {expected}")
    try:
        inspect.signature(task).bind(None, checkpoint=None, **options)
    except TypeError as error:
        raise InputError(
            f"task {name} cannot be called as a task is, with X and then, by name, checkpoint and "
            f"its options: {error}"
        ) from None


def _parsed(settings: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for setting in settings:
        key, value = _parse_setting(setting)
        if key in options:
            raise InputError(f"--set {setting}: {key} was {options[key]!r} before, expected one")
        options[key] = value
    return options


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key.isidentifier() or key == "checkpoint":
        raise InputError(f"--set {setting}: expected key=value")
    try:
        return key, ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return key, text


def read_vectors(path: str | None, manifest: Manifest, steps: int | None) -> NDArray[Any]:
    """The vectors of ``matvec``, memory-mapped.

    Raises
    ------
    InputError
        The file is none of vectors for this store, or one of them is not finite.
    """
    from cec_mpi.store.sources.binary import check_finite

    columns = manifest.columns
    if path is None:
        raise InputError("task matvec needs --vectors W.npy")
    vectors = open_npy(Path(path))
    if vectors.ndim != 2 or vectors.shape[1] != columns or not len(vectors):
        raise InputError(f"{path} has shape {vectors.shape}: expected (T, {columns}), T at least 1")
    check_finite(Path(path), len(vectors) if steps is None else steps)
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
