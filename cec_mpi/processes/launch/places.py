"""Where ranks run, and the cores and threads that each has there."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cec_mpi.processes.launch.cards import network_here
from cec_mpi.processes.launch.memory import memory_here
from cec_mpi.processes.launch.topology import count_cores, count_domains, unbound_processors

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Place:
    """Where a rank runs.

    Attributes
    ----------
    host : str
    ranks : int
        Ranks on this node.
    cores : int
        Cores of the node that its ranks may use, together. Hardware threads of one core are
        one.
    own_cores : int
        Cores that this rank may use.
    domains : int
        NUMA domains of the node that its ranks may use, together.
    own_domains : int
        NUMA domains that this rank may use.
    node : int
        The first rank of this node: names of hosts may be the same on several.
    unbound_cores : int
        Cores of the node that its ranks could use if the launcher bound them to none; 0 where
        that is not known.
    network : str
        Of `network_here`.
    memory : int
        Bytes that the ranks of this node may use, together; 0 where that is not known.
    """

    host: str
    ranks: int
    cores: int
    own_cores: int
    domains: int = 1
    own_domains: int = 1
    node: int = 0
    unbound_cores: int = 0
    network: str = ""
    memory: int = 0

    @property
    def threads(self) -> int:
        """BLAS threads for this rank: its share of the node's cores, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


def by_node(places: Sequence[Place]) -> dict[Place, list[int]]:
    """The ranks of each node, under the place of its first rank."""
    ranks: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place.node, []).append(rank)
    return {places[here[0]]: here for here in ranks.values()}


def place_of_ranks(comm: MPI.Intracomm) -> list[Place]:
    """Collective: where each rank runs, in the order of ranks."""
    from mpi4py import MPI

    mine = os.sched_getaffinity(0)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        together = set().union(*node.allgather(mine))
        unbound = set().union(*node.allgather(unbound_processors()))
        place = Place(
            socket.gethostname(),
            node.size,
            count_cores(together),
            count_cores(mine),
            count_domains(together),
            count_domains(mine),
            node.bcast(comm.rank),
            count_cores(unbound),
            network_here(),
            memory_here(),
        )
    finally:
        node.Free()
    return comm.allgather(place)


def place_here() -> Place:
    """Where this process runs, as it sees it alone."""
    mine = os.sched_getaffinity(0)
    cores, domains = count_cores(mine), count_domains(mine)
    return Place(
        socket.gethostname(),
        1,
        cores,
        cores,
        domains,
        domains,
        unbound_cores=count_cores(unbound_processors()),
        network=network_here(),
        memory=memory_here(),
    )


def places_together(alone: Sequence[Place]) -> list[Place]:
    """Complete what processes see alone by how many of them share a node.

    Processes that reach each other at 127.0.0.1 share a node. Cores that ranks were bound to are
    taken to differ.

    Examples
    --------
    >>> here = Place("node", 1, 8, 8, unbound_cores=8, network="a")
    >>> [place.threads for place in places_together([here] * 4)]
    [2, 2, 2, 2]
    """
    nodes: dict[str, list[int]] = {}
    for rank, place in enumerate(alone):
        nodes.setdefault(place.network, []).append(rank)
    completed = []
    for place in alone:
        ranks = nodes[place.network]
        cores = min(sum(alone[rank].own_cores for rank in ranks), place.unbound_cores)
        completed.append(
            replace(place, ranks=len(ranks), cores=max(cores, place.own_cores), node=ranks[0])
        )
    return completed


def limit_threads(threads: int) -> Any:
    """Let BLAS use this many threads in this process, whatever the launcher set."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)
