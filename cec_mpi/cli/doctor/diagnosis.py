"""Findings and report of doctor, from its facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cec_mpi.cli.doctor.advice import advise_binding, find_version_differences
from cec_mpi.cli.doctor.facts import Facts
from cec_mpi.runtime.processes.resources import (
    Finding,
    find_oversubscription,
    missing_shards_message,
    rank_count_problem,
    ranks_by_node,
)
from cec_mpi.runtime.processes.start import detect_implementation
from cec_mpi.text import plural, printable
from cec_mpi.text.terminal import facts_table, format_table

_WIDTH = 120  # columns, because the width of the terminal is unknown under a launcher


def list_findings(facts: Facts) -> list[Finding]:
    """Return the findings: errors first, then warnings, then advice."""
    hosts = [process.host_name for process in facts.processes]
    findings = [
        *_launcher_findings(facts),
        *_store_findings(facts),
        *find_version_differences(facts.versions, hosts),
        *find_oversubscription(facts.processes, facts.threads, facts.launcher),
        *advise_binding(facts.processes, facts.launcher),
    ]
    if any(versions["BLAS"] == "unknown" for versions in facts.versions):
        text = "cec-mpi cannot limit the threads of NumPy's BLAS: set OMP_NUM_THREADS"
        findings.append(Finding("warning", f"{text}={min(facts.threads)}"))
    order = ("error", "warning", "advice")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _launcher_findings(facts: Facts) -> Iterator[Finding]:
    library = facts.library
    mpirun_implementation = detect_implementation(facts.mpirun)
    if (
        library.implementation
        and mpirun_implementation
        and mpirun_implementation != library.implementation
    ):
        remedy = f"use {library.launcher_path or 'the mpirun of this MPI'}"
        yield Finding("warning", f"mpirun on PATH does not belong to {library.name}: {remedy}")
    if facts.srun is None or not library.implementation:
        return
    if library.srun_type not in facts.srun:
        yield Finding(
            "advice",
            f"this Slurm has no srun --mpi={library.srun_type}, which {library.name} needs: use "
            f"{library.launcher_path or 'mpirun'} in the batch script",
        )
    elif facts.srun_problem:
        yield Finding(
            "warning",
            f"this Slurm lists srun --mpi={library.srun_type}, which {library.name} needs, but "
            f"cannot load it: {facts.srun_problem}",
        )


def _store_findings(facts: Facts) -> Iterator[Finding]:
    if facts.manifest is None:
        return
    machines, launcher = facts.machines, facts.launcher
    problem = rank_count_problem(len(facts.processes), range(1, machines + 1), machines, launcher)
    if problem and launcher is not None:
        yield Finding("error", problem)
    missing = {check.machine: check.host for check in facts.shard_checks if check.only_on_master}
    if missing:
        path = next(check.path for check in facts.shard_checks if check.only_on_master)
        yield Finding("error", missing_shards_message(path, facts.processes[0].host_name, missing))
    for check in facts.shard_checks:
        if check.problem and not check.only_on_master:
            yield Finding(
                "error",
                f"machine {check.machine} on {check.host}: {check.path}: {check.problem}; cec-mpi "
                f"repair {facts.store} rebuilds it from the other shards",
            )


def format_report(facts: Facts) -> str:
    """Return the report as text: facts, a table of nodes, and findings."""
    launcher = facts.launcher.name if facts.launcher else "none (one process)"
    pairs = [*facts.versions[0].items(), ("launcher", launcher), ("mpirun", facts.mpirun)]
    if facts.loss_policy is not None:
        pairs.append(("losses", str(facts.loss_policy)))
    if facts.srun is not None:
        pairs.append(("srun --mpi", ", ".join(facts.srun)))
    pairs += [("device", str(device)) for device in facts.devices[0]]
    if facts.manifest is not None:
        shape = f"{facts.manifest.rows} x {facts.manifest.columns} {facts.manifest.dtype}"
        pairs.append(("store", f"{shape} on {plural(facts.machines, 'machine')}"))
    lines = [facts_table(pairs, _WIDTH), "", *map(printable, _node_table(facts)), ""]
    findings = list_findings(facts)
    lines += [printable(f"{finding.severity}: {finding.text}", keep="\n") for finding in findings]
    if not findings:
        lines.append("No problems were found.")
    if len(facts.processes) == 1:
        ranks = facts.machines + 1 if facts.machines else 7
        store = printable(facts.store)
        has_slots = facts.library.implementation != "Open MPI" or ranks <= facts.processes[0].cores
        flag = "" if has_slots else " --oversubscribe"
        command = f"mpirun{flag} -n {ranks} cec-mpi doctor {store}"
        lines.append(f"This checked one process. To check several, run {command.rstrip()}")
    return "\n".join(lines)


def _node_table(facts: Facts) -> list[str]:
    """Return a table with a row for each node."""
    columns = ["ranks", "cores", "NUMA", "threads", "GPUs"]
    rows = []
    for node, ranks in ranks_by_node(facts.processes).items():
        threads = min(facts.threads[rank] for rank in ranks)
        names = {device.name for rank in ranks for device in facts.devices[rank]}
        gpus = max(Counter(name.partition(":")[0] for name in names).values(), default=0)
        counts = map(str, [len(ranks), node.cores, node.domains, threads, gpus])
        rows.append([node.host_name, *counts])
    return format_table(["node", *columns], rows, columns)


def as_dict(facts: Facts) -> dict[str, Any]:
    """Return the facts and findings as plain values."""
    ranks = []
    facts_of_ranks = zip(facts.processes, facts.threads, facts.devices, strict=True)
    for rank, (process, threads, devices) in enumerate(facts_of_ranks):
        fields = asdict(process)
        fields = {"rank": rank, "host": fields.pop("host_name"), **fields}
        ranks.append(fields | {"threads": threads, "devices": list(map(asdict, devices))})
    manifest = facts.manifest
    store: dict[str, Any] | None = None
    if manifest is not None:
        store = {"path": facts.store, "rows": manifest.rows, "columns": manifest.columns}
        store |= {
            "machines": facts.machines,
            "shards": [asdict(shard) for shard in facts.shard_checks],
        }
    return {
        "versions": facts.versions[0],
        "launcher": facts.launcher.name if facts.launcher else None,
        "loss_policy": asdict(facts.loss_policy) if facts.loss_policy else None,
        "mpirun": facts.mpirun,
        "srun": facts.srun,
        "srun_problem": facts.srun_problem,
        "ranks": ranks,
        "findings": [
            {"kind": finding.severity, "text": finding.text} for finding in list_findings(facts)
        ],
        "store": store,
    }
