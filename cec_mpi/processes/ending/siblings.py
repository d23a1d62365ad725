"""What the ranks of one node can see of each other, and do to each other, without MPI."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cec_mpi.processes.launch.launchers import tolerates_losses

_claims: list[int] = []  # descriptors of locks


def claim(name: str) -> bool | None:
    """Whether this process is the first rank of its node that asks; None if that cannot be told.

    Parameters
    ----------
    name : str
        Of what it asks for.
    """
    namespace = os.environ.get("PMIX_NAMESPACE", "")
    directory = Path(os.environ.get("PMIX_SERVER_TMPDIR", ""))
    if namespace and _is_private(directory):  # the launcher's, which removes it at the end
        file = directory / re.sub(r"[^\w-]", "-", f"cec-mpi-{name}-{namespace}")
        with suppress(OSError):
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            except FileExistsError:
                return False
            return True
    try:  # who started them: nobody else can open this of a process of this user's
        lock = os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY)
    except OSError:
        return None
    _claims.append(lock)  # for as long as this process lives
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def end_siblings() -> None:
    """End the other ranks of this node where the launcher, told to let them live, does not."""
    if not tolerates_losses():
        return
    for process in _siblings():
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _siblings() -> Iterator[int]:
    """The processes of this job on this node that have another rank than this one."""
    mine = os.environ.get("PMIX_NAMESPACE"), os.environ.get("PMIX_RANK")
    if None in mine:
        return
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            entries = (directory / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        found = dict(entry.partition(b"=")[::2] for entry in entries)
        theirs = (found.get(b"PMIX_NAMESPACE"), found.get(b"PMIX_RANK"))
        namespace, rank = (None if word is None else os.fsdecode(word) for word in theirs)
        if namespace == mine[0] and rank not in (None, mine[1]):
            yield int(directory.name)


def _is_private(directory: Path) -> bool:
    """Whether nobody else can have put something there."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return (
        directory.is_absolute()
        and stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & 0o077
    )
