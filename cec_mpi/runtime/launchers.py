"""Which launcher started this process, and whether an MPI library can join the others.

All of it is read from the environment and from what the library says of itself, before
MPI_Init: a library that the launcher does not fit makes worlds of one there, or aborts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.runtime.text import plural

__all__ = [
    "INTEL",
    "MPICH",
    "OPEN_MPI",
    "SLURM",
    "Launcher",
    "Library",
    "can_join",
    "detect_launcher",
    "library_file",
    "maker_of",
    "ranks_by_node",
    "read_library",
    "srun_kinds",
    "too_many_for_srun",
    "without_launcher",
    "wrong_launcher",
]

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
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")  # of all variables of launchers
_NO_STEP_OF_TASKS = 0xFFFFFFF0  # SLURM_STEP_ID in a batch script or an interactive shell

# The names of a library's own launcher; the first are those of Linux distributions.
_PROGRAMS = {
    OPEN_MPI: ("mpirun.openmpi", "mpirun"),
    MPICH: ("mpiexec.mpich", "mpiexec"),
    INTEL: ("mpiexec.hydra",),
}


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


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """These variables but those of launchers: for a program that is started by hand."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def _name(maker: str, environ: Mapping[str, str]) -> str:
    if maker == SLURM:
        kind = environ.get("SLURM_MPI_TYPE")
        return f"srun --mpi={kind}" if kind else "srun without --mpi"
    programs = {OPEN_MPI: "Open MPI's mpirun", MPICH: "MPICH's mpiexec"}
    return programs.get(maker, "Intel MPI's mpirun" if maker == INTEL else maker)


@dataclass(frozen=True)
class Library:
    """An MPI library.

    Attributes
    ----------
    name : str
        Name and version.
    maker : str
        Open MPI, MPICH or Intel MPI; empty for another one, of which nothing is assumed.
    major : int
        Of its version; 0 when it does not say.
    over : frozenset of str
        Ways beside its usual one, "pmix" or "pmi", in which it was built to find the others.
    program : Path or None
        Its own launcher, where that lies beside it.
    """

    name: str
    maker: str
    major: int
    over: frozenset[str] = frozenset()
    program: Path | None = None

    @property
    def srun_kind(self) -> str:
        """What ``srun --mpi=`` has to be."""
        return "pmix" if self.maker == OPEN_MPI or "pmix" in self.over else "pmi2"


def maker_of(text: str) -> str:
    """Whose MPI a program or library says that it is; empty where it does not say.

    Examples
    --------
    >>> maker_of("mpirun (Open MPI) 5.0.11"), maker_of("HYDRA build details:")
    ('Open MPI', 'MPICH')
    """
    words = {"Open MPI": OPEN_MPI, "OpenRTE": OPEN_MPI, "Intel": INTEL}
    words |= {"HYDRA": MPICH, "MPICH": MPICH}
    return next((maker for word, maker in words.items() if word in text), "")


def read_library(text: str, path: Path | None) -> Library:
    """What a library is.

    Parameters
    ----------
    text : str
        Of MPI_Get_library_version.
    path : Path or None
        The file, as far as it is known.
    """
    name = " ".join(text.strip("\0").split("\n")[0].split(",")[0].split())
    name = name.replace("MPICH Version:", "MPICH").removesuffix(" for Linux* OS")
    starts = {"Open MPI": OPEN_MPI, "MPICH": MPICH, "Intel(R) MPI": INTEL}
    maker = next((maker for start, maker in starts.items() if name.startswith(start)), "")
    version = re.search(r"\d+", name)
    over = {"pmix"} if maker == MPICH and "pmix" in text.lower() else set()
    program = None
    if path is not None:
        if any(path.parent.glob("openmpi/mca_pmix_s[12].so")):
            over.add("pmi")
        places = [where / "bin" / p for where in _roots(path) for p in _PROGRAMS.get(maker, ())]
        program = next((place for place in places if os.access(place, os.X_OK)), None)
    return Library(name, maker, int(version.group()) if version else 0, frozenset(over), program)


def _roots(path: Path) -> list[Path]:
    """Where a library may have been installed to: in each, it lies somewhere below ``lib``.

    Not the root: what ``/bin`` has belongs to ``/usr``.
    """
    return [
        parent
        for parent in path.parents[:-1]
        if path.relative_to(parent).parts[0] in ("lib", "lib64")
    ]


def library_file(maps: str) -> Path | None:
    """The MPI library among the files that a process has mapped, as ``/proc/self/maps`` has them.

    Examples
    --------
    >>> library_file("7f8-7f9 r-xp 00 fe:00 21    /opt/my mpi/lib/libmpi.so.40").name
    'libmpi.so.40'
    """
    for line in maps.splitlines():
        path = Path("".join(line.split(maxsplit=5)[5:]))
        if re.match(r"libmpi(ch)?\.so", path.name):
            return path
    return None


def srun_kinds(text: str) -> tuple[str, ...]:
    r"""What ``srun --mpi=`` may be, from what ``srun --mpi=list`` prints.

    Examples
    --------
    >>> srun_kinds("MPI plugin types are...\n\tnone\n\tpmi2\n")
    ('none', 'pmi2')
    """
    return tuple(sorted(set(re.findall(r"^(?:srun: |\s+)(\w+)\s*$", text, re.MULTILINE))))


def can_join(launcher: Launcher, library: Library, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI_Init may be tried: False where it is known to abort, or to find nobody.

    True does not say that it finds the others: compare the size of the world afterwards.
    """
    offers_pmix = "PMIX_NAMESPACE" in environ
    offers_pmi = bool({"PMI_FD", "PMI_PORT", "PMI_RANK"} & set(environ))
    if library.maker == OPEN_MPI:
        too_new = library.major < 5 and "PRTE_LAUNCHED" in environ  # set by Open MPI 5's mpirun
        return (offers_pmix and not too_new) or (offers_pmi and "pmi" in library.over)
    if library.maker == MPICH:
        return offers_pmi or not offers_pmix or "pmix" in library.over
    if library.maker == INTEL:
        return launcher.maker not in (MPICH, OPEN_MPI)
    return True


def wrong_launcher(launcher: Launcher, library: Library) -> str:
    """The message where processes do not find each other, with the remedy."""
    own = str(library.program or f"{library.maker or 'that library'}'s own mpirun")
    remedy = f"start them with {own}"
    if launcher.is_srun:
        remedy = (
            f"use srun --mpi={library.srun_kind} (srun --mpi=list says what this Slurm has), or "
            f"{own} in the batch script"
        )
    return (
        f"{launcher.name} started {launcher.size} processes, but {library.name}, the MPI of this "
        f"Python, runs each of them alone: {remedy}"
    )


def too_many_for_srun(library: Library, cores: int, environ: Mapping[str, str]) -> str | None:
    """The message where MPI_Init aborts for want of cores, in the one process that is to say it.

    Open MPI 5 under srun aborts in each process whose number on its node is not below the
    number of cores.

    Parameters
    ----------
    library : Library
        Open MPI.
    cores : int
        Of this node.
    environ : mapping of str to str
        What srun has set.
    """
    try:
        node, number = int(environ["SLURM_NODEID"]), int(environ["SLURM_LOCALID"])
        ranks = ranks_by_node(environ["SLURM_STEP_TASKS_PER_NODE"])
        crowded = [k for k, count in enumerate(ranks) if count > cores]
        if number != cores or crowded[0] != node:  # the nodes are taken to be alike
            return None
    except (KeyError, ValueError, IndexError):
        return None
    host = environ.get("SLURMD_NODENAME", "a node")
    own = library.program or "its own mpirun"
    return (
        f"{host} has {plural(ranks[node], 'rank')} on {plural(cores, 'core')}: under srun, "
        f"{library.name} starts no more ranks on a node than it has cores; take more nodes, or "
        f"{own} in the batch script"
    )


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
