"""Crash-safe file operations: complete reads and writes, atomic replacement, locks."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cec_mpi.errors import CecError, InputError
from cec_mpi.store.files.regular import (
    kind_of,
    open_regular,
    read_regular,
    retry_with_more_descriptors,
)
from cec_mpi.store.files.replacing import (
    open_in_place,
    partial_path,
    remove_abandoned,
    replacing,
    sync,
)

log = logging.getLogger(__name__)

_LOCK_FILE = ".lock"
_MAX_ATTEMPTS = 5  # to get a lock, which `is_locked` in another process holds briefly
_RETRY_SECONDS = 0.02
_MAX_DESCRIPTOR_FRACTION = 1 / 16  # of the file descriptors of a process, for a thread


def read_at(descriptor: int, buffer: Any, offset: int) -> int:
    """Read from an offset until the buffer is full or the file ends; return the number of bytes."""
    view = memoryview(buffer).cast("B")
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def write_at(descriptor: int, data: Any, offset: int) -> None:
    """Write all of an array or bytes at an offset of a file."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def make_file(path: Path, header: bytes, size: int) -> None:
    """Create a file of this size that starts with a header."""
    with path.open("xb") as file:
        file.write(header)
        file.truncate(size)


def publish(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically: after a crash, either the old or the new file exists."""
    with replacing(path, mode) as (descriptor, _):
        write_at(descriptor, data, 0)


def replace_by_link(source: Path, target: Path) -> None:
    """Replace `target` atomically by a hard link to `source`, or by a copy without links."""
    remove_abandoned(target)
    partial = partial_path(target)
    try:
        os.link(source, partial, follow_symlinks=False)
    except OSError:  # a file system without links
        publish(target, read_regular(source, max_bytes=None))
        return
    partial.rename(target)
    partial.unlink(missing_ok=True)  # exists if source and target were already the same file
    sync(target.parent)


def check_free_space(target: Path, size: int) -> None:
    """Raise if the disk has no space for a file or directory of this size.

    Raises
    ------
    InputError
        Names the file or directory to create, and the free space.
    """
    parent = target.absolute().parent
    free = shutil.disk_usage(parent).free
    if size > free:
        raise InputError(f"{target} needs {size} bytes, but {parent} has only {free} bytes free")


@contextmanager
def locked(directory: Path, message: str = "", name: str = _LOCK_FILE) -> Iterator[None]:
    """Lock a directory for writing until the context or the process ends.

    Parameters
    ----------
    directory : Path
    message : str
        Error message if another process holds the lock; if empty, wait for that process.
    name : str
        Name of the lock file in the directory.

    Raises
    ------
    InputError
        Another process holds the lock and `message` is not empty, or the lock file is not a regular
        file.
    """
    descriptor = _lock(directory / name, message)
    try:
        yield
    finally:
        (directory / name).unlink(missing_ok=True)
        os.close(descriptor)


def has_lock_file(directory: Path) -> bool:
    """Return whether the lock file of a running or killed writer exists."""
    return os.path.lexists(directory / _LOCK_FILE)


def is_locked(directory: Path) -> bool | None:
    """Return whether a process holds the lock of a directory; None if this cannot be determined."""
    try:
        descriptor = open_regular(directory / _LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except (OSError, CecError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _lock(path: Path, message: str) -> int:
    """Open a file for writing, which NFS requires for an exclusive lock, and lock it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    attempts = 0
    while True:
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                raise InputError(f"{path} is {kind_of(mode)}, expected a file: remove it")
        descriptor = retry_with_more_descriptors(lambda: os.open(path, flags, 0o666), path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
        except BlockingIOError:
            os.close(descriptor)
            attempts += 1
            if attempts == _MAX_ATTEMPTS:
                raise InputError(message) from None
            time.sleep(_RETRY_SECONDS)
            continue
        except OSError:
            log.warning("%s cannot be locked on this file system", path.parent)
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        os.close(descriptor)  # the process that held the lock has removed the file


class FileCache:
    """Open files of a directory, for one thread that writes at many offsets."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptors: dict[str, int] = {}
        # A store can have more shards than a process may open files.
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_open = max(1, int(limit * _MAX_DESCRIPTOR_FRACTION))

    def write(self, name: str, data: Any, offset: int) -> None:
        """Write at an offset of an existing file."""
        if name not in self._descriptors:
            if len(self._descriptors) >= self._max_open:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
            self._descriptors[name] = open_in_place(self._directory / name, os.O_WRONLY)
        write_at(self._descriptors[name], data, offset)

    def __enter__(self) -> FileCache:
        return self

    def __exit__(self, *_: object) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
