"""Cores, memory and networks of processes, and findings about their use."""

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

Natural = Annotated[int, Meta(ge=0, lt=1 << 62)]
_SYSTEM = Path("/sys/devices/system")


@dataclass(frozen=True)
class ProcessInfo:
    """Computer and resources of the process of a rank.

    Attributes
    ----------
    host_name : str
    ranks : int
        Number of ranks on this node.
    cores : int
        Number of cores of the node that its ranks together may use. The hardware threads of a core
        count as one.
    own_cores : int
        Number of cores that this rank may use.
    domains, own_domains : int
        Number of NUMA domains of the node, and number of those that this rank may use.
    node : int
        First rank of this node, which identifies it, because several nodes may have the same host
        name.
    unbound_cores : int
        Number of cores of the node that could be used without binding; 0 if unknown.
    network : str
        Identifier of the network namespace (`network_id`).
    memory : int
        Bytes that the ranks of this node together may use; 0 if unknown.
    group : int
        Number of the control group whose CPU quota limits the cores; 0 if there is no quota. A
        group with a quota counts as a node, because only its ranks share the quota.
    core_numbers : tuple of int
        Numbers of the cores that this rank may use.
    pid : int
        Process ID on its node; 0 if unknown.
    """

    host_name: str
    ranks: Natural
    cores: Natural
    own_cores: Natural
    domains: Natural = 1
    own_domains: Natural = 1
    node: Natural = 0
    unbound_cores: Natural = 0
    network: str = ""
    memory: Natural = 0
    group: Natural = 0
    core_numbers: Annotated[tuple[Natural, ...], Meta(max_length=1 << 16)] = ()
    pid: Natural = 0

    @property
    def threads(self) -> int:
        """BLAS threads of this rank: its share of the cores of the node, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


def ranks_by_node(processes: Sequence[ProcessInfo]) -> dict[ProcessInfo, list[int]]:
    """Return the ranks of each node, keyed by the process of the first one."""
    ranks: dict[int, list[int]] = {}  # by node
    for rank, process in enumerate(processes):
        ranks.setdefault(process.node, []).append(rank)
    return {processes[node_ranks[0]]: node_ranks for node_ranks in ranks.values()}


def gather_processes(comm: MPI.Comm) -> list[ProcessInfo]:
    """Return the computer and resources of each rank (collective)."""
    return add_node_totals(allgather(comm, detect_process(), ProcessInfo))


def detect_process() -> ProcessInfo:
    """Return the computer and resources of this process, as if it were alone on its node."""
    own_processors, all_processors = os.sched_getaffinity(0), unbound_processors()
    quota, cores = cpu_quota(), core_numbers(own_processors)
    count = quota.limit(len(cores))
    return ProcessInfo(
        socket.gethostname(),
        1,
        count,
        count,
        count_domains(all_processors),
        count_domains(own_processors),
        unbound_cores=quota.limit(len(core_numbers(all_processors))),
        network=network_id(),
        memory=total_memory(),
        group=quota.group,
        core_numbers=cores,
        pid=os.getpid(),
    )


def add_node_totals(processes: Sequence[ProcessInfo]) -> list[ProcessInfo]:
    """Return the results of `detect_process`, with the number of ranks and cores of each node.

    Processes that can reach each other at 127.0.0.1 share a node, unless they are in different
    control groups with quotas.

    Examples
    --------
    >>> here = ProcessInfo("node", 1, 8, 8, unbound_cores=8, core_numbers=tuple(range(8)))
    >>> [process.threads for process in add_node_totals([here] * 4)]
    [2, 2, 2, 2]
    """
    nodes: dict[tuple[str, int], list[int]] = {}  # ranks by network and control group
    for rank, process in enumerate(processes):
        nodes.setdefault((process.network, process.group), []).append(rank)
    with_totals = []
    for process in processes:
        ranks = nodes[process.network, process.group]
        cores_of_node = set().union(*(processes[rank].core_numbers for rank in ranks))
        cores = max(min(len(cores_of_node), process.unbound_cores), process.own_cores)
        with_totals.append(replace(process, ranks=len(ranks), cores=cores, node=ranks[0]))
    return with_totals


def limit_threads(threads: int) -> Any:
    """Set the number of BLAS threads of this process, overriding the launcher."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)


def unbound_processors() -> set[int]:
    """Return the processors that this process could use without binding: its cpuset.

    For a moment the process requests all processors. If that fails, the processors that it may use
    are returned.
    """
    affinity = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    except OSError:
        return affinity
    try:
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, affinity)


def core_numbers(processors: Set[int], system: Path = _SYSTEM) -> tuple[int, ...]:
    """Return the first hardware thread of each core of these processors.

    If the topology is unknown, each processor counts as a core.
    """
    cores = set()
    for number in processors:
        try:
            siblings = system / f"cpu/cpu{number}/topology/thread_siblings_list"
            cores.add(min(_parse_numbers(siblings.read_text())))
        except (OSError, ValueError):
            cores.add(number)
    return tuple(sorted(cores))


def count_domains(processors: Set[int], system: Path = _SYSTEM) -> int:
    """Return the number of NUMA domains of these processors; 1 if it is unknown."""
    lists = [path.read_text() for path in system.glob("node/node[0-9]*/cpulist")]
    return max(1, sum(not processors.isdisjoint(_parse_numbers(text)) for text in lists))


def _parse_numbers(text: str) -> set[int]:
    """Parse a list such as ``0-3,8``."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def network_id() -> str:
    """Return an identifier shared by processes that can reach each other at 127.0.0.1."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:  # for example in a sandbox
        return socket.gethostname()


# --- findings about the start of ranks ------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A finding, with a remedy.

    Attributes
    ----------
    severity : {"error", "warning", "advice"}
        A run would fail, would be slow, or could be faster.
    text : str
        One sentence.
    """

    severity: Literal["error", "warning", "advice"]
    text: str


# Options of launchers for the number of ranks, and for their binding to no core or to NUMA domains.
_START_COMMANDS = {OPEN_MPI: "mpirun -n", MPICH: "mpiexec -n", INTEL: "mpirun -n", SLURM: "srun -n"}
_BINDING_OPTIONS = {
    OPEN_MPI: {"none": "mpirun --bind-to none", "numa": "mpirun --map-by numa --bind-to numa"},
    MPICH: {"none": "mpiexec -bind-to none", "numa": "mpiexec -bind-to numa"},
    INTEL: {"none": "I_MPI_PIN=off", "numa": "I_MPI_PIN_DOMAIN=numa"},
    SLURM: {"none": "srun --cpu-bind=none", "numa": "srun --cpu-bind=ldoms"},
}
_UNKNOWN_LAUNCHER = {"none": "no binding", "numa": "binding to NUMA domains"}


def binding_option(launcher: Launcher | None, target: Literal["none", "numa"]) -> str:
    """Return the launcher's option for binding ranks; a description for an unknown launcher."""
    implementation = launcher.implementation if launcher else ""
    return _BINDING_OPTIONS.get(implementation, _UNKNOWN_LAUNCHER)[target]


def rank_count_problem(
    size: int, machines: Sequence[int], total: int, launcher: Launcher | None = None
) -> str:
    """Return a message if the number of ranks does not fit the store, else an empty string.

    Parameters
    ----------
    size : int
        Number of ranks.
    machines : sequence of int
        Machines that take part.
    total : int
        Number of machines of the store.
    launcher : Launcher or None
        Launcher of the ranks.

    Examples
    --------
    >>> rank_count_problem(7, range(1, 7), 6)
    ''
    """
    needed = len(machines) + 1
    if size == needed:
        return ""
    selected = f"{len(machines)} of its" if len(machines) < total else "its"
    command = _START_COMMANDS.get(launcher.implementation if launcher else OPEN_MPI)
    remedy = f" ({command} {needed})" if command else ""
    return (
        f"{plural(size, 'rank', 'was', 'were')} started: the store needs {needed}, one for "
        f"the master and one for each of {selected} {plural(total, 'machine')}{remedy}"
    )


def find_oversubscription(
    processes: Sequence[ProcessInfo], threads: Sequence[int], launcher: Launcher | None
) -> list[Finding]:
    """Find nodes with more ranks or threads than cores.

    The master, the first process, does not count, because it waits while machines compute.

    Parameters
    ----------
    processes : sequence of ProcessInfo
        Processes of ranks from 0 on.
    threads : sequence of int
        BLAS threads of each rank.
    launcher : Launcher or None
        Launcher of the ranks.
    """
    excess_machines: dict[ProcessInfo, str] = {}  # details by node
    excess_threads: dict[ProcessInfo, str] = {}
    bound_threads: dict[ProcessInfo, str] = {}
    for node, node_ranks in ranks_by_node(processes).items():
        ranks = [rank for rank in node_ranks if rank]
        max_threads = max((threads[rank] for rank in ranks), default=0)
        machines_text, cores_text = plural(len(ranks), "machine"), plural(node.cores, "core")
        if len(ranks) > node.cores:
            excess_machines[node] = f"{machines_text} on {cores_text}"
        total_threads = sum(threads[rank] for rank in ranks)
        own_cores = min((processes[rank].own_cores for rank in ranks), default=0)
        is_bound = any(threads[rank] > processes[rank].own_cores for rank in ranks)
        if is_bound and total_threads <= max(node.cores, node.unbound_cores):
            bound_threads[node] = (
                f"{plural(max_threads, 'thread')} bound to {plural(own_cores, 'core')}"
            )
        elif max_threads > 1 and total_threads > node.cores:
            excess_threads[node] = f"{machines_text} of {max_threads} threads on {cores_text}"
    cases = (
        (
            "machines",
            excess_machines,
            "this is fine for a test, but measured speeds are unreliable: use more nodes, or fewer "
            "machines on each node",
        ),
        (
            "threads",
            excess_threads,
            "use fewer --threads, or omit --threads: then each machine uses its share",
        ),
        (
            "threads",
            bound_threads,
            f"use fewer --threads, or start with {binding_option(launcher, 'none')}",
        ),
    )
    return [
        Finding(
            "warning",
            f"oversubscribed: more {noun} than cores on {format_nodes(nodes)}; {remedy}",
        )
        for noun, nodes, remedy in cases
        if nodes
    ]


def format_nodes(details: Mapping[ProcessInfo, str]) -> str:
    """Return the names of nodes, and the details of the first one."""
    first = next(iter(details))
    node = f" on {first.host_name}" if len(details) > 1 else ""
    return f"{join_names(process.host_name for process in details)} ({details[first]}{node})"


def missing_shards_message(path: str, master_host_name: str, machines: Mapping[int, str]) -> str:
    """Return the message for machines whose shards only the master can see.

    Parameters
    ----------
    path : str
        Shard of the first of these machines.
    master_host_name : str
        Computer of the master.
    machines : mapping of int to str
        Computer of each machine that cannot see its shard.
    """
    suffix = "s" if len(machines) > 1 else ""
    return (
        f"machine{suffix} {join_names(machines)} on {join_names(machines.values())} cannot see "
        f"the shard{suffix}: only rank 0 on {master_host_name} sees {path}. Put the store on a "
        "shared file system, or copy it to the same path on each node; a relative path refers to "
        "the directory in which the rank starts"
    )
