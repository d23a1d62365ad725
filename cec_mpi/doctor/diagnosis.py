"""Findings of doctor from its facts, and an estimate of step times.

These functions measure nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

from cec_mpi.core.step.costs import BYTES, terms_of
from cec_mpi.doctor.advice import advise_binding, bandwidth_text, different_versions, slow_wires
from cec_mpi.doctor.facts import Facts
from cec_mpi.processes.findings import Finding, find_crowds, unseen_shards, wrong_ranks
from cec_mpi.processes.library import maker_of
from cec_mpi.processes.places import by_node
from cec_mpi.tables import aligned, facts_table
from cec_mpi.text import plural, printable

_WIDTH = 120  # columns: the width of the terminal is unknown under a launcher


def findings(facts: Facts) -> list[Finding]:
    """Return findings: errors first, then warnings, then advice."""
    hosts = [place.host for place in facts.places]
    found = [
        *_of_launchers(facts),
        *_of_store(facts),
        *different_versions(facts.versions, hosts),
        *find_crowds(facts.places, facts.threads, facts.launcher),
        *(slow_wires(facts.places, [w.bandwidth for w in facts.wires]) if facts.wires else ()),
        *advise_binding(facts.places, facts.launcher),
    ]
    if any(version["BLAS"] == "unknown" for version in facts.versions):
        text = "the threads of NumPy's BLAS cannot be limited from here: set OMP_NUM_THREADS"
        found.append(Finding("warning", f"{text}={min(facts.threads)}"))
    order = ("error", "warning", "advice")
    return sorted(found, key=lambda finding: order.index(finding.kind))


def _of_launchers(facts: Facts) -> Iterator[Finding]:
    own = facts.library
    on_path = maker_of(facts.mpirun)
    if own.maker and on_path and on_path != own.maker:
        use = f"use {own.program}" if own.program else "put the one of this MPI on PATH"
        yield Finding("warning", f"mpirun on PATH does not belong to {own.name}: {use}")
    if facts.srun is not None and own.maker and own.srun_kind not in facts.srun:
        yield Finding(
            "advice",
            f"this Slurm does not have srun --mpi={own.srun_kind}, which {own.name} needs: use "
            f"{own.program or 'mpirun'} in the batch script",
        )
    elif facts.srun is not None and own.maker and facts.srun_problem:
        yield Finding(
            "warning",
            f"this Slurm lists srun --mpi={own.srun_kind}, which {own.name} needs, but cannot "
            f"load it: {facts.srun_problem}",
        )


def _of_store(facts: Facts) -> Iterator[Finding]:
    if facts.manifest is None:
        return
    total, launcher = facts.machines, facts.launcher
    problem = wrong_ranks(len(facts.places), range(1, total + 1), total, launcher)
    if problem and launcher is not None:
        yield Finding("error", problem)
    unseen = {each.machine: each.host for each in facts.seen if each.only_here}
    if unseen:
        path = next(each.path for each in facts.seen if each.only_here)
        yield Finding("error", unseen_shards(path, facts.places[0].host, unseen))
    for each in facts.seen:
        if each.problem and not each.only_here:
            yield Finding(
                "error",
                f"machine {each.machine} on {each.host}: {each.path}: {each.problem}; cec-mpi "
                f"repair {facts.store} rebuilds it from the others",
            )


def report(facts: Facts) -> str:
    """Return the report as text: a table of nodes, findings, and an estimate of step times."""
    launcher = facts.launcher.name if facts.launcher else "none (one process)"
    pairs = [*facts.versions[0].items(), ("launcher", launcher), ("mpirun", facts.mpirun)]
    if facts.continuity is not None:
        pairs.append(("losses", str(facts.continuity)))
    if facts.srun is not None:
        pairs.append(("srun --mpi", ", ".join(facts.srun)))
    lines = [facts_table(pairs, _WIDTH), "", *map(printable, _nodes(facts)), ""]
    if facts.wires or facts.manifest:
        lines += [facts_table(_good_for(facts), _WIDTH), ""]
    found = findings(facts)
    lines += [printable(f"{finding.kind}: {finding.text}", kept="\n") for finding in found]
    if not found:
        lines.append("No problems were found.")
    if len(facts.places) == 1:
        ranks = facts.machines + 1 if facts.machines else 7
        store = printable(facts.store)
        is_full = facts.library.maker == "Open MPI" and ranks > facts.places[0].cores
        command = f"mpirun{' --oversubscribe' * is_full} -n {ranks} cec-mpi doctor {store}"
        lines.append(f"This was one process. To check several, run {command.rstrip()}")
    return "\n".join(lines)


def _nodes(facts: Facts) -> list[str]:
    """Return a line for each node, with network and products of its slowest ranks."""
    numbers = ["ranks", "cores", "NUMA", "threads", "latency", "woken", "bandwidth", "X w"]
    rows = []
    for node, ranks in by_node(facts.places).items():
        threads = min(facts.threads[rank] for rank in ranks)
        wires = [facts.wires[rank - 1] for rank in ranks if rank]
        latency = waking = bandwidth = product = "-"
        if wires:
            latency = f"{1e3 * median(wire.latency for wire in wires):.3f} ms"
            waking = f"{1e3 * median(wire.waking for wire in wires):.3f} ms"
            bandwidth = bandwidth_text(min(wire.bandwidth for wire in wires))
        if rate := sum(facts.products[rank] for rank in ranks):
            product = bandwidth_text(rate)
        counts = map(str, [len(ranks), node.cores, node.domains, threads])
        rows.append([node.host, *counts, latency, waking, bandwidth, product])
    return aligned(["node", *numbers], rows, numbers)


def _good_for(facts: Facts) -> Iterator[tuple[str, str]]:
    costs, manifest = facts.costs, facts.manifest
    if costs is not None:
        n = costs.even()
        several = plural(costs.machines, "machine")
        seconds = costs.computation(n, n) + costs.overhead(n, n)
        messages = terms_of(costs.machines, costs.recovery, n, n).messages
        yield (
            "estimate",
            f"X of {n} x {n} ({_size(BYTES * n * n)}) or more: a step of {several} takes "
            f"{_time(seconds)} there, half of it computing (bytes of X / "
            f"{bandwidth_text(costs.rate)}, against rank 0's work, {messages:.0f} x "
            f"{1e3 * costs.latency:.3f} ms, w and rows / {bandwidth_text(costs.bandwidth)}, and "
            "decoding)",
        )
        few = costs.fewest_columns()
        yield (
            "bottleneck",
            f"rank 0, for X of fewer than {plural(few, 'column')}; of {n} x {n} with more than "
            f"{plural(costs.most_machines(n, n), 'machine')}",
        )
    if manifest is not None:
        rows, columns = manifest.rows, manifest.columns
        says = f"{rows} x {columns} {manifest.dtype} on {plural(facts.machines, 'machine')}"
        if costs is not None and costs.machines == facts.machines:
            compute = costs.computation(rows, columns)
            if (layout := manifest.replicas) is not None:  # one copy of its nonzeros
                compute *= float(layout.sizes.sum()) / (BYTES * rows * columns)
            says += f": a step takes {_time(compute)} of computing and "
            says += f"{_time(costs.overhead(rows, columns))} of all else"
        yield "store", says


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _size(count: float) -> str:
    """Return a size with its unit."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def to_json(facts: Facts) -> dict[str, Any]:
    """Return facts of ranks, findings and the estimate as plain values."""
    ranks: list[dict[str, Any]] = []
    each = zip(facts.places, facts.threads, facts.products, strict=True)
    for rank, (place, threads, product) in enumerate(each):
        entry = {"rank": rank, **asdict(place), "threads": threads}
        if rank:
            entry |= {f"wire_{name}": x for name, x in facts.wires[rank - 1]._asdict().items()}
        ranks.append(entry | {"product_bytes_per_second": product})
    costs, manifest = facts.costs, facts.manifest
    estimate: dict[str, Any] | None = None
    if costs is not None:
        n = costs.even()
        estimate = {
            **asdict(costs),
            "even_rows": n,
            "even_seconds": 2 * costs.computation(n, n),
            "even_most_machines": costs.most_machines(n, n),
            "fewest_columns": costs.fewest_columns(),
        }
    store: dict[str, Any] | None = None
    if manifest is not None:
        shape = manifest.rows, manifest.columns
        store = {"path": facts.store, "rows": shape[0], "columns": shape[1]}
        store |= {"machines": facts.machines, "shards": [asdict(each) for each in facts.seen]}
        if costs is not None:
            store["computation_seconds"] = costs.computation(*shape)
            store["overhead_seconds"] = costs.overhead(*shape)
            store["most_machines"] = costs.most_machines(*shape)
    return {
        "versions": facts.versions[0],
        "launcher": facts.launcher.name if facts.launcher else None,
        "continuity": asdict(facts.continuity) if facts.continuity else None,
        "mpirun": facts.mpirun,
        "srun": facts.srun,
        "srun_problem": facts.srun_problem,
        "ranks": ranks,
        "findings": [asdict(finding) for finding in findings(facts)],
        "estimate": estimate,
        "store": store,
    }
