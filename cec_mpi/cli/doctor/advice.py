"""Findings of doctor on the binding of ranks and on versions of libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cec_mpi.runtime.processes.launcher import Launcher
from cec_mpi.runtime.processes.resources import (
    Finding,
    ProcessInfo,
    binding_option,
    format_nodes,
    ranks_by_node,
)
from cec_mpi.text import join_names, plural


def advise_binding(processes: Sequence[ProcessInfo], launcher: Launcher | None) -> list[Finding]:
    """Return advice to bind ranks to more cores, or each machine to one NUMA domain."""
    nodes_with_idle_cores: dict[ProcessInfo, str] = {}
    nodes_with_unbound_machines: dict[ProcessInfo, str] = {}
    nodes_with_few_machines: dict[ProcessInfo, str] = {}
    for node, ranks in ranks_by_node(processes).items():
        is_bound_to_core = max(processes[rank].own_cores for rank in ranks) == 1
        if is_bound_to_core and node.unbound_cores >= 2 * node.cores:
            used_cores = f"{plural(node.cores, 'core')} of {node.unbound_cores}"
            nodes_with_idle_cores[node] = f"{plural(len(ranks), 'rank')} on {used_cores}"
        machines = [rank for rank in ranks if rank]
        if machines and max(processes[rank].own_domains for rank in machines) > 1:
            fills_domains = len(machines) >= node.domains
            nodes = nodes_with_unbound_machines if fills_domains else nodes_with_few_machines
            nodes[node] = f"{plural(len(machines), 'machine')}, {node.domains} domains"
    to_domains = binding_option(launcher, "numa")
    cases = (
        (
            "ranks are bound to one core, and other cores are idle on",
            nodes_with_idle_cores,
            f"start them with {binding_option(launcher, 'none')}",
        ),
        (
            "machines may move between NUMA domains on",
            nodes_with_unbound_machines,
            f"{to_domains} keeps each machine near its memory (--shards ram also copies its shard "
            "there)",
        ),
        (
            "machines spread over NUMA domains on",
            nodes_with_few_machines,
            f"one machine per domain with {to_domains} reads memory faster than one per node",
        ),
    )
    return [
        Finding("advice", f"{problem} {format_nodes(nodes)}: {remedy}")
        for problem, nodes, remedy in cases
        if nodes
    ]


def find_version_differences(
    versions: Sequence[Mapping[str, str]], hosts: Sequence[str]
) -> list[Finding]:
    """Return a warning for each library whose versions differ between ranks.

    Different versions may give results that differ in their last digits.
    """
    findings = []
    for name in versions[0]:
        hosts_by_version: dict[str, list[str]] = {}
        for versions_of_rank, host in zip(versions, hosts, strict=True):
            hosts_by_version.setdefault(versions_of_rank[name], []).append(host)
        if len(hosts_by_version) > 1:
            text = "; ".join(f"{v} on {join_names(names)}" for v, names in hosts_by_version.items())
            findings.append(Finding("warning", f"{name} differs between ranks: {text}"))
    return findings
