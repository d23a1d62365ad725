"""Where processes run: cores, memory and networks, and what is wrong or slow there."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from cec_mpi.runtime.processes.launcher import INTEL, MPICH, OPEN_MPI, SLURM, Launcher
from cec_mpi.runtime.processes.packing import allgather
from cec_mpi.store.limits import cpu_quota, total_memory
from cec_mpi.text import join_names, plural

if TYPE_CHECKING:
    from mpi4py import MPI

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_SYSTEM = Path("/sys/devices/system")


@dataclass(frozen=True)
class Place:
    """Where a rank runs.

    Attributes
    ----------
    host : str
    ranks : int
        Number of ranks on this node.
    cores : int
        Number of cores of the node that its ranks may use together. Hardware threads of a core
        count once.
    own_cores : int
        Number of cores that this rank may use.
    domains, own_domains : int
        Number of NUMA domains of the node, and of the domains that this rank may use.
    node : int
        The first rank of this node, because several nodes may have the same host name.
    unbound_cores : int
        Number of cores that its ranks could use without binding; 0 if unknown.
    network : str
        Result of `network_id`.
    memory : int
        Bytes that the ranks of this node may use together; 0 if unknown.
    group : int
        Number of the control group whose CPU quota limits the numbers of cores; 0 if none. A group
        with a quota is a node, because its ranks share the quota with no others.
    core_numbers : tuple of int
        The cores that this rank may use, by their numbers on the node.
    """

    host: str
    ranks: Count
    cores: Count
    own_cores: Count
    domains: Count = 1
    own_domains: Count = 1
    node: Count = 0
    unbound_cores: Count = 0
    network: str = ""
    memory: Count = 0
    group: Count = 0
    core_numbers: Annotated[tuple[Count, ...], Meta(max_length=1 << 16)] = ()

    @property
    def threads(self) -> int:
        """BLAS threads of this rank: its share of the node's cores, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


def ranks_by_node(places: Sequence[Place]) -> dict[Place, list[int]]:
    """Return the ranks of each node, by the place of its first rank."""
    ranks: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place.node, []).append(rank)
    return {places[here[0]]: here for here in ranks.values()}


def place_of_ranks(comm: MPI.Comm) -> list[Place]:
    """Collective: return where each rank runs, in the order of ranks."""
    return combine_places(allgather(comm, detect_place(), Place))


def detect_place() -> Place:
    """Return where this process runs, as if it were alone on its node."""
    mine, all_processors = os.sched_getaffinity(0), unbound_processors()
    quota, cores = cpu_quota(), core_numbers(mine)
    count = quota.limit(len(cores))
    return Place(
        socket.gethostname(),
        1,
        count,
        count,
        count_domains(all_processors),
        count_domains(mine),
        unbound_cores=quota.limit(len(core_numbers(all_processors))),
        network=network_id(),
        memory=total_memory(),
        group=quota.group,
        core_numbers=cores,
    )


def combine_places(alone: Sequence[Place]) -> list[Place]:
    """Complete the places of single processes by how many of them share a node.

    Processes that reach each other at 127.0.0.1 share a node, unless control groups with quotas of
    their own limit them.

    Examples
    --------
    >>> here = Place("node", 1, 8, 8, unbound_cores=8, network="a", core_numbers=tuple(range(8)))
    >>> [place.threads for place in combine_places([here] * 4)]
    [2, 2, 2, 2]
    """
    nodes: dict[tuple[str, int], list[int]] = {}
    for rank, place in enumerate(alone):
        nodes.setdefault((place.network, place.group), []).append(rank)
    completed = []
    for place in alone:
        ranks = nodes[place.network, place.group]
        cores_of_node = set().union(*(alone[rank].core_numbers for rank in ranks))
        cores = max(min(len(cores_of_node), place.unbound_cores), place.own_cores)
        completed.append(replace(place, ranks=len(ranks), cores=cores, node=ranks[0]))
    return completed


def limit_threads(threads: int) -> Any:
    """Set the number of BLAS threads of this process, whatever the launcher has set."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)


def unbound_processors() -> set[int]:
    """Return the processors that this process could use without binding: all of its cpuset.

    The process asks for all processors for a moment. If that is refused, those that it may use are
    returned.
    """
    bound = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    except OSError:
        return bound
    try:
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, bound)


def core_numbers(processors: Set[int], system: Path = _SYSTEM) -> tuple[int, ...]:
    """Return the cores of these processors: of each the first of its hardware threads.

    If the topology is unknown, each processor counts as a core.
    """
    cores = set()
    for number in processors:
        try:
            siblings = system / f"cpu/cpu{number}/topology/thread_siblings_list"
            cores.add(min(_numbers(siblings.read_text())))
        except (OSError, ValueError):
            cores.add(number)
    return tuple(sorted(cores))


def count_domains(processors: Set[int], system: Path = _SYSTEM) -> int:
    """Return the number of NUMA domains of these processors; 1 if the system does not tell."""
    lists = [path.read_text() for path in system.glob("node/node[0-9]*/cpulist")]
    return max(1, sum(not processors.isdisjoint(_numbers(text)) for text in lists))


def _numbers(text: str) -> set[int]:
    """Return the numbers of a list like ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def network_id() -> str:
    """Return a text that is the same for processes that reach each other at 127.0.0.1."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:  # for example in a sandbox
        return socket.gethostname()


# Findings about how ranks were started.


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
    return _BINDING.get(launcher.implementation if launcher else "", _ANY_BINDING)[to]


def rank_count_problem(
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
    >>> rank_count_problem(7, range(1, 7), 6)
    ''
    """
    needed = len(machines) + 1
    if size == needed:
        return ""
    which = f"{len(machines)} of its" if len(machines) < total else "its"
    start = _STARTING.get(launcher.implementation if launcher else OPEN_MPI)
    how = f" ({start} {needed})" if start else ""
    return (
        f"{plural(size, 'rank', 'was', 'were')} started: the store needs {needed}, one for "
        f"the master and one for each of {which} {plural(total, 'machine')}{how}"
    )


def find_oversubscription(
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
    for node, node_ranks in ranks_by_node(places).items():
        here = [rank for rank in node_ranks if rank]
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
            "fine for a trial, but measured speeds are unreliable: use more nodes, or fewer "
            "machines per node",
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
            "warning", f"oversubscribed: more {what} than cores on {format_nodes(found)}; {remedy}"
        )
        for what, found, remedy in remedies
        if found
    ]


def format_nodes(found: Mapping[Place, str]) -> str:
    """Return nodes, with the finding on the first one."""
    first = next(iter(found))
    others = f" on {first.host}" if len(found) > 1 else ""
    return f"{join_names(node.host for node in found)} ({found[first]}{others})"


def missing_shards_message(path: str, here: str, machines: Mapping[int, str]) -> str:
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
        f"machine{several} {join_names(machines)} on {join_names(machines.values())} cannot see "
        f"the shard{several}: only rank 0 on {here} sees {path}. Put the store on a file system "
        "that all nodes share, or a copy under the same path on each node; each rank looks for a "
        "relative path in the directory in which it starts"
    )
