"""What is wrong with how ranks were started, or only slow: findings from facts, with the remedy.

Nothing here looks at the machine: who calls has gathered the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from cec_mpi.runtime.launchers import Launcher

__all__ = [
    "Finding",
    "Place",
    "advise_binding",
    "bandwidth_text",
    "different_packages",
    "different_versions",
    "find_crowds",
    "listed",
    "slow_wires",
    "unseen_shards",
    "wrong_ranks",
]


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
    """

    host: str
    ranks: int
    cores: int
    own_cores: int
    domains: int = 1
    own_domains: int = 1

    @property
    def threads(self) -> int:
        """BLAS threads for this rank: its share of the node's cores, at least 1."""
        return max(1, min(self.own_cores, self.cores // self.ranks))


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


def listed(names: Iterable[object], most: int = 3) -> str:
    """Names without repetition, the first few of them.

    Examples
    --------
    >>> listed(["n1", "n1", "n2"])
    'n1 and n2'
    >>> listed(f"n{i}" for i in range(1, 21))
    'n1, n2, n3 and 17 more'
    """
    each = [str(name) for name in dict.fromkeys(names)]
    if len(each) > most + 1:
        each = [*each[:most], f"{len(each) - most} more"]
    return " and ".join(filter(None, [", ".join(each[:-1]), each[-1]]))


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


def wrong_ranks(size: int, machines: Sequence[int], total: int, spares: int = 0) -> str:
    """What is wrong with a number of ranks for a store; empty when it is right.

    Parameters
    ----------
    size : int
        Ranks that were started.
    machines : sequence of int
        That are to take part.
    total : int
        Of the store, N.
    spares : int
        Ranks more, to take the place of lost machines.

    Examples
    --------
    >>> wrong_ranks(7, range(1, 7), 6)
    ''
    """
    needed = len(machines) + 1 + spares
    if size == needed:
        return ""
    which = f"{len(machines)} of its {total}" if len(machines) < total else f"its {total}"
    more = f" and {_plural(spares, 'spare')}" if spares else ""
    started = "1 rank was" if size == 1 else f"{size} ranks were"
    return (
        f"{started} started: the store needs {needed}, one for the master "
        f"and one for each of {which} machines{more} (mpirun -n {needed})"
    )


def find_crowds(places: Sequence[Place], threads: Sequence[int]) -> list[Finding]:
    """Nodes with more ranks or threads than cores.

    The first place is the master's: it waits while machines compute, and is not counted.

    Parameters
    ----------
    places : sequence of Place
        Of each rank.
    threads : sequence of int
        BLAS threads of each rank.
    """
    by_host: dict[str, list[int]] = {}
    for rank, place in enumerate(places[1:], start=1):
        by_host.setdefault(place.host, []).append(rank)
    ranks: dict[str, str] = {}
    too_many: dict[str, str] = {}
    bound: dict[str, str] = {}
    for host, here in by_host.items():
        cores = max(places[rank].cores for rank in here)
        on = f"on {_plural(cores, 'core')}"
        most = max(threads[rank] for rank in here)
        if len(here) > cores:
            ranks[host] = f"{_plural(len(here), 'machine')} {on}"
        if most > 1 and sum(threads[rank] for rank in here) > cores:
            too_many[host] = f"{_plural(len(here), 'machine')} of {most} threads {on}"
        elif any(threads[rank] > places[rank].own_cores for rank in here):
            own = min(places[rank].own_cores for rank in here)
            bound[host] = f"{most} threads bound to {_plural(own, 'core')}"
    remedies = (
        (
            "ranks",
            ranks,
            "measured speeds mean little: use more nodes, or fewer ranks per node (fine for a "
            "trial)",
        ),
        ("threads", too_many, "use fewer --threads, or none for each machine's share of the cores"),
        ("threads", bound, "use fewer --threads, or start with mpirun --bind-to none"),
    )
    return [
        Finding("warning", f"oversubscribed: more {what} than cores on {_where(found)}; {remedy}")
        for what, found, remedy in remedies
        if found
    ]


def _where(found: Mapping[str, str]) -> str:
    """Hosts, with what was found on the first."""
    first = next(iter(found))
    others = f" on {first}" if len(found) > 1 else ""
    return f"{listed(found)} ({found[first]}{others})"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def advise_binding(places: Sequence[Place], launcher: Launcher | None) -> list[Finding]:
    """Whether ranks should be bound otherwise: to more cores, or to one NUMA domain each."""
    idle, spread, few = {}, {}, {}
    for host in dict.fromkeys(place.host for place in places):
        here = [place for place in places if place.host == host]
        machines = [place for place in places[1:] if place.host == host]
        cores, domains = here[0].cores, here[0].domains
        if cores >= 2 * len(here) and max(place.own_cores for place in here) == 1:
            idle[host] = f"{_plural(len(here), 'rank')} on 1 core each, of {cores}"
        if not machines or domains < 2 or max(place.own_domains for place in machines) < 2:
            continue
        if len(machines) >= domains:
            spread[host] = f"{_plural(len(machines), 'machine')}, {domains} domains"
        else:
            few[host] = f"{_plural(len(machines), 'machine')}, {domains} domains"
    to_domains = _option(launcher, "numa")
    remedies = (
        (
            "ranks are bound to one core and leave others idle on",
            idle,
            f"start them with {_option(launcher, 'none')}",
        ),
        (
            "machines may move between NUMA domains on",
            spread,
            f"{to_domains} keeps each beside its memory (and --shards ram has it read its own)",
        ),
        (
            "machines spread over NUMA domains on",
            few,
            f"one machine per domain and {to_domains} read memory faster than one per node",
        ),
    )
    return [
        Finding("advice", f"{what} {_where(found)}: {remedy}")
        for what, found, remedy in remedies
        if found
    ]


_BINDING = {
    "Open MPI": {"none": "mpirun --bind-to none", "numa": "mpirun --map-by numa --bind-to numa"},
    "MPICH": {"none": "mpiexec -bind-to none", "numa": "mpiexec -bind-to numa"},
    "Intel MPI": {"none": "I_MPI_PIN=off", "numa": "I_MPI_PIN_DOMAIN=numa"},
    "srun": {"none": "srun --cpu-bind=none", "numa": "srun --cpu-bind=ldoms"},
}


def _option(launcher: Launcher | None, to: str) -> str:
    """How this launcher is told what to bind ranks to."""
    maker = launcher.maker if launcher is not None else ""
    return _BINDING.get(maker, _BINDING["Open MPI"])[to]


def different_versions(
    versions: Sequence[Mapping[str, str]], hosts: Sequence[str]
) -> list[Finding]:
    """What is installed in different versions; results may then differ in their last digits."""
    findings = []
    for name in versions[0]:
        by_version: dict[str, list[str]] = {}
        for version, host in zip(versions, hosts, strict=True):
            by_version.setdefault(version[name], []).append(host)
        if len(by_version) > 1:
            which = "; ".join(f"{v} on {listed(where)}" for v, where in by_version.items())
            findings.append(Finding("warning", f"{name} differs between ranks: {which}"))
    return findings


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


def bandwidth_text(rate: float) -> str:
    """Bytes per second for people.

    Examples
    --------
    >>> bandwidth_text(11.7e6), bandwidth_text(2.14e9)
    ('11.7 MB/s', '2.14 GB/s')
    """
    return f"{rate / 1e9:.3g} GB/s" if rate >= 1e9 else f"{rate / 1e6:.3g} MB/s"


def slow_wires(hosts: Sequence[str], bandwidths: Sequence[float]) -> list[Finding]:
    """Nodes that rank 0 reaches at less than a quarter of the usual bandwidth.

    Parameters
    ----------
    hosts : sequence of str
        Of ranks 1 and on.
    bandwidths : sequence of float
        Bytes per second to each of them.
    """
    usual = median(bandwidths)
    rates = {}
    for host in dict.fromkeys(hosts):
        rates[host] = max(b for h, b in zip(hosts, bandwidths, strict=True) if h == host)
    slow = {host: bandwidth_text(rate) for host, rate in rates.items() if rate < usual / 4}
    if not slow:
        return []
    return [
        Finding(
            "warning",
            f"a slow wire between rank 0 and {_where(slow)}: {bandwidth_text(usual)} is usual; "
            "leave that node out, or look at its network",
        )
    ]
