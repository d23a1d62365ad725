"""Regular files opened for reading: what is none is refused as what it is, and never waited for.

That a file cannot be opened says nothing of it where the process or the computer has run out
of something: such an error is no damage, and has a message of its own.
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
_MOST_READ = 256 << 20  # bytes of a text that people can read, and labels, and journals
# Errors that say nothing of a file: something is short, or its file system is not there now.
_PASSING = {
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


class Watched:
    """An open file.

    Parameters
    ----------
    descriptor : int
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._alert_until = 0.0
        self._times = _look(descriptor)
        self._settled = _is_settled(self._times)

    def changed(self) -> bool:
        """Whether somebody may have written to the file since this was asked last.

        True without a change is possible, and false after one where the file system does
        not keep times: what is written to a tmpfs through a memory map leaves none.
        """
        before, now = self._times, _look(self._descriptor)
        if now == before and self._settled:  # as in nearly every step
            return self._alert_until > 0 and time.monotonic() < self._alert_until
        self._times, self._settled = now, _is_settled(now)
        if before[:2] != now[:2]:
            self._alert_until = time.monotonic() + _WRITEBACK
        return True


def _look(descriptor: int) -> _Times:
    """Size, time of the last change of contents, and of the last change at all."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_settled(times: _Times) -> bool:
    """Whether the next change will show in size and times."""
    _, written, changed = times
    step = _STEP if written % _SECOND or changed % _SECOND else _COARSE_STEP
    return abs(time.time_ns() - max(written, changed)) > step


class NotAFileError(OSError):
    """Something has the name of a file and is none; `kind` says what it is."""

    def __init__(self, path: Path, mode: int) -> None:
        self.kind = kind_of(mode)
        super().__init__(errno.EINVAL, f"it is {self.kind}, expected a file", os.fspath(path))


def why_unreadable(error: OSError) -> str:
    """Why a file cannot be opened, as a finding."""
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, NotAFileError):
        return f"{error.kind}, expected a file"
    return f"unreadable ({error.strerror})"


def kind_of(mode: int) -> str:
    """What a file is whose mode this is, in words."""
    return next((kind for test, kind in _KINDS if test(mode)), "a file")


def check_regular(path: Path, or_directory: bool = False) -> None:
    """Refuse what is there and is no file, behind links too.

    Parameters
    ----------
    path : Path
    or_directory : bool
        A directory will do.

    Raises
    ------
    InputError
        Says what it is.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # whoever opens it says so
    if or_directory and stat.S_ISDIR(mode):
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is {kind_of(mode)}: expected a file")


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; returns its descriptor, which the caller closes.

    Parameters
    ----------
    path : Path
    flags : int
        Of `os.open`.

    Raises
    ------
    NotAFileError
        It is a directory, a FIFO, a socket or a device.
    ShortageError
        The process or the computer is short of something, so that nothing is known of it.
    OSError
        It cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    mode = path.stat(follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # to open a device may do something
        raise NotAFileError(path, mode)
    descriptor = with_descriptors(lambda: os.open(path, flags), path)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotAFileError(path, mode)
    return descriptor


def read_regular(path: Path, most: int | None = _MOST_READ) -> bytes:
    """All bytes of a regular file.

    Parameters
    ----------
    path : Path
    most : int, optional
        Bytes; a larger file is refused before it is read.

    Raises
    ------
    OSError
        As `open_regular`, or it is larger.
    """
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if most is not None and size > most:
            reason = f"it has {size} bytes, expected at most {most}"
            raise OSError(errno.EFBIG, reason, os.fspath(path))
        return file.read()


def read_given(path: Path) -> bytes:
    """All bytes of a file that is read once: it may be what a shell has opened for us.

    That is ``/dev/stdin``, and ``/dev/fd/63`` as in ``<(command)``.

    Raises
    ------
    OSError
        As `read_regular`.
    """
    if os.path.realpath(path).startswith(f"/proc/{os.getpid()}/fd/"):
        return path.read_bytes()
    return read_regular(path)


def with_descriptors(action: Callable[[], T], path: object) -> T:
    """Do what needs a file descriptor; raises the soft limit on their number if need be.

    Raises
    ------
    ShortageError
        There are no more to be had (`refuse_shortage`).
    """
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno == errno.EMFILE and raise_file_limit():
                continue
            refuse_shortage(error, path)
            raise


def check_descriptors(count: int, purpose: str) -> None:
    """Refuse what a library opens, and what would fail half-way without so many descriptors.

    Raises
    ------
    ShortageError
        Fewer are left.
    """
    with ExitStack() as held:
        for _ in range(count):
            null = with_descriptors(lambda: os.open(os.devnull, os.O_CLOEXEC), purpose)
            held.callback(os.close, null)


def raise_file_limit() -> bool:
    """Let this process open as many files as it may; whether these are more than before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return False
    return True


def refuse_shortage(error: OSError, path: object) -> None:
    """Raise an error of its own where one of the system's says nothing of the file.

    Raises
    ------
    ShortageError
        Says what is short.
    """
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise ShortageError(
            f"{path} cannot be opened: this process has all {limit} file descriptors in use that "
            "it may have, expected a higher limit (ulimit -n)"
        ) from None
    if error.errno in _PASSING:
        raise ShortageError(f"{path} cannot be read now: {error.strerror}") from None
