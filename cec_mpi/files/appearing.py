"""Files that users are given: they appear when they are complete, and replace nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.files.replacing import partial_name, remove_abandoned, sync


def check_new(target: Path) -> None:
    """Refuse a file that is there, or that no directory is there for.

    Raises
    ------
    InputError
        Names the file.
    """
    if is_there(target):
        raise InputError(f"{target} exists: give it a new name")
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{parent} is not a directory: cannot make {target}")


def is_there(target: Path) -> bool:
    """Return whether a file, a directory or a link has this name.

    Raises
    ------
    InputError
        No file can have this name, or its directory cannot be read.
    """
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{target} cannot be made: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{target} cannot be made: no file can have this name") from None
    return True


@contextmanager
def appearing(target: Path, *, again: bool = False) -> Iterator[Path]:
    """Give a name to write a file or a directory under, which gets its own name at the end.

    When the block raises, nothing of it stays.

    Parameters
    ----------
    target : Path
    again : bool
        Whether it may take the place of an earlier one, and of what a process that was killed
        has left of it.

    Raises
    ------
    InputError
        `target` has come into being meanwhile.
    """
    parent = target.absolute().parent
    partial = partial_name(target)
    if again:
        remove_abandoned(target)
    try:
        yield partial
        _sync_all(partial)
        if not again:
            check_new(target)
        partial.rename(target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)
    sync(parent)


def _sync_all(path: Path) -> None:
    for directory, _, names in os.walk(path):
        for name in names:
            sync(Path(directory, name))
        sync(Path(directory))
    if path.is_file():
        sync(path)
