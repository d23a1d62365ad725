"""Findings of doctor: how to start ranks better, and which versions differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cec_mpi.runtime.processes.launcher import Launcher
from cec_mpi.runtime.processes.places import Finding, Place, binding, format_nodes, ranks_by_node
from cec_mpi.text import join_names, plural


def advise_binding(places: Sequence[Place], launcher: Launcher | None) -> list[Finding]:
    """Advise to bind ranks to more cores, or to one NUMA domain each."""
    idle: dict[Place, str] = {}
    spread: dict[Place, str] = {}
    few: dict[Place, str] = {}
    for node, ranks in ranks_by_node(places).items():
        cores, domains = node.cores, node.domains
        alone = max(places[rank].own_cores for rank in ranks) == 1
        if alone and node.unbound_cores >= 2 * cores:
            on = f"{plural(cores, 'core')} of {node.unbound_cores}"
            idle[node] = f"{plural(len(ranks), 'rank')} on {on}"
        machines = [rank for rank in ranks if rank]
        if machines and max(places[rank].own_domains for rank in machines) > 1:
            which = spread if len(machines) >= domains else few
            which[node] = f"{plural(len(machines), 'machine')}, {domains} domains"
    to_domains = binding(launcher, "numa")
    remedies = (
        (
            "ranks are bound to one core, and other cores are idle on",
            idle,
            f"start them with {binding(launcher, 'none')}",
        ),
        (
            "machines may move between NUMA domains on",
            spread,
            f"{to_domains} keeps each machine near its memory (--shards ram also copies its shard "
            "there)",
        ),
        (
            "machines spread over NUMA domains on",
            few,
            f"one machine per domain with {to_domains} reads memory faster than one per node",
        ),
    )
    return [
        Finding("advice", f"{what} {format_nodes(found)}: {remedy}")
        for what, found, remedy in remedies
        if found
    ]


def different_versions(
    versions: Sequence[Mapping[str, str]], hosts: Sequence[str]
) -> list[Finding]:
    """Warn of different versions on ranks: results may then differ in their last digits."""
    findings = []
    for name in versions[0]:
        by_version: dict[str, list[str]] = {}
        for version, host in zip(versions, hosts, strict=True):
            by_version.setdefault(version[name], []).append(host)
        if len(by_version) > 1:
            which = "; ".join(f"{v} on {join_names(where)}" for v, where in by_version.items())
            findings.append(Finding("warning", f"{name} differs between ranks: {which}"))
    return findings
