"""Files that are written to as entries of their own directory: never through a link.

Whoever may write to a directory could put a link there, under a name that we are going to
write to, and have us write to the file of somebody else. So a new file comes into being under
a name that nobody can guess, or not at all, and takes its place by renaming; and a file is
written to in place only where it has no other name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cec_mpi.files.regular import NotAFileError, open_regular, with_descriptors

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666  # less the process's mask
_RANDOM_BYTES = 8


class NotOwnError(OSError):
    """A file is a link, or has other names; `kind` says which."""

    def __init__(self, path: Path, kind: str) -> None:
        self.kind = kind
        super().__init__(errno.ELOOP, f"it is {kind}, expected a file of its own", os.fspath(path))


def open_own(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file to write to it in place; returns its descriptor.

    Raises
    ------
    NotOwnError
        It is a symbolic link, or has other names: writing would change another file.
    OSError
        As `open_regular`.
    """
    if path.is_symlink():
        raise NotOwnError(path, f"a link to {path.readlink()}")
    descriptor = open_regular(path, flags | os.O_NOFOLLOW)
    names = os.fstat(descriptor).st_nlink
    if names > 1:
        os.close(descriptor)
        raise NotOwnError(path, f"one of {names} names of a file")
    return descriptor


def is_own(path: Path) -> bool:
    """Whether it is a file that can be written to in place."""
    try:
        os.close(open_own(path))
    except OSError:
        return False
    return True


def create_new(path: Path) -> int:
    """An empty file under this name, in the place of a file or link that has it.

    Returns
    -------
    int
        Its descriptor, for reading and writing.

    Raises
    ------
    NotAFileError
        What has the name is neither.
    OSError
        It cannot be made.
    """
    if _is_there(path):
        path.unlink(missing_ok=True)
    return with_descriptors(lambda: os.open(path, _NEW, _MODE), path)


def _is_there(path: Path) -> bool:
    """Whether a file or a link has a name; what is neither keeps it."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise NotAFileError(path, mode)
    return True


@contextmanager
def replacing(path: Path, mode: int = _MODE) -> Iterator[tuple[int, Path]]:
    """A new file that takes the place of another at once, when it is complete and on the disk.

    Parameters
    ----------
    path : Path
    mode : int
        Of the new file, less the process's mask.

    Yields
    ------
    int, Path
        The descriptor of the new file, for reading and writing, and its name until then.

    Raises
    ------
    NotAFileError
        What has the name is neither a file nor a link.
    OSError
        The file cannot be made.
    """
    _is_there(path)
    with temporary(path, mode) as (descriptor, new):
        yield descriptor, new
        os.fsync(descriptor)
        new.rename(path)
    sync(path.parent)


@contextmanager
def temporary(path: Path, mode: int = _MODE) -> Iterator[tuple[int, Path]]:
    """A new file beside a file or directory, which is removed at the end, if it still is there.

    Those that processes left which were killed are removed now.

    Yields
    ------
    int, Path
        Its descriptor, for reading and writing, and its name.

    Raises
    ------
    OSError
        The file cannot be made.
    """
    path = path.absolute()
    remove_abandoned(path)
    descriptor, new = _create_locked(path, mode)
    try:
        yield descriptor, new
    finally:
        new.unlink(missing_ok=True)
        os.close(descriptor)


def partial_name(path: Path) -> Path:
    """A name beside a file that nobody can guess."""
    return path.with_name(f".{path.name}.partial.{os.urandom(_RANDOM_BYTES).hex()}")


def remove_abandoned(path: Path) -> None:
    """Remove what processes have left that were killed while they wrote a file."""
    name = re.compile(re.escape(f".{path.name}.partial.") + f"[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    for other in path.parent.iterdir():
        if name.fullmatch(other.name):
            with suppress(OSError):  # somebody else has removed it, or it is not ours
                _remove_if_abandoned(other)


def _create_locked(path: Path, mode: int) -> tuple[int, Path]:
    """A new file, and its name; the lock says that somebody is at work on it."""
    while True:
        new = partial_name(path)
        descriptor = with_descriptors(partial(os.open, new, _NEW, mode), path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):  # a file system without locks
                return descriptor, new
        else:
            if os.fstat(descriptor).st_nlink:
                return descriptor, new
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_if_abandoned(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
        return
    descriptor = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
