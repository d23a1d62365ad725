"""Replacement of files and in-place changes to them, never through a link.

A user with write access to a directory could plant a link to a file elsewhere. So a new file is
either created under a random name and then renamed, or created after the old one is unlinked. A
file is changed in place only if it has no other hard link.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cec_mpi.store.files.regular import NotAFileError, open_regular, retry_with_more_descriptors

_NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEFAULT_MODE = 0o666  # before the umask
_RANDOM_BYTES = 8


class LinkedFileError(OSError):
    """A file is a symbolic link or has several hard links; `kind` describes it."""

    def __init__(self, path: Path, kind: str) -> None:
        self.kind = kind
        super().__init__(
            errno.ELOOP, f"it is {kind}, expected a file without links", os.fspath(path)
        )


def open_in_place(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file for changes in place, and return its descriptor.

    Raises
    ------
    LinkedFileError
        The file is a symbolic link or has other hard links, so writing could change another file.
    OSError
        See `open_regular`.
    """
    if path.is_symlink():
        raise LinkedFileError(path, f"a link to {path.readlink()}")
    descriptor = open_regular(path, flags | os.O_NOFOLLOW)
    link_count = os.fstat(descriptor).st_nlink
    if link_count > 1:
        os.close(descriptor)
        raise LinkedFileError(path, f"one of {link_count} hard links to a file")
    return descriptor


def is_writable_in_place(path: Path) -> bool:
    """Return whether a file can be changed in place."""
    try:
        os.close(open_in_place(path))
    except OSError:
        return False
    return True


def create_or_replace(path: Path) -> int:
    """Create an empty file; it replaces a file or link of this name.

    Returns
    -------
    int
        Descriptor for reading and writing.

    Raises
    ------
    NotAFileError
        The path exists, and is neither a file nor a link.
    OSError
        The file cannot be created.
    """
    _check_replaceable(path)
    path.unlink(missing_ok=True)
    return retry_with_more_descriptors(lambda: os.open(path, _NEW_FILE_FLAGS, _DEFAULT_MODE), path)


def _check_replaceable(path: Path) -> None:
    """Raise if a path exists, and is neither a file nor a link."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise NotAFileError(path, mode)


@contextmanager
def replacing(path: Path, mode: int = _DEFAULT_MODE) -> Iterator[tuple[int, Path]]:
    """Yield a temporary file, which replaces `path` atomically if the context ends without error.

    Parameters
    ----------
    path : Path
    mode : int
        Mode of the new file, before the umask.

    Yields
    ------
    int, Path
        Descriptor for reading and writing, and the temporary path.

    Raises
    ------
    NotAFileError
        The path exists, and is neither a file nor a link.
    OSError
        The file cannot be created.
    """
    _check_replaceable(path)
    with temporary_file(path, mode) as (descriptor, temporary_path):
        yield descriptor, temporary_path
        os.fsync(descriptor)
        temporary_path.rename(path)
    sync(path.parent)


@contextmanager
def temporary_file(path: Path, mode: int = _DEFAULT_MODE) -> Iterator[tuple[int, Path]]:
    """Yield a temporary file in the directory of `path`, and remove it at the end.

    Temporary files of killed processes are removed first.

    Yields
    ------
    int, Path
        Descriptor for reading and writing, and the path.

    Raises
    ------
    OSError
        The file cannot be created.
    """
    path = path.absolute()
    remove_abandoned(path)
    descriptor, temporary_path = _create_locked(
        path, lambda candidate: os.open(candidate, _NEW_FILE_FLAGS, mode)
    )
    try:
        yield descriptor, temporary_path
    finally:
        temporary_path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary directory; see `temporary_file`."""
    path = path.absolute()
    remove_abandoned(path)

    def make(candidate: Path) -> int:
        while True:
            candidate.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # removed by another process as abandoned
                return os.open(candidate, DIR_FLAGS)

    descriptor, temporary_path = _create_locked(path, make)
    try:
        yield temporary_path
    finally:
        shutil.rmtree(temporary_path, ignore_errors=True)
        os.close(descriptor)


def partial_path(path: Path) -> Path:
    """Return a random path for a temporary file in the directory of `path`."""
    return path.with_name(f".{path.name}.partial.{os.urandom(_RANDOM_BYTES).hex()}")


def remove_abandoned(path: Path) -> None:
    """Remove temporary files and directories for `path` that killed processes left."""
    pattern = re.compile(re.escape(f".{path.name}.partial.") + f"[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    for candidate in path.parent.iterdir():
        if pattern.fullmatch(candidate.name):
            with suppress(OSError):  # in use, removed by another process, or another user's
                _remove_if_abandoned(candidate)


def _create_locked(path: Path, make: Callable[[Path], int]) -> tuple[int, Path]:
    """Create a temporary file or directory, and lock it to mark it as in use."""
    while True:
        temporary_path = partial_path(path)
        descriptor = retry_with_more_descriptors(partial(make, temporary_path), path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):  # a file system without locks
                return descriptor, temporary_path
        else:
            if os.fstat(descriptor).st_nlink:
                return descriptor, temporary_path
        os.close(descriptor)  # another process removed it before it was locked


def _remove_if_abandoned(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
        return
    is_directory = path.is_dir()
    descriptor = (
        os.open(path, DIR_FLAGS) if is_directory else open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_directory:
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
