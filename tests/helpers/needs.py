"""What not every MPI and computer has, which tests need it, and why they do.

``@pytest.mark.needs("ulfm")`` skips a test where this table says so; `scripts/test` lists at
its end what was skipped. The variable CEC_REQUIRED lists what may not be missing, as ``slurm``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cec_mpi.runtime.processes.launcher import find_srun_problem, list_srun_types
from helpers import ROOT
from helpers.mpi_at_hand import library


@dataclass(frozen=True)
class Need:
    """Something that tests may need.

    Attributes
    ----------
    is_here : callable
        Whether it is.
    why : str
        What is done with it that nothing else can do.
    """

    is_here: Callable[[], bool]
    why: str


_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])


@cache
def _can_start_hosts() -> bool:
    script = ROOT / "scripts" / "hosts"
    done = subprocess.run([script, "check"], capture_output=True, timeout=20, check=False)
    return done.returncode == 0


@cache
def _slurm_loads_pmix() -> bool:
    """Whether srun can, which needs settings, but nobody who answers."""
    with TemporaryDirectory() as directory:
        settings = Path(directory, "slurm.conf")
        settings.write_text(
            "ClusterName=none\nSlurmctldHost=none(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\n"
            "NodeName=n1\nPartitionName=all Nodes=n1\n"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(settings))
            return "pmix" in (list_srun_types() or ()) and not find_srun_problem("pmix")


FAKETIME = next(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), "")
CHROMIUM, CHROMEDRIVER = (shutil.which(name) or "" for name in ("chromium", "chromedriver"))


@cache
def _can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


# Where control groups of processor time are made: those of version 1, or 2.
CPU_GROUPS = next(
    (path for path in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")) if path.is_dir()), None
)


@cache
def _can_limit_processors() -> bool:
    if CPU_GROUPS is None:
        return False
    group = CPU_GROUPS / f"cec_mpi-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        return any((group / name).is_file() for name in ("cpu.max", "cpu.cfs_quota_us"))
    finally:
        group.rmdir()


NEEDS = {
    "ulfm": Need(
        lambda: library().startswith(("Open MPI v5", "Intel")),
        "when a process is killed, the others continue under mpirun of Open MPI 5 (--with-ft ulfm) "
        "and Intel MPI, and end under that of MPICH",
    ),
    "code after a signal": Need(
        lambda: not library().startswith("MPICH 4.0."),
        "mpiexec of MPICH 4.0 returns 0 when it has passed on a signal, whatever its ranks return",
    ),
    "slurm": Need(
        lambda: all(shutil.which(name, path=_PATH) for name in ("slurmctld", "slurmd", "munged")),
        "jobs are given to a real Slurm (on Debian: apt install slurm-wlm munge)",
    ),
    "pmi2": Need(
        lambda: library().startswith(("MPICH", "Intel")),
        "srun starts ranks with its PMI-2, which Open MPI does not speak",
    ),
    "import-anywhere": Need(
        lambda: not library().startswith("Open MPI v4"),
        "Open MPI 4 aborts when a program imports mpi4py.MPI under an srun that connects no ranks",
    ),
    "openmpi": Need(
        lambda: library().startswith("Open MPI v5"),
        "the page has commands of Open MPI 5; other MPIs want other words",
    ),
    "mounts": Need(
        _can_mount,
        "a disk that is full is a small file system in memory, which root alone can mount",
    ),
    "cpu-groups": Need(
        _can_limit_processors,
        "the CPU quota of a container is that of a control group, which root alone can make",
    ),
    "faketime": Need(
        lambda: bool(FAKETIME),
        "the clock of one process is set by hours while it runs (on Debian: apt install faketime)",
    ),
    "chromium": Need(
        lambda: bool(CHROMIUM and CHROMEDRIVER),
        "a report is a page that people use in a browser (on Debian: apt install chromium "
        "chromium-driver)",
    ),
    "ray": Need(
        lambda: importlib.util.find_spec("ray") is not None,
        "machines are tasks of a real Ray, which has no wheel for each Python",
    ),
    "hosts": Need(
        _can_start_hosts,
        "several hosts on one computer are namespaces of root's, with sshd in them (scripts/hosts "
        "check says what is missing)",
    ),
    "hosts-that-meet": Need(
        lambda: not library().startswith("MPICH 4.0."),
        "MPICH 4.0 of Debian (UCX 1.13) hangs in 4 of 10 starts of ranks that only meet, on "
        "several hosts that are namespaces of one computer",
    ),
    "pmi2-always": Need(
        lambda: library().startswith(("MPICH 4.", "Intel")),
        "under srun --mpi=pmi2 MPICH 5.0 does not always start on several nodes: its lines to the "
        "PMI server can be longer than the 1,024 bytes that Slurm 22.05 reads at once",
    ),
    "pmix": Need(
        lambda: library().startswith(("Open MPI", "Intel")),
        "srun --mpi=pmix does not start MPICH",
    ),
    "slurm-pmix": Need(
        _slurm_loads_pmix,
        "srun --mpi=pmix needs a library that Slurm does not bring along (on Debian: apt install "
        "libpmix-dev)",
    ),
    "hydra": Need(
        lambda: library().startswith(("MPICH", "Intel")),
        "Open MPI has no mpiexec.hydra",
    ),
    "own-mpirun": Need(
        lambda: not library().startswith("Intel"),
        "Intel's mpirun is a shell script: it hands on no signals, and in a job no exit codes",
    ),
}


def reason_to_skip(what: str) -> str | None:
    """Why a test that needs this is skipped here, or None.

    Raises
    ------
    pytest.UsageError
        It is not here, and the variable CEC_REQUIRED says that it has to be.
    """
    need = NEEDS[what]
    if need.is_here():
        return None
    reason = f"needs {what}: {need.why}"
    if what in os.environ.get("CEC_REQUIRED", "").split(","):
        raise pytest.UsageError(f"CEC_REQUIRED: {reason}")
    return reason
