"""Findings about how ranks were started: what is wrong or slow, and what to do about it.

The functions take facts and do not look at the computer themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cec_mpi.processes.launcher import INTEL, MPICH, OPEN_MPI, SLURM, Launcher
from cec_mpi.processes.places import Place, by_node
from cec_mpi.text import listed, plural


@dataclass(frozen=True)
class Finding:
    """A finding, with what to do about it.

    Attributes
    ----------
    kind : {"error", "warning", "advice"}
        A run would fail; it would be slow; it could be better.
    text : str
        One sentence.
    """

    kind: Literal["error", "warning", "advice"]
    text: str


# Options of launchers: the number of ranks, and their binding to no core or to a NUMA domain.
_STARTING = {OPEN_MPI: "mpirun -n", MPICH: "mpiexec -n", INTEL: "mpirun -n", SLURM: "srun -n"}
_BINDING = {
    OPEN_MPI: {"none": "mpirun --bind-to none", "numa": "mpirun --map-by numa --bind-to numa"},
    MPICH: {"none": "mpiexec -bind-to none", "numa": "mpiexec -bind-to numa"},
    INTEL: {"none": "I_MPI_PIN=off", "numa": "I_MPI_PIN_DOMAIN=numa"},
    SLURM: {"none": "srun --cpu-bind=none", "numa": "srun --cpu-bind=ldoms"},
}
_ANY_BINDING = {"none": "no binding", "numa": "binding to NUMA domains"}


def binding(launcher: Launcher | None, to: Literal["none", "numa"]) -> str:
    """Return the option of this launcher for binding ranks, or what to look for in its manual."""
    return _BINDING.get(launcher.maker if launcher else "", _ANY_BINDING)[to]


def wrong_ranks(
    size: int, machines: Sequence[int], total: int, launcher: Launcher | None = None
) -> str:
    """Return what is wrong with the number of ranks; empty if it fits the store.

    Parameters
    ----------
    size : int
        Number of ranks.
    machines : sequence of int
        Machines that take part.
    total : int
        Number of machines of the store.
    launcher : Launcher or None
        Launcher of the ranks; None for a process that was started by hand.

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
    return (
        f"{plural(size, 'rank', 'was', 'were')} started: the store needs {needed}, one for "
        f"the master and one for each of {which} {plural(total, 'machine')}{how}"
    )


def find_crowds(
    places: Sequence[Place], threads: Sequence[int], launcher: Launcher | None
) -> list[Finding]:
    """Find nodes with more ranks or threads than cores.

    The first place is that of the master, which is not counted, because it waits while machines
    compute.

    Parameters
    ----------
    places : sequence of Place
        Places of ranks.
    threads : sequence of int
        BLAS threads of each rank.
    launcher : Launcher or None
        Launcher of the ranks.
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
            "machines",
            ranks,
            "this is fine for a trial, but measured speeds mean little: use more nodes, or fewer "
            "machines on each",
        ),
        (
            "threads",
            too_many,
            "use fewer --threads, or leave --threads out: each machine then uses its share",
        ),
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
    """Return nodes, with the finding on the first one."""
    first = next(iter(found))
    others = f" on {first.host}" if len(found) > 1 else ""
    return f"{listed(node.host for node in found)} ({found[first]}{others})"


def unseen_shards(path: str, here: str, machines: Mapping[int, str]) -> str:
    """Return the message about machines that do not see shards that the master sees.

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
        f"shard{several}: only rank 0 on {here} sees {path}. Put the store on a file system that "
        "all nodes share, or a copy under the same path on each node; each rank looks for a "
        "relative path in the directory in which it starts"
    )
