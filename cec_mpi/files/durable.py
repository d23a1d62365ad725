"""Files that a crash cannot spoil: read and written in full, synced, renamed, locked."""

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
from cec_mpi.files.regular import kind_of, open_regular, read_regular, with_descriptors
from cec_mpi.files.replacing import open_own, partial_name, remove_abandoned, replacing, sync

log = logging.getLogger(__name__)

_LOCK = ".lock"
_TRIES = 5  # to get a lock that somebody holds who perhaps only looks whether it is held
_LOOKING_SECONDS = 0.02
_SHARE_OF_HANDLES = 16  # of the files that a process may open, this part for one thread


def read_at(descriptor: int, buffer: Any, offset: int) -> int:
    """Read from a place in a file until the array is full or the file ends; returns bytes."""
    view = memoryview(buffer).cast("B")
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if got == 0:
            break
        done += got
    return done


def write_at(descriptor: int, data: Any, offset: int) -> None:
    """Write all of an array or bytes to a place in a file."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def make_file(path: Path, header: bytes, size: int) -> None:
    """A new file that begins like this and has so many bytes."""
    with path.open("xb") as file:
        file.write(header)
        file.truncate(size)


def publish(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Put a file in the place of another at once: after a crash it is the old or the new."""
    with replacing(path, mode) as (descriptor, _):
        write_at(descriptor, data, 0)


def rename_copy(path: Path, other: Path) -> None:
    """Put what is in a file in the place of another at once; the file stays as it is."""
    remove_abandoned(other)
    partial = partial_name(other)
    try:
        os.link(path, partial, follow_symlinks=False)
    except OSError:  # a file system without links
        publish(other, read_regular(path, most=None))
        return
    partial.rename(other)
    partial.unlink(missing_ok=True)  # it is still there when both were one file already
    sync(other.parent)


def check_room(target: Path, needed: int) -> None:
    """Refuse what the disk has no room for.

    Raises
    ------
    InputError
        Names the file or directory that is to be made, and what is free.
    """
    parent = target.absolute().parent
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise InputError(f"{target} needs {needed} bytes, and {parent} has {free} bytes free")


@contextmanager
def locked(directory: Path, busy: str) -> Iterator[None]:
    """Be the only writer in a directory; the lock goes with the process.

    Raises
    ------
    InputError
        Another process holds it: `busy` says what that means.
    """
    descriptor = _lock(directory / _LOCK, busy)
    try:
        yield
    finally:
        (directory / _LOCK).unlink(missing_ok=True)
        os.close(descriptor)


def was_locked(directory: Path) -> bool:
    """Whether a writer has left its lock, as one does that is at work, or was killed."""
    return os.path.lexists(directory / _LOCK)


def is_locked(directory: Path) -> bool | None:
    """Whether a process is the writer in a directory; None where that cannot be told."""
    try:
        descriptor = open_regular(directory / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
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


def _lock(path: Path, busy: str) -> int:
    """Open and lock a file: one of its own, because NFS locks only what is open for writing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    refused = 0
    while True:
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                raise InputError(f"{path} is {kind_of(mode)}: expected a file, remove it")
        descriptor = with_descriptors(lambda: os.open(path, flags, 0o666), path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            refused += 1
            if refused == _TRIES:
                raise InputError(busy) from None
            time.sleep(_LOOKING_SECONDS)
            continue
        except OSError:
            log.warning("%s cannot be locked on this file system", path.parent)
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        os.close(descriptor)  # its last holder has removed it meanwhile


class WriteHandles:
    """Files of one directory that many places are written to, by one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, int] = {}
        # A store can have more shards than a process may have files open.
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, limit // _SHARE_OF_HANDLES)

    def write(self, name: str, data: Any, offset: int) -> None:
        """Write to a place in an existing file."""
        if name not in self._open:
            if len(self._open) >= self._most:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[name] = open_own(self._directory / name, os.O_WRONLY)
        write_at(self._open[name], data, offset)

    def close(self) -> None:
        """Close them all."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> WriteHandles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
