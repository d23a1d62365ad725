"""Whether MPI, ranks, cores, threads, nodes and the wire fit together: what doctor looks at."""

from __future__ import annotations

import json
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.checkup import Facts, Seen, findings, report, to_json
from cec_mpi.runtime.launch import library
from cec_mpi.runtime.launchers import detect_launcher, srun_kinds
from cec_mpi.runtime.places import place_of_ranks
from cec_mpi.runtime.together import on_master
from cec_mpi.runtime.wire import measure_products, measure_wires
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import open_store, problem_on_opening
from cec_mpi.store.staging import node_directory, remembered_stage, staged_file

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["examine"]

_SECONDS = 5  # for a program that says what it is


def examine(
    comm: MPI.Intracomm,
    store: str | None = None,
    as_json: bool = False,
    threads: int | None = None,
) -> int:
    """Collective: print on rank 0 what is found. Returns 2 when a run cannot be right, else 0.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    store : path, optional
        Look whether each machine sees its shard, too; ``{host}`` in it is the name of each
        node.
    as_json : bool
        Print one JSON object, with the figures of each rank.
    threads : int, optional
        BLAS threads of each rank, as a run would be told; by default its share of the cores.
    """
    manifest, stage = None, ""
    if store is not None:
        manifest, stage = on_master(comm, lambda: _look_up(store))
    places = place_of_ranks(comm)
    threads_of_ranks = [threads or place.threads for place in places]
    versions = comm.gather(_versions(), root=0) or []
    seen = comm.gather(_shards_here(comm, store, manifest, stage), root=0) or []
    wires = measure_wires(comm)
    products = measure_products(comm, threads_of_ranks[comm.rank])
    if comm.rank:
        return 0
    facts = Facts(
        detect_launcher(),
        library(),
        _mpirun(),
        _srun(),
        versions,
        places,
        threads_of_ranks,
        wires,
        products,
        store or "",
        manifest,
        [_compared(store or "", each) for here in seen for each in here],
    )
    sys.stdout.write(json.dumps(to_json(facts), indent=2) + "\n" if as_json else report(facts))
    return 2 if any(finding.kind == "error" for finding in findings(facts)) else 0


def _versions() -> dict[str, str]:
    import mpi4py
    import numpy
    import scipy
    from threadpoolctl import threadpool_info

    import cec_mpi

    blas = {
        f"{library['internal_api']} {library['version']}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {
        "cec_mpi": cec_mpi.__version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "BLAS": ", ".join(sorted(blas)) or "unknown",
        "mpi4py": mpi4py.__version__,
        "MPI": library().name,
    }


def _look_up(store: str) -> tuple[Manifest, str]:
    """What a store is, and where it was staged to."""
    here = node_directory(store)
    return open_store(here).manifest, remembered_stage(here) or ""


def _shards_here(
    comm: MPI.Intracomm, store: str | None, manifest: Manifest | None, stage: str
) -> list[Seen]:
    """What this rank sees of its machine's shard, or alone of all shards."""
    if store is None or manifest is None:
        return []
    machines = range(1, manifest.code.machines + 1)
    mine = machines if comm.size == 1 else [n for n in machines if n == comm.rank]
    found = []
    for machine in mine:
        copy = staged_file(stage, manifest, machine) if stage else None
        path = copy or (node_directory(store) / manifest.shards[machine - 1].file).absolute()
        problem = problem_on_opening(path, manifest)
        found.append(Seen(machine, socket.gethostname(), str(path), problem))
    return found


def _compared(store: str, seen: Seen) -> Seen:
    """On rank 0 of several: whether a file that a machine misses is here."""
    here = "{host}" not in store and (Path(store) / Path(seen.path).name).exists()
    return replace(seen, only_here=seen.problem == "missing" and here)


def _mpirun() -> str:
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return "not on PATH"
    told = _said(path, "--version").strip().splitlines()
    return f"{path} ({told[0].strip() if told else 'says no version'})"


def _srun() -> tuple[str, ...] | None:
    """What ``srun --mpi=`` may be, where there is a Slurm that answers."""
    path = shutil.which("srun")
    return (srun_kinds(_said(path, "--mpi=list")) or None) if path else None


def _said(*command: str) -> str:
    """What a program says of itself; nothing when it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr
