"""The directory of a run, and the results of an earlier run in it."""

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
_STORES = ("manifest.json", "incomplete.json")  # files of complete and incomplete stores
_EARLIER = ".earlier"
_MAX_HEADER_BYTES = 1 << 26  # bytes


@contextmanager
def _directory_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be used for results: {error.strerror}") from None


def prepare_directory(path: Path, allow_existing: bool) -> None:
    """Make the directory of a run.

    Raises
    ------
    InputError
        It holds results and `allow_existing` is false, it is a store, or it cannot be made.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = stat.S_IFDIR  # created below, or an error says why not
    if not stat.S_ISDIR(mode):
        raise InputError(
            f"{path} cannot be used for results: it is {kind_of(mode)}, expected a directory"
        )
    with _directory_errors(path):
        found = earlier_results(path)
    for name in found:
        check_regular(path / name)
    if found and not allow_existing and not _has_no_steps(path, found):
        what = ", ".join(found)
        can_resume = not {CHECKPOINT, PREVIOUS_CHECKPOINT}.isdisjoint(found)
        if SUMMARY in found or not (can_resume or STEPS in found):
            raise InputError(
                f"{path} holds results ({what}): use --resume, --overwrite or a new DIR"
            )
        raise InputError(
            f"{path} holds an incomplete run ({what}): --resume "
            f"{'continues it' if can_resume else 'restarts it, because there is no checkpoint'}, "
            "--overwrite starts from the beginning, or use a new DIR"
        )
    for directory in (path, path.absolute().parent):
        if any((directory / name).exists() for name in _STORES):
            raise InputError(
                f"{path} is a store, or in one: give the results a directory of their own"
            )
    if (path / "logs").is_symlink():
        raise InputError(f"{path / 'logs'} is a link: expected a directory, or nothing")
    with _directory_errors(path):
        (path / "logs").mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be used for results: it cannot be written")


def earlier_results(path: Path) -> list[str]:
    """Return the names of files in the directory that runs have written."""
    return [name for name in _RESULTS if os.path.lexists(path / name)]


@contextmanager
def remove_if_rejected(path: Path) -> Iterator[None]:
    """Remove the directory of a run and its logs at the end if the run was refused.

    They are removed if this context created them, raises an input error, and leaves no results.
    """
    made = [
        directory
        for directory in (path / "logs", path, *path.parents)
        if not os.path.lexists(directory)
    ]
    try:
        yield
    except (InputError, InfeasibleError):
        has_results = any(os.path.lexists(path / name) for name in _RESULTS)
        if path / "logs" in made and not has_results and is_locked(path) is False:
            shutil.rmtree(path / "logs", ignore_errors=True)
            with suppress(OSError):  # something else is in it
                for directory in made[1:]:
                    directory.rmdir()
        raise


def _has_no_steps(path: Path, found: list[str]) -> bool:
    """Return whether a run was killed here before its first step."""
    if not {STEPS} <= {*found} <= {STEPS, RESULT} or has_earlier_results(path) or is_locked(path):
        return False
    try:
        with os.fdopen(open_regular(path / STEPS), "rb") as stream:
            header = stream.readline(_MAX_HEADER_BYTES)
            is_header_only = not header or header.startswith(b'{"kind":"header"')
            return is_header_only and not stream.read(1)
    except OSError:
        return False


def has_checkpoint(path: Path) -> bool:
    """Return whether a directory has a checkpoint, damaged or not."""
    return any((path / name).exists() for name in (CHECKPOINT, PREVIOUS_CHECKPOINT))


def set_results_aside(path: Path) -> None:
    """Set the results of an earlier run aside.

    Checkpoints are moved first: otherwise a killed run could leave a checkpoint without records,
    and ``--resume`` would continue from it.

    Raises
    ------
    InputError
        It cannot be written.
    """
    with _directory_errors(path):
        aside = path / _EARLIER
        if aside.is_symlink():
            aside.unlink()
        for name in reversed(_results_in(path)):
            aside.mkdir(exist_ok=True)
            (path / name).rename(aside / name)


def has_earlier_results(path: Path) -> bool:
    """Return whether results of an earlier run were set aside."""
    return (path / _EARLIER).is_dir()


def discard_earlier(path: Path) -> None:
    """Remove the results that were set aside, because the run has its own."""
    shutil.rmtree(path / _EARLIER, ignore_errors=True)


def restore_results(path: Path) -> None:
    """Remove the files of the run and restore those that were set aside."""
    for name in _RESULTS:
        (path / name).unlink(missing_ok=True)
    if (path / _EARLIER).is_dir() and not (path / _EARLIER).is_symlink():
        for earlier in (path / _EARLIER).iterdir():
            earlier.rename(path / earlier.name)
        (path / _EARLIER).rmdir()


def read_summary(path: Path) -> dict[str, Any] | None:
    """Return the summary in a directory; None if no run finished there."""
    try:
        summary = json.loads(read_regular(path / SUMMARY))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(summary, dict) or not isinstance(summary.get("run", {}), dict):
        return None
    return summary


def _results_in(path: Path) -> list[str]:
    """Return the names of the files of a run's results, with further arrays of its task."""
    arrays = (read_summary(path) or {}).get("arrays")
    if not isinstance(arrays, list):
        arrays = []  # no run that came to its end
    names = [f"{name}.npy" for name in arrays if isinstance(name, str) and name.isidentifier()]
    return [name for name in dict.fromkeys((*_RESULTS, *names)) if os.path.lexists(path / name)]
