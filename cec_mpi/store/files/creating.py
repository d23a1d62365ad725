"""Creation of files and directories, which appear when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.store.files.paths import directory_problem
from cec_mpi.store.files.replacing import sync, temporary_directory


def check_new(target: Path) -> None:
    """Raise if a path exists, or if its directory does not.

    Raises
    ------
    InputError
        The path exists, or cannot be created. The message names it.
    """
    if path_exists(target):
        raise InputError(f"{target} exists already: choose another name")
    parent = target.absolute().parent
    if problem := directory_problem(parent):
        raise InputError(f"{target} cannot be created: {parent} {problem}")


def path_exists(target: Path) -> bool:
    """Return whether a path exists, possibly as a broken link.

    Raises
    ------
    InputError
        The path is invalid, or its directory cannot be read.
    """
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{target} cannot be created: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{target} cannot be created: files cannot have this name") from None
    return True


@contextmanager
def new_path(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the path of a file or directory to create, which is renamed to `target` at the end.

    The path is in a temporary directory. If this process is killed, the next process that creates
    `target` removes the directory.

    Parameters
    ----------
    target : Path
    overwrite : bool
        Whether `target` may exist.

    Raises
    ------
    InputError
        Another process has created `target`.
    """
    with temporary_directory(target) as directory:
        partial = directory / target.name
        yield partial
        _publish(partial, target, overwrite)


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory that is renamed to `target` at the end; see `new_path`."""
    with temporary_directory(target) as partial:
        yield partial
        _publish(partial, target, overwrite=False)


def _publish(partial: Path, target: Path, overwrite: bool) -> None:
    _sync_all(partial)
    if not overwrite:
        check_new(target)
    partial.rename(target)
    sync(target.absolute().parent)


def _sync_all(path: Path) -> None:
    for directory, _, names in os.walk(path):
        for name in names:
            sync(Path(directory, name))
        sync(Path(directory))
    if path.is_file():
        sync(path)
