"""Opening of regular files; a FIFO, socket or device is rejected without opening it.

An error because the process or the computer lacks a resource does not mean that the file is
damaged, so it is a `ShortageError`.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from cec_mpi.errors import InputError, ShortageError

# Two changes of a file within one step of its clock have the same time.
_CLOCK_STEP = 100_000_000  # ns; ten times the longest step of a kernel clock (1 to 10 ms)
_COARSE_CLOCK_STEP = 2_100_000_000  # ns; on file systems that store whole seconds
_SECOND = 1_000_000_000  # ns

# A write through a memory map changes the times of a file only if the page was clean. The kernel
# cleans dirty pages after half a minute by default.
_WRITEBACK_SECONDS = 60.0

_Stamp = tuple[int, int, int]  # size in bytes, mtime and ctime in ns
T = TypeVar("T")
_FILE_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)
_MAX_READ_BYTES = 256 << 20  # more than any text file, journal or file of labels has
# Errors that do not concern the file: a resource is exhausted, or a file system is unavailable.
_SHORTAGES = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.ESHUTDOWN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ESTALE,
}


class ChangeDetector:
    """Detects changes of an open file by its size and times.

    Parameters
    ----------
    descriptor : int
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._uncertain_until = 0.0
        status = os.fstat(descriptor)
        self._stamp = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        self._is_next_change_detectable = _is_next_change_detectable(self._stamp)

    def has_changed(self) -> bool:
        """Return whether the file may have changed since the last call.

        It may be True without a change. It may be False after a change if the file system does not
        record times, for example of writes to a tmpfs through a memory map.
        """
        status = os.fstat(self._descriptor)
        old, new = self._stamp, (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if new == old and self._is_next_change_detectable:  # as in nearly every step
            return self._uncertain_until > 0 and time.monotonic() < self._uncertain_until
        self._stamp, self._is_next_change_detectable = new, _is_next_change_detectable(new)
        if old[:2] != new[:2]:
            self._uncertain_until = time.monotonic() + _WRITEBACK_SECONDS
        return True


def _is_next_change_detectable(stamp: _Stamp) -> bool:
    """Return whether the next change will change the size or times."""
    _, mtime, ctime = stamp
    step = _CLOCK_STEP if mtime % _SECOND or ctime % _SECOND else _COARSE_CLOCK_STEP
    return abs(time.time_ns() - max(mtime, ctime)) > step


class NotAFileError(OSError):
    """A path is not a regular file; `kind` describes it."""

    def __init__(self, path: Path, mode: int) -> None:
        self.kind = kind_of(mode)
        super().__init__(errno.EINVAL, f"it is {self.kind}, expected a file", os.fspath(path))


def unreadable_reason(error: OSError) -> str:
    """Return why a file cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, NotAFileError):
        return f"{error.kind}, expected a file"
    return f"unreadable ({error.strerror})"


def kind_of(mode: int) -> str:
    """Return a description of the kind of a file with this mode."""
    return next((kind for test, kind in _FILE_KINDS if test(mode)), "a file")


def check_regular(path: Path, allow_directory: bool = False) -> None:
    """Raise if a path, after following links, exists and is not a regular file.

    Parameters
    ----------
    path : Path
    allow_directory : bool
        Whether a directory is also accepted.

    Raises
    ------
    InputError
        Names the kind of file.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if allow_directory and stat.S_ISDIR(mode):
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is {kind_of(mode)}, expected a file")


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, and return its descriptor, which the caller must close.

    Parameters
    ----------
    path : Path
    flags : int
        Flags of `os.open`.

    Raises
    ------
    NotAFileError
        The path is a directory, a FIFO, a socket or a device.
    ShortageError
        The process or the computer lacks a resource.
    OSError
        The file cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    mode = path.stat(follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # opening a device may have side effects
        raise NotAFileError(path, mode)
    descriptor = retry_with_more_descriptors(lambda: os.open(path, flags), path)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotAFileError(path, mode)
    return descriptor


def read_regular(path: Path, max_bytes: int | None = _MAX_READ_BYTES) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : Path
    max_bytes : int, optional
        Largest accepted size, which is checked before reading.

    Raises
    ------
    OSError
        See `open_regular`, or the file is larger than `max_bytes`.
    """
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if max_bytes is not None and size > max_bytes:
            reason = f"it has {size} bytes, expected at most {max_bytes}"
            raise OSError(errno.EFBIG, reason, os.fspath(path))
        return file.read()


def read_file_or_pipe(path: Path) -> bytes:
    """Return the content of a file that may be a pipe of a shell.

    Examples are ``/dev/stdin``, and ``/dev/fd/63`` for ``<(command)``.

    Raises
    ------
    OSError
        See `read_regular`.
    """
    if os.path.realpath(path).startswith(f"/proc/{os.getpid()}/fd/"):
        return path.read_bytes()
    return read_regular(path)


def retry_with_more_descriptors(action: Callable[[], T], name: object) -> T:
    """Call an action that needs file descriptors; if they run out, increase their soft limit.

    Raises
    ------
    ShortageError
        No more file descriptors are available.
    """
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno == errno.EMFILE and increase_file_limit():
                continue
            raise_if_shortage(error, name)
            raise


def check_descriptors(count: int, name: str) -> None:
    """Raise unless this number of file descriptors is available.

    Raises
    ------
    ShortageError
        Fewer are available. The message says that `name` cannot be opened.
    """
    with ExitStack() as stack:
        for _ in range(count):
            null = retry_with_more_descriptors(lambda: os.open(os.devnull, os.O_CLOEXEC), name)
            stack.callback(os.close, null)


def increase_file_limit() -> bool:
    """Increase the soft limit on file descriptors to the hard limit; return whether it grew."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return False
    return True


def raise_if_shortage(error: OSError, name: object) -> None:
    """Raise `ShortageError` if an error means that a resource is exhausted or unavailable.

    Raises
    ------
    ShortageError
        Names the resource.
    """
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise ShortageError(
            f"{name} cannot be opened: this process uses all {limit} of its file descriptors; "
            "raise the limit (ulimit -n)"
        ) from None
    if error.errno in _SHORTAGES:
        raise ShortageError(f"{name} cannot be read now: {error.strerror}") from None
