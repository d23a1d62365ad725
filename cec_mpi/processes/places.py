"""Where processes run: cores, memory, and the network cards at which rank 0 can listen."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cec_mpi.errors import InputError
from cec_mpi.limits import cpu_quota, memory_here

if TYPE_CHECKING:
    from mpi4py import MPI

_SYSTEM = Path("/sys/devices/system")

# Variables in which launchers name the cards for ranks: names, addresses and networks. Open MPI
# does not pass on the option for its own daemons (prte_if_include), and srun sets none.
_CARDS_OF_LAUNCHERS = (
    "OMPI_MCA_btl_tcp_if_include",
    "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE",  # MPICH's, of -iface and HYDRA_IFACE
    "HYDRA_BSTRAP_IFACE",  # Intel's, of -iface and I_MPI_HYDRA_IFACE
    "FI_TCP_IFACE",
    "UCX_NET_DEVICES",
)
_NOT_THESE = "OMPI_MCA_btl_tcp_if_exclude"


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
    domains : int
        Number of NUMA domains of the node that its ranks may use together.
    own_domains : int
        NUMA domains that this rank may use.
    node : int
        The first rank of this node, because several nodes may have the same host name.
    unbound_cores : int
        Number of cores that its ranks could use without binding; 0 if unknown.
    network : str
        Result of `network_here`.
    memory : int
        Bytes that the ranks of this node may use together; 0 if unknown.
    group : int
        Number of the control group whose CPU quota limits the numbers of cores; 0 if none. A group
        with a quota is a node, because its ranks share the quota with no others.
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
    group: int = 0

    @property
    def threads(self) -> int:
        """BLAS threads of this rank: its share of the node's cores, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


def by_node(places: Sequence[Place]) -> dict[Place, list[int]]:
    """Return the ranks of each node, by the place of its first rank."""
    ranks: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place.node, []).append(rank)
    return {places[here[0]]: here for here in ranks.values()}


def place_of_ranks(comm: MPI.Intracomm) -> list[Place]:
    """Collective: return where each rank runs, in the order of ranks."""
    from mpi4py import MPI

    mine, quota = os.sched_getaffinity(0), cpu_quota()
    computer = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        node = computer.Split(quota.group)
    finally:
        computer.Free()
    try:
        together = set().union(*node.allgather(mine))
        unbound = set().union(*node.allgather(unbound_processors()))
        place = Place(
            socket.gethostname(),
            node.size,
            quota.limit(count_cores(together)),
            quota.limit(count_cores(mine)),
            count_domains(together),
            count_domains(mine),
            node.bcast(comm.rank),
            quota.limit(count_cores(unbound)),
            network_here(),
            memory_here(),
            quota.group,
        )
    finally:
        node.Free()
    return comm.allgather(place)


def place_here() -> Place:
    """Return where this process runs, as if it were alone on its node."""
    mine, quota = os.sched_getaffinity(0), cpu_quota()
    cores, domains = quota.limit(count_cores(mine)), count_domains(mine)
    return Place(
        socket.gethostname(),
        1,
        cores,
        cores,
        domains,
        domains,
        unbound_cores=quota.limit(count_cores(unbound_processors())),
        network=network_here(),
        memory=memory_here(),
        group=quota.group,
    )


def places_together(alone: Sequence[Place]) -> list[Place]:
    """Complete the places of single processes by how many of them share a node.

    Processes that reach each other at 127.0.0.1 share a node, unless control groups with quotas of
    their own limit them. Bound ranks are assumed to have
    different cores.

    Examples
    --------
    >>> here = Place("node", 1, 8, 8, unbound_cores=8, network="a")
    >>> [place.threads for place in places_together([here] * 4)]
    [2, 2, 2, 2]
    """
    nodes: dict[tuple[str, int], list[int]] = {}
    for rank, place in enumerate(alone):
        nodes.setdefault((place.network, place.group), []).append(rank)
    completed = []
    for place in alone:
        ranks = nodes[place.network, place.group]
        cores = min(sum(alone[rank].own_cores for rank in ranks), place.unbound_cores)
        completed.append(
            replace(place, ranks=len(ranks), cores=max(cores, place.own_cores), node=ranks[0])
        )
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


def count_cores(processors: Set[int], system: Path = _SYSTEM) -> int:
    """Return the number of cores of these processors; hardware threads of a core count once.

    If the system does not tell, each processor counts as a core.
    """
    cores = set()
    for number in processors:
        try:
            siblings = system / f"cpu/cpu{number}/topology/thread_siblings_list"
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(number))
    return len(cores)


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


class Card(NamedTuple):
    """An address of a network card; a card with several addresses is listed several times.

    Attributes
    ----------
    name : str
    address : str
        An IPv4 address, or an IPv6 address that is not link-local.
    """

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this computer reaches it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_of_the_link_alone(self) -> bool:
        """Whether it is a link-local IPv6 address, which is valid only with the name of a card."""
        address = ipaddress.ip_address(self.address)
        return address.version == 6 and address.is_link_local


def where_to_listen(
    interface: str | None, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the addresses at which rank 0 listens; an empty one stands for all addresses.

    Parameters
    ----------
    interface : str or None
        Option of the user: names of cards, addresses, and networks such as 10.0.0.0/8.
    environ : mapping of str to str
        The environment, in which the launcher may name cards.

    Raises
    ------
    InputError
        No card matches.
    """
    if interface is not None:
        try:
            here = cards()
        except OSError as error:
            raise InputError(f"interface {interface!r}: no network cards: {error}") from None
        found = matching(str(interface), here)
        if not found:
            raise InputError(
                f"interface {interface!r}: rank 0 on {socket.gethostname()} has "
                f"{_listed(here)}; expected their names, addresses or networks, for example "
                "eth0, 10.0.0.7 or 10.0.0.0/8"
            )
        return _addresses(found)
    try:
        return _addresses(cards_of_launcher(cards(), environ)) or ("",)
    except OSError:
        return ("",)


def cards_of_launcher(here: Sequence[Card], environ: Mapping[str, str]) -> list[Card]:
    """Return the cards that the launcher names for ranks; empty if it names none.

    Names that this computer does not have, or that only it can reach, do not count.

    Examples
    --------
    >>> here = [Card("lo", "127.0.0.1"), Card("eth0", "10.1.0.7"), Card("docker0", "172.17.0.1")]
    >>> cards_of_launcher(here, {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8"})
    [Card(name='eth0', address='10.1.0.7')]
    """
    for variable in _CARDS_OF_LAUNCHERS:
        found = matching(environ.get(variable, ""), here)
        if not all(card.is_loopback for card in found):
            return found
    without = matching(environ.get(_NOT_THESE, ""), here)
    if without:
        return [card for card in here if card not in without and not card.is_loopback]
    return []


def matching(text: str, here: Iterable[Card]) -> list[Card]:
    """Return the cards in a list of names, addresses and networks.

    Examples
    --------
    >>> here = [Card("eth0", "10.1.0.7"), Card("eth0", "fd00::7"), Card("ib0", "10.2.0.7")]
    >>> [card.address for card in matching("fd00::7,10.2.0.0/16", here)]
    ['fd00::7', '10.2.0.7']
    >>> [card.address for card in matching("eth0", here)]
    ['10.1.0.7', 'fd00::7']
    """
    tests = [_test(word) for word in filter(None, map(str.strip, text.split(",")))]
    return [card for card in here if any(fits(card) for fits in tests)]


def _test(word: str) -> Callable[[Card], bool]:
    with suppress(ValueError):
        network = ipaddress.ip_network(word, strict=False)  # an address is one of itself
        return lambda card: ipaddress.ip_address(card.address) in network
    return lambda card: card.name == word


def _addresses(found: Iterable[Card]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(card.address for card in found))


def _listed(found: Iterable[Card]) -> str:
    return ", ".join(f"{card.name} ({card.address})" for card in found) or "no network card"


def network_here() -> str:
    """Return a text that is the same for processes that reach each other at 127.0.0.1."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:  # for example in a sandbox
        return socket.gethostname()


def cards() -> list[Card]:
    """Return the network cards of this computer that have an address.

    Raises
    ------
    OSError
        The system does not tell.
    """
    import psutil  # only on rank 0

    found = []
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                card = Card(name, entry.address.partition("%")[0])
                if not card.is_of_the_link_alone:
                    found.append(card)
    return found
