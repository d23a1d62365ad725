"""Collect facts about MPI, ranks, cores, threads and nodes, and print the report."""

from __future__ import annotations

import json
import platform
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.cli.doctor.diagnosis import as_dict, format_report, list_findings
from cec_mpi.cli.doctor.facts import DeviceFact, Facts, ShardCheck
from cec_mpi.runtime.processes.launcher import (
    capture_output,
    detect_launcher,
    detect_loss_policy,
    find_srun_problem,
    list_srun_types,
)
from cec_mpi.runtime.processes.packing import gather
from cec_mpi.runtime.processes.resources import gather_processes
from cec_mpi.runtime.processes.start import call_on_master, finish_start, mpi_library
from cec_mpi.store.devices import find_accelerators
from cec_mpi.store.files.paths import expand_host
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.format.shard_files import find_file_problem
from cec_mpi.store.reader import open_store
from cec_mpi.text.terminal import print_result

if TYPE_CHECKING:
    from mpi4py import MPI


def examine(comm: MPI.Intracomm, store: str | None, as_json: bool, threads: int | None) -> int:
    """Print the report on rank 0 (collective); return 2 if rank 0 finds errors, else 0.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    store : path, optional
        Store whose shards the machines must be able to read; ``{host}`` stands for the name of the
        node.
    as_json : bool
        Print one JSON object, with values for each rank.
    threads : int, optional
        BLAS threads of each rank, as for a run; by default its share of the cores.

    Raises
    ------
    CecError
        The store cannot be opened. All ranks raise it.
    """
    processes = gather_processes(comm)
    manifest = None
    if store is not None:
        manifest = call_on_master(comm, lambda: open_store(expand_host(store)).manifest, Manifest)
    finish_start(comm)
    threads_of_ranks = [threads or process.threads for process in processes]
    versions = gather(comm, _find_versions(), dict[str, str])
    shard_checks = gather(comm, _check_shards(comm, store, manifest), list[ShardCheck])
    devices = gather(comm, _find_devices(), list[DeviceFact])
    if comm.rank:
        return 0
    facts = Facts(
        launcher=detect_launcher(),
        library=mpi_library(),
        mpirun=_describe_mpirun(),
        srun=list_srun_types(),
        versions=versions,
        processes=processes,
        threads=threads_of_ranks,
        store=store or "",
        manifest=manifest,
        shard_checks=[
            _compare_with_master(store or "", check) for checks in shard_checks for check in checks
        ],
        srun_problem=find_srun_problem(mpi_library().srun_type),
        loss_policy=detect_loss_policy(),
        devices=devices,
    )
    print_result(json.dumps(as_dict(facts), indent=2) if as_json else format_report(facts))
    return 2 if any(finding.severity == "error" for finding in list_findings(facts)) else 0


def _find_versions() -> dict[str, str]:
    import mpi4py
    import numpy
    import scipy
    from threadpoolctl import threadpool_info

    from cec_mpi._version import __version__

    blas = {
        f"{library['internal_api']} {library['version']}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {
        "cec_mpi": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "BLAS": ", ".join(sorted(blas)) or "unknown",
        "mpi4py": mpi4py.__version__,
        "MPI": mpi_library().name,
    }


def _find_devices() -> list[DeviceFact]:
    return [
        DeviceFact(device.name, device.model, *device.memory()) for device in find_accelerators()
    ]


def _check_shards(
    comm: MPI.Intracomm, store: str | None, manifest: Manifest | None
) -> list[ShardCheck]:
    """Check the shard of this rank's machine; a single process checks all shards."""
    if store is None or manifest is None:
        return []
    machines = range(1, manifest.code.machines + 1)
    machines_here = machines if comm.size == 1 else [n for n in machines if n == comm.rank]
    checks = []
    for machine in machines_here:
        path = (expand_host(store) / manifest.shards[machine - 1].file).absolute()
        problem = find_file_problem(path, manifest)
        checks.append(ShardCheck(machine, socket.gethostname(), str(path), problem))
    return checks


def _compare_with_master(store: str, check: ShardCheck) -> ShardCheck:
    """Set `only_on_master` if rank 0's node has the file, and the node of the machine does not."""
    is_on_master = "{host}" not in store and (Path(store) / Path(check.path).name).exists()
    return replace(check, only_on_master=check.problem == "missing" and is_on_master)


def _describe_mpirun() -> str:
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return "not on PATH"
    lines = capture_output(path, "--version").strip().splitlines()
    return f"{path} ({lines[0].strip() if lines else 'prints no version'})"
