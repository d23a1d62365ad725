"""The MPI library of this process, and whether it can join the others.

All of it is read from the library and the environment before MPI_Init: a library that does not fit
the launcher makes worlds of one process there, or aborts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cec_mpi.runtime.processes.launcher import INTEL, MPICH, OPEN_MPI, Launcher, ranks_by_node
from cec_mpi.text import plural

# Names of the launcher of a library; those of Linux distributions come first.
_PROGRAMS = {
    OPEN_MPI: ("mpirun.openmpi", "mpirun"),
    MPICH: ("mpiexec.mpich", "mpiexec"),
    INTEL: ("mpiexec.hydra",),
}


@dataclass(frozen=True)
class Library:
    """An MPI library.

    Attributes
    ----------
    name : str
        Name and version.
    maker : str
        Open MPI, MPICH or Intel MPI; empty for another one.
    major : int
        Major version; 0 if unknown.
    over : frozenset of str
        Interfaces to launchers, "pmix" or "pmi", in addition to its usual one.
    program : Path or None
        Its own launcher, if that is installed with it.
    """

    name: str
    maker: str
    major: int
    over: frozenset[str] = frozenset()
    program: Path | None = None

    @property
    def srun_kind(self) -> str:
        """The value of ``srun --mpi=`` for this library."""
        return "pmix" if self.maker == OPEN_MPI or "pmix" in self.over else "pmi2"


def maker_of(text: str) -> str:
    """Return the MPI that the output of a program or library names; empty if none.

    Examples
    --------
    >>> maker_of("mpirun (Open MPI) 5.0.11"), maker_of("HYDRA build details:")
    ('Open MPI', 'MPICH')
    """
    words = {"Open MPI": OPEN_MPI, "OpenRTE": OPEN_MPI, "Intel": INTEL}
    words |= {"HYDRA": MPICH, "MPICH": MPICH}
    return next((maker for word, maker in words.items() if word in text), "")


def read_library(text: str, path: Path | None) -> Library:
    """Describe a library.

    Parameters
    ----------
    text : str
        Output of MPI_Get_library_version.
    path : Path or None
        Its file, if known.
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
    """Return the possible installation directories, in which the library is below ``lib``.

    The root is not one of them, because ``/bin`` belongs to ``/usr``.
    """
    return [
        parent
        for parent in path.parents[:-1]
        if path.relative_to(parent).parts[0] in ("lib", "lib64")
    ]


def library_file(maps: str) -> Path | None:
    """Return the MPI library among the mapped files, from the text of ``/proc/self/maps``.

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


@cache
def library() -> Library:
    """Return the MPI library of this Python."""
    from mpi4py import MPI

    path = library_file(Path("/proc/self/maps").read_text(errors="surrogateescape"))
    return read_library(MPI.Get_library_version(), path)


def library_name() -> str:
    """Return name and version of the MPI library."""
    return library().name


def world_size() -> int:
    """Return the number of processes in COMM_WORLD."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.size


def can_join(launcher: Launcher, library: Library, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI_Init may be called: False if it is known to abort or to find no other process.

    With True it may still not find the others: compare the size of the world afterwards.
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


def wrong_launcher(launcher: Launcher, library: Library, problem: str = "") -> str:
    """Return the message about processes that do not find each other, with the remedy.

    Parameters
    ----------
    launcher : Launcher
    library : Library
    problem : str
        Why this Slurm cannot load what the library needs; empty if it can.
    """
    own = str(library.program or f"{library.maker or 'that library'}'s own mpirun")
    remedy = f"start them with {own}"
    if launcher.is_srun:
        by_srun, by_own = f"srun --mpi={library.srun_kind}", f"{own} in the batch script"
        remedy = f"use {by_srun} (srun --mpi=list says what this Slurm has), or {by_own}"
        if problem:
            remedy = f"use {by_own}, or {by_srun} once Slurm can load it: {problem}"
    return (
        f"{launcher.name} started {launcher.size} processes, but {library.name}, the MPI of this "
        f"Python, runs each of them alone: {remedy}"
    )


def too_many_for_srun(library: Library, cores: int, environ: Mapping[str, str]) -> str | None:
    """Return the message about too few cores for MPI_Init, in the process that prints it.

    Open MPI 5 under srun aborts in each process whose number on its node is not below the
    number of cores.

    Parameters
    ----------
    library : Library
        Open MPI.
    cores : int
        Number of cores of this node.
    environ : mapping of str to str
        The environment.
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
