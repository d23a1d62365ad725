"""What is wrong with how ranks were started, or only slow: findings from facts, with the remedy.

Nothing here looks at the machine: who calls has gathered the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cec_mpi.processes.launch.launchers import (
    INTEL,
    MPICH,
    OPEN_MPI,
    SLURM,
    Launcher,
    ranks_by_node,
)
from cec_mpi.processes.launch.library import Library
from cec_mpi.processes.launch.places import Place, by_node
from cec_mpi.text import listed, plural


@dataclass(frozen=True)
class Finding:
    """One thing that was found, with what to do about it.

    Attributes
    ----------
    kind : {"error", "warning", "advice"}
        A run cannot be right; it is right and slow; it could be better.
    text : str
        One sentence.
    """

    kind: Literal["error", "warning", "advice"]
    text: str


def different_packages(found: Sequence[Sequence[str]]) -> str:
    """What is wrong when ranks run different versions of this package; empty when they do not.

    Parameters
    ----------
    found : sequence of (host, version, digest, path)
        Of each rank; versions to come may say more.
    """
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for host, version, digest, path, *_ in found:
        hosts.setdefault((version, digest, path), []).append(host)
    if len({(version, digest) for version, digest, _ in hosts}) == 1:
        return ""
    marks = len({version for version, _, _ in hosts}) == 1  # of files that differ all the same
    which = "; ".join(
        f"{version}{f' (files {digest})' if marks else ''} in {path} on {listed(where)}"
        for (version, digest, path), where in hosts.items()
    )
    return f"the ranks run different versions of cec_mpi: {which}; install one and the same on all"


# What each launcher is told: so many ranks, each bound to no core or to a NUMA domain.
_STARTING = {OPEN_MPI: "mpirun -n", MPICH: "mpiexec -n", INTEL: "mpirun -n", SLURM: "srun -n"}
_BINDING = {
    OPEN_MPI: {"none": "mpirun --bind-to none", "numa": "mpirun --map-by numa --bind-to numa"},
    MPICH: {"none": "mpiexec -bind-to none", "numa": "mpiexec -bind-to numa"},
    INTEL: {"none": "I_MPI_PIN=off", "numa": "I_MPI_PIN_DOMAIN=numa"},
    SLURM: {"none": "srun --cpu-bind=none", "numa": "srun --cpu-bind=ldoms"},
}
_ANY_BINDING = {"none": "no binding", "numa": "binding to NUMA domains"}


def binding(launcher: Launcher | None, to: Literal["none", "numa"]) -> str:
    """How this launcher is told what to bind ranks to, or what to look for in another's manual."""
    return _BINDING.get(launcher.maker if launcher else "", _ANY_BINDING)[to]


def wrong_ranks(
    size: int,
    machines: Sequence[int],
    total: int,
    launcher: Launcher | None = None,
    shards: Sequence[int] = (),
) -> str:
    """What is wrong with a number of ranks for a store; empty when it is right.

    Parameters
    ----------
    size : int
        Ranks that were started.
    machines : sequence of int
        That are to take part.
    total : int
        How many there are.
    launcher : Launcher or None
        That started them; None for one process that was started by hand.
    shards : sequence of int, optional
        Of each machine, where they were asked for; by default each machine of the store has one.

    Examples
    --------
    >>> wrong_ranks(7, range(1, 7), 6)
    ''
    """
    needed = len(machines) + 1
    if size == needed:
        return ""
    which = f"{len(machines)} of its" if len(machines) < total else "its"
    start = _STARTING.get(launcher.maker if launcher else OPEN_MPI)
    how = f" ({start} {needed})" if start else ""
    what, fewer = "the store needs", ""
    if shards:
        which = which.replace("its", "the")
        what = f"--shards-per-machine {','.join(map(str, shards))} needs"
    elif size - 1 in range(1, total):
        fewer = "; --shards-per-machine auto shares its shards out to fewer"
    return (
        f"{plural(size, 'rank', 'was', 'were')} started: {what} {needed}, one for "
        "the master "
        f"and one for each of {which} {plural(total, 'machine')}{how}{fewer}"
    )


def find_crowds(
    places: Sequence[Place], threads: Sequence[int], launcher: Launcher | None
) -> list[Finding]:
    """Nodes with more ranks or threads than cores.

    The first place is the master's: it waits while machines compute, and is not counted.

    Parameters
    ----------
    places : sequence of Place
        Of each rank.
    threads : sequence of int
        BLAS threads of each rank.
    launcher : Launcher or None
        That started them.
    """
    ranks: dict[Place, str] = {}
    too_many: dict[Place, str] = {}
    bound: dict[Place, str] = {}
    for node, everyone in by_node(places).items():
        here = [rank for rank in everyone if rank]
        most = max((threads[rank] for rank in here), default=0)
        on = f"on {plural(node.cores, 'core')}"
        if len(here) > node.cores:
            ranks[node] = f"{plural(len(here), 'machine')} {on}"
        total = sum(threads[rank] for rank in here)
        own = min((places[rank].own_cores for rank in here), default=0)
        tight = any(threads[rank] > places[rank].own_cores for rank in here)
        if tight and total <= max(node.cores, node.unbound_cores):
            bound[node] = f"{plural(most, 'thread')} bound to {plural(own, 'core')}"
        elif most > 1 and total > node.cores:
            too_many[node] = f"{plural(len(here), 'machine')} of {most} threads {on}"
    remedies = (
        (
            "ranks",
            ranks,
            "measured speeds mean little: use more nodes, or fewer ranks per node (fine for a "
            "trial)",
        ),
        ("threads", too_many, "use fewer --threads, or none for each machine's share of the cores"),
        ("threads", bound, f"use fewer --threads, or start with {binding(launcher, 'none')}"),
    )
    return [
        Finding(
            "warning", f"oversubscribed: more {what} than cores on {where_found(found)}; {remedy}"
        )
        for what, found, remedy in remedies
        if found
    ]


def where_found(found: Mapping[Place, str]) -> str:
    """Nodes, with what was found on the first."""
    first = next(iter(found))
    others = f" on {first.host}" if len(found) > 1 else ""
    return f"{listed(node.host for node in found)} ({found[first]}{others})"


def unseen_shards(path: str, here: str, machines: Mapping[int, str]) -> str:
    """The message where machines do not see shards that the master sees.

    Parameters
    ----------
    path : str
        The shard of the first of these machines.
    here : str
        The host of the master.
    machines : mapping of int to str
        The host of each machine that does not see its shard.
    """
    several = "s" if len(machines) > 1 else ""
    return (
        f"machine{several} {listed(machines)} on {listed(machines.values())} cannot see the "
        f"shard{several}: {path} is there for rank 0 on {here} only. Put the store on a file "
        "system that all nodes share, or a copy under the same path on each node; a relative path "
        "is seen from the directory that each rank starts in"
    )


def wrong_launcher(launcher: Launcher, library: Library, problem: str = "") -> str:
    """The message where processes do not find each other, with the remedy.

    Parameters
    ----------
    launcher : Launcher
    library : Library
    problem : str
        Why this Slurm cannot load what the library needs; empty where it can.
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
