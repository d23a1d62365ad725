"""Open regular files for reading; anything else is named and rejected without waiting for it.

If a file cannot be opened because the process or the computer lacks a resource, the file is not
damaged: a separate message says so.
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

# Times of files move in steps: within one of them a second change leaves no trace.
_STEP = 100_000_000  # ns; clocks of kernels move every 1 to 10 ms
_COARSE_STEP = 2_100_000_000  # where a file system keeps whole seconds
_SECOND = 1_000_000_000

# What is written through a memory map changes the times of a file when a page is written to
# for the first time, and again only when the kernel has brought that page to the disk. It does
# so after half a minute by default.
_WRITEBACK = 60.0  # seconds

# The size, the time of the last change of contents, and of the last change at all.
_Times = tuple[int, int, int]
T = TypeVar("T")
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)
_MAX_READ_BYTES = 256 << 20  # bytes of a text that people can read, and labels, and journals
# Errors that are not about a file: a resource is exhausted, or the file system is away.
_TRANSIENT = {
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
    """An open file.

    Parameters
    ----------
    descriptor : int
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._alert_until = 0.0
        status = os.fstat(descriptor)
        self._times = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        self._is_detectable_now = _is_detectable(self._times)

    def changed(self) -> bool:
        """Return whether the file may have changed since the last call.

        It can be True without a change. It can be False after a change if the file system does not
        record times: writes to a tmpfs through a memory map leave none.
        """
        status = os.fstat(self._descriptor)
        before, now = self._times, (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if now == before and self._is_detectable_now:  # as in nearly every step
            return self._alert_until > 0 and time.monotonic() < self._alert_until
        self._times, self._is_detectable_now = now, _is_detectable(now)
        if before[:2] != now[:2]:
            self._alert_until = time.monotonic() + _WRITEBACK
        return True


def _is_detectable(times: _Times) -> bool:
    """Return whether the next change will show in size and times."""
    _, written, changed = times
    step = _STEP if written % _SECOND or changed % _SECOND else _COARSE_STEP
    return abs(time.time_ns() - max(written, changed)) > step


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
    """Return the kind of a file with this mode, in words."""
    return next((kind for test, kind in _KINDS if test(mode)), "a file")


def check_regular(path: Path, or_directory: bool = False) -> None:
    """Raise if a name exists, also through links, and is not a regular file.

    Parameters
    ----------
    path : Path
    or_directory : bool
        Whether a directory is accepted, too.

    Raises
    ------
    InputError
        Names the kind of file.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # opening it will raise an error
    if or_directory and stat.S_ISDIR(mode):
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is {kind_of(mode)}, expected a file")


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, and return its descriptor, which the caller closes.

    Parameters
    ----------
    path : Path
    flags : int
        Flags of `os.open`.

    Raises
    ------
    NotAFileError
        It is a directory, a FIFO, a socket or a device.
    ShortageError
        The process or the computer lacks a resource.
    OSError
        It cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    mode = path.stat(follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # to open a device may do something
        raise NotAFileError(path, mode)
    descriptor = retry_with_more_descriptors(lambda: os.open(path, flags), path)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotAFileError(path, mode)
    return descriptor


def read_regular(path: Path, most: int | None = _MAX_READ_BYTES) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : Path
    most : int, optional
        Largest accepted size in bytes, which is checked before reading.

    Raises
    ------
    OSError
        As `open_regular`, or the file is larger than `most`.
    """
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if most is not None and size > most:
            reason = f"it has {size} bytes, expected at most {most}"
            raise OSError(errno.EFBIG, reason, os.fspath(path))
        return file.read()


def read_file_or_pipe(path: Path) -> bytes:
    """Return the content of a file that may be a pipe of a shell.

    Examples are ``/dev/stdin``, and ``/dev/fd/63`` for ``<(command)``.

    Raises
    ------
    OSError
        As `read_regular`.
    """
    if os.path.realpath(path).startswith(f"/proc/{os.getpid()}/fd/"):
        return path.read_bytes()
    return read_regular(path)


def retry_with_more_descriptors(action: Callable[[], T], path: object) -> T:
    """Call an action that needs file descriptors; raise their soft limit if necessary.

    Raises
    ------
    ShortageError
        No more file descriptors are available.
    """
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno == errno.EMFILE and raise_file_limit():
                continue
            raise_if_shortage(error, path)
            raise


def check_descriptors(count: int, purpose: str) -> None:
    """Raise if fewer than `count` file descriptors are available.

    Raises
    ------
    ShortageError
        Fewer are available.
    """
    with ExitStack() as held:
        for _ in range(count):
            null = retry_with_more_descriptors(lambda: os.open(os.devnull, os.O_CLOEXEC), purpose)
            held.callback(os.close, null)


def raise_file_limit() -> bool:
    """Raise the soft limit on file descriptors; return whether it has grown."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return False
    return True


def raise_if_shortage(error: OSError, path: object) -> None:
    """Raise `ShortageError` if an error of the system is not about the file.

    Raises
    ------
    ShortageError
        Names the resource.
    """
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise ShortageError(
            f"{path} cannot be opened: this process uses all {limit} of its file descriptors; "
            "raise the limit (ulimit -n)"
        ) from None
    if error.errno in _TRANSIENT:
        raise ShortageError(f"{path} cannot be read now: {error.strerror}") from None
