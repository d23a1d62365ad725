"""The directory of a run, which may hold results of an earlier run."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.store.files.durable import is_locked
from cec_mpi.store.files.regular import check_regular, kind_of, open_regular, read_regular

STEPS = "steps.jsonl"
SUMMARY = "summary.json"
SUMMARY_VERSION = 1
RESULT = "result.npy"
CHECKPOINT = "checkpoint.npz"
PREVIOUS_CHECKPOINT = "checkpoint.previous.npz"
_RESULTS = (STEPS, SUMMARY, RESULT, CHECKPOINT, PREVIOUS_CHECKPOINT)
_STORE_FILES = ("manifest.json", "incomplete.json")  # of complete and incomplete stores
_EARLIER_RESULTS = ".earlier"
_MAX_HEADER_BYTES = 1 << 26


@contextmanager
def _directory_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None


def prepare_directory(path: Path, allow_existing: bool) -> None:
    """Create the directory of a run.

    Raises
    ------
    InputError
        It holds results and `allow_existing` is False, it is a store, or it cannot be created.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = stat.S_IFDIR  # does not exist, and is created below
    if not stat.S_ISDIR(mode):
        raise InputError(
            f"{path} cannot be used for results: it is {kind_of(mode)}, expected a directory"
        )
    with _directory_errors(path):
        results = existing_results(path)
    for name in results:
        check_regular(path / name)
    if results and not allow_existing and not _has_no_steps(path, results):
        names = ", ".join(results)
        can_resume = not {CHECKPOINT, PREVIOUS_CHECKPOINT}.isdisjoint(results)
        if SUMMARY in results or not (can_resume or STEPS in results):
            raise InputError(
                f"{path} holds results ({names}): use --resume, --overwrite or another DIR"
            )
        raise InputError(
            f"{path} holds an incomplete run ({names}): --resume "
            f"{'continues it' if can_resume else 'restarts it, because it has no checkpoint'}, "
            "--overwrite starts from the beginning, or use another DIR"
        )
    for directory in (path, path.absolute().parent):
        if any((directory / name).exists() for name in _STORE_FILES):
            raise InputError(
                f"{path} is a store, or in a store: expected another directory for results"
            )
    if (path / "logs").is_symlink():
        raise InputError(f"{path / 'logs'} is a link: expected a directory")
    with _directory_errors(path):
        (path / "logs").mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be used for results: it cannot be written")


def existing_results(path: Path) -> list[str]:
    """Return the names of result files in a directory."""
    return [name for name in _RESULTS if os.path.lexists(path / name)]


@contextmanager
def remove_if_rejected(path: Path) -> Iterator[None]:
    """Remove the directory of a run and its logs if the run is rejected.

    Only directories that were created in this context and contain no results are removed.
    """
    created = [
        directory
        for directory in (path / "logs", path, *path.parents)
        if not os.path.lexists(directory)
    ]
    try:
        yield
    except (InputError, InfeasibleError):
        if path / "logs" in created and not existing_results(path) and is_locked(path) is False:
            shutil.rmtree(path / "logs", ignore_errors=True)
            with suppress(OSError):  # it is not empty
                for directory in created[1:]:
                    directory.rmdir()
        raise


def _has_no_steps(path: Path, results: list[str]) -> bool:
    """Return whether the directory belongs to a run that was killed before its first step."""
    if not {STEPS} <= {*results} <= {STEPS, RESULT} or has_earlier_results(path) or is_locked(path):
        return False
    try:
        with os.fdopen(open_regular(path / STEPS), "rb") as stream:
            header = stream.readline(_MAX_HEADER_BYTES)
            is_header_only = not header or header.startswith(b'{"kind":"header"')
            return is_header_only and not stream.read(1)
    except OSError:
        return False


def has_checkpoint(path: Path) -> bool:
    """Return whether a directory has a checkpoint, which may be damaged."""
    return any((path / name).exists() for name in (CHECKPOINT, PREVIOUS_CHECKPOINT))


def move_results_aside(path: Path) -> None:
    """Move the results of an earlier run to a subdirectory.

    Checkpoints are moved before the records. Otherwise a killed run could leave a checkpoint
    without records, and ``--resume`` would continue from that checkpoint.

    Raises
    ------
    InputError
        The directory cannot be written.
    """
    with _directory_errors(path):
        subdirectory = path / _EARLIER_RESULTS
        if subdirectory.is_symlink():
            subdirectory.unlink()
        for name in reversed(_results_and_arrays(path)):
            subdirectory.mkdir(exist_ok=True)
            (path / name).rename(subdirectory / name)


def has_earlier_results(path: Path) -> bool:
    """Return whether results of an earlier run were moved to the subdirectory."""
    return (path / _EARLIER_RESULTS).is_dir()


def discard_earlier_results(path: Path) -> None:
    """Remove the results of an earlier run, because this run has its own."""
    shutil.rmtree(path / _EARLIER_RESULTS, ignore_errors=True)


def restore_results(path: Path) -> None:
    """Replace the results of this run with those of the earlier run."""
    for name in _RESULTS:
        (path / name).unlink(missing_ok=True)
    if has_earlier_results(path) and not (path / _EARLIER_RESULTS).is_symlink():
        for file in (path / _EARLIER_RESULTS).iterdir():
            file.rename(path / file.name)
        (path / _EARLIER_RESULTS).rmdir()


def read_summary(path: Path) -> dict[str, Any] | None:
    """Return the summary in a directory; None if no run has finished."""
    try:
        summary = json.loads(read_regular(path / SUMMARY))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(summary, dict) or not isinstance(summary.get("run", {}), dict):
        return None
    return summary


def _results_and_arrays(path: Path) -> list[str]:
    """Return the names of result files in a directory, and of additional arrays of the task."""
    arrays = (read_summary(path) or {}).get("arrays")
    if not isinstance(arrays, list):
        arrays = []  # the run has not finished
    names = [f"{name}.npy" for name in arrays if isinstance(name, str) and name.isidentifier()]
    return [name for name in dict.fromkeys((*_RESULTS, *names)) if os.path.lexists(path / name)]
