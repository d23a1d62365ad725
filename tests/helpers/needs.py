"""Requirements of tests that some MPIs and computers do not meet.

``@pytest.mark.needs("ulfm")`` skips a test unless this requirement is met; `scripts/test` lists all
skipped tests. The environment variable CEC_REQUIRED lists requirements that must be met.
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
class Requirement:
    """A requirement of tests.

    Attributes
    ----------
    is_met : callable
    reason : str
        Why tests need it.
    """

    is_met: Callable[[], bool]
    reason: str


_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])


@cache
def _can_start_hosts() -> bool:
    script = ROOT / "scripts" / "hosts"
    result = subprocess.run([script, "check"], capture_output=True, timeout=20, check=False)
    return result.returncode == 0


@cache
def _slurm_loads_pmix() -> bool:
    """Return whether srun loads its PMIx plugin, which needs a configuration but no controller."""
    with TemporaryDirectory() as directory:
        configuration = Path(directory, "slurm.conf")
        configuration.write_text(
            "ClusterName=none\nSlurmctldHost=none(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\n"
            "NodeName=n1\nPartitionName=all Nodes=n1\n"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(configuration))
            return "pmix" in (list_srun_types() or ()) and not find_srun_problem("pmix")


CHROMIUM, CHROMEDRIVER = (shutil.which(name) or "" for name in ("chromium", "chromedriver"))


@cache
def _can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    return result.returncode == 0


# The directory of control groups for processor time, of version 1 or 2.
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
    "ulfm": Requirement(
        lambda: library().startswith(("Open MPI v5", "Intel")),
        "when a process is killed, the others continue under mpirun of Open MPI 5 (--with-ft ulfm) "
        "and Intel MPI, and end under mpirun of MPICH",
    ),
    "signal-exit-code": Requirement(
        lambda: not library().startswith("MPICH 4.0."),
        "mpiexec of MPICH 4.0 returns 0 after it has forwarded a signal",
    ),
    "slurm": Requirement(
        lambda: all(shutil.which(name, path=_PATH) for name in ("slurmctld", "slurmd", "munged")),
        "jobs are submitted to a real Slurm (on Debian: apt install slurm-wlm munge)",
    ),
    "openmpi": Requirement(
        lambda: library().startswith("Open MPI v5"),
        "the page shows commands of Open MPI 5",
    ),
    "mounts": Requirement(
        _can_mount,
        "a small file system in memory stands for a full disk, and only root can mount it",
    ),
    "cpu-groups": Requirement(
        _can_limit_processors,
        "the CPU quota of a container is that of a control group, which only root can create",
    ),
    "chromium": Requirement(
        lambda: bool(CHROMIUM and CHROMEDRIVER),
        "a report is a page for a browser (on Debian: apt install chromium chromium-driver)",
    ),
    "ray": Requirement(
        lambda: importlib.util.find_spec("ray") is not None,
        "machines are tasks of a real Ray, which has no wheels for some versions of Python",
    ),
    "hosts": Requirement(
        _can_start_hosts,
        "hosts on one computer are namespaces of root with sshd (scripts/hosts check lists what is "
        "missing)",
    ),
    "mpi-across-hosts": Requirement(
        lambda: not library().startswith("MPICH 4.0."),
        "MPICH 4.0 of Debian (UCX 1.13) hangs in 4 of 10 starts on hosts that are namespaces of "
        "one computer",
    ),
    "reliable-pmi2": Requirement(
        lambda: library().startswith(("MPICH 4.", "Intel")),
        "MPICH 5.0 does not always start on several nodes under srun --mpi=pmi2: its lines to the "
        "PMI server can be longer than the 1,024 bytes that Slurm 22.05 reads at once",
    ),
    "pmix": Requirement(
        lambda: library().startswith(("Open MPI", "Intel")),
        "srun --mpi=pmix does not start MPICH",
    ),
    "slurm-pmix": Requirement(
        _slurm_loads_pmix,
        "srun --mpi=pmix needs a library that Slurm does not include (on Debian: apt install "
        "libpmix-dev)",
    ),
    "hydra": Requirement(
        lambda: library().startswith(("MPICH", "Intel")),
        "Open MPI has no mpiexec.hydra",
    ),
    "native-mpirun": Requirement(
        lambda: not library().startswith("Intel"),
        "Intel's mpirun is a shell script that forwards no signals, and in a job no exit codes",
    ),
}


def reason_to_skip(name: str) -> str | None:
    """Return why tests with a requirement are skipped, or None.

    Raises
    ------
    pytest.UsageError
        The requirement is not met, and CEC_REQUIRED contains it.
    """
    requirement = NEEDS[name]
    if requirement.is_met():
        return None
    reason = f"needs {name}: {requirement.reason}"
    if name in os.environ.get("CEC_REQUIRED", "").split(","):
        raise pytest.UsageError(f"CEC_REQUIRED: {reason}")
    return reason
