"""What the ranks of one node can see of each other, and do to each other, without MPI."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import signal
import stat
import sys
from collections.abc import Collection
from contextlib import suppress
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.processes.launcher import continuity, detect_launcher, job_id

if TYPE_CHECKING:
    import psutil

_LAUNCHERS = "mpirun", "mpiexec", "hydra", "prte"  # and daemons of theirs
_SCANCEL_SECONDS = 20.0

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
    launcher = detect_launcher()
    if launcher is not None and continuity(launcher).continues:
        end_ranks(set(range(launcher.size)) - {launcher.rank})


def end_ranks(ranks: Collection[int]) -> set[int]:
    """End processes of this node that the launcher of this one has started; returns their ranks.

    A process is told by what the launcher has set in its environment: numbers of processes may be
    those of others, seen from a namespace.
    """
    job, ended = job_id(), set[int]()
    if not (ranks and job):
        return ended
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            entries = os.fsdecode((directory / "environ").read_bytes()).split("\0")
        except OSError:  # it has ended, or is another user's
            continue
        environ = dict(entry.partition("=")[::2] for entry in entries)
        found = detect_launcher(environ)
        if found is not None and found.rank in ranks and job_id(environ) == job:
            with suppress(OSError):
                os.kill(int(directory.name), signal.SIGKILL)
                ended.add(found.rank)
    return ended


def end_job_at_exit() -> None:
    """When this process leaves, have the launcher end ranks on other nodes that do not."""
    atexit.register(_end_job, os.getpid())


def _end_job(process: int) -> None:
    launcher = detect_launcher()
    if os.getpid() != process or launcher is None:  # forked from that one
        return
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if launcher.is_srun:
        import subprocess  # hardly any rank starts a program

        with suppress(OSError, subprocess.SubprocessError):
            step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
            subprocess.run(["scancel", step], timeout=_SCANCEL_SECONDS, check=False)
        return
    import psutil  # by rank 0 alone

    with suppress(psutil.Error):
        parents = dropwhile(lambda each: not _launches(each), psutil.Process().parents())
        for parent in reversed(list(takewhile(_launches, parents))):
            parent.terminate()


def _launches(process: psutil.Process) -> bool:
    return bool(process.name().startswith(_LAUNCHERS))


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
