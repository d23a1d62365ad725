"""Which launcher started this process, by what it sets in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

OPEN_MPI, MPICH, INTEL, SLURM = "Open MPI", "MPICH", "Intel MPI", "srun"
_PMI = "a launcher"  # of which nothing is known but that it speaks PMI

# What launchers set for each process: its rank, and the number of processes (the first of these
# that is there: what Slurm says of tasks may be said of the whole job).
_VARIABLES = {
    OPEN_MPI: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    INTEL: ("PMI_RANK", "PMI_SIZE"),
    MPICH: ("PMI_RANK", "PMI_SIZE"),
    SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    _PMI: ("PMI_RANK", "PMI_SIZE"),
}
# What only this launcher sets. The order above matters too: any of them may start its
# processes on other nodes by srun.
_MARKS = {INTEL: "I_MPI_HYDRA_UUID", MPICH: "MPI_LOCALNRANKS", SLURM: "SLURM_STEP_ID"}
# What identifies the job. MPICH sets nothing of the kind.
_JOBS = {
    OPEN_MPI: ("PMIX_NAMESPACE",),
    INTEL: ("I_MPI_HYDRA_UUID",),
    SLURM: ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
}
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")  # of all variables of launchers
_NO_STEP_OF_TASKS = 0xFFFFFFF0  # SLURM_STEP_ID in a batch script or an interactive shell


@dataclass(frozen=True)
class Launcher:
    """What the environment says of the launcher of this process.

    Attributes
    ----------
    maker : str
        Whose it is.
    name : str
        As a user knows it.
    size, rank : int
        Of all that it started, and of this process.
    """

    maker: str
    name: str
    size: int
    rank: int

    @property
    def is_srun(self) -> bool:
        """Whether it is Slurm's own, not one that Slurm has started."""
        return self.maker == SLURM


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """The launcher that started this process, or None when it was started by hand."""
    for maker, (rank, *sizes) in _VARIABLES.items():
        if _MARKS.get(maker, rank) not in environ:
            continue
        try:
            if maker == SLURM and int(environ["SLURM_STEP_ID"]) >= _NO_STEP_OF_TASKS:
                continue
            size = next((environ[name] for name in sizes if name in environ), "")
            return Launcher(maker, _name(maker, environ), int(size), int(environ[rank]))
        except (KeyError, ValueError):
            continue
    return None


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """What identifies the launch that started this process, or an empty text if nothing does.

    It is the same in all processes of one launch, and another in each launch; also in a job
    that Slurm has requeued, whose step has the same PMIX_NAMESPACE as before.

    Examples
    --------
    >>> step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    >>> job_id({**step, "SLURM_JOB_ID": "25", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"})
    '25.0.1'
    """
    launcher = detect_launcher(environ)
    names = _JOBS.get(launcher.maker, ()) if launcher else ()
    return ".".join(environ[name] for name in names if name in environ)


def rank_of_launcher() -> int:
    """The rank of this process; 0 if it was started by hand."""
    launcher = detect_launcher()
    return 0 if launcher is None else launcher.rank


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """These variables but those of launchers: for a program that is started by hand."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def _name(maker: str, environ: Mapping[str, str]) -> str:
    if maker == SLURM:
        kind = environ.get("SLURM_MPI_TYPE")
        return f"srun --mpi={kind}" if kind else "srun without --mpi"
    programs = {OPEN_MPI: "Open MPI's mpirun", MPICH: "MPICH's mpiexec"}
    return programs.get(maker, "Intel MPI's mpirun" if maker == INTEL else maker)


def ranks_by_node(text: str) -> list[int]:
    """The ranks on each node, which Slurm writes in short.

    Raises
    ------
    ValueError
        It is no such text.

    Examples
    --------
    >>> ranks_by_node("4,1(x3)")
    [4, 1, 1, 1]
    """
    ranks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,6})\))?", part)
        if not found:
            raise ValueError(f"{text}: expected numbers, as 2(x3),1")
        ranks += [int(found[1])] * int(found[2] or 1)
    return ranks
