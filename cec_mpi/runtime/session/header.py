"""The header of the records of a run, and the table of its ranks."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi._version import __version__
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.wire.orders import Opening, OpenReport
from cec_mpi.store.files.paths import expand_host
from cec_mpi.store.shard import CPU
from cec_mpi.text import plural


def run_header(
    opening: Opening,
    options: SessionOptions,
    speeds: Sequence[float] | None,
    reports: Sequence[OpenReport],
    emulation: Emulation | None,
    processes: Sequence[ProcessInfo],
    library: str,
) -> dict[str, Any]:
    """Return the header of records as JSON values: versions, ranks, store and options.

    Parameters
    ----------
    opening : Opening
    options : SessionOptions
    speeds : sequence of float or None
        Speeds of machines; None if they are learned.
    reports : sequence of OpenReport
        Reports of ranks from 1 on.
    emulation : Emulation or None
    processes : sequence of ProcessInfo
        Processes of ranks from 0 on; only this one if it has all machines.
    library : str
        Name of the MPI library; empty without MPI.
    """
    import mpi4py
    import scipy

    manifest = opening.manifest
    files = ["", *(report.shard_path for report in reports)]
    machines = [0, *opening.machines]
    hosts = hosts_of_ranks(processes, len(machines))
    machines_with_copies = [
        machine
        for machine, file, host in zip(machines, files, hosts, strict=True)
        if file and Path(file).parent != expand_host(opening.store, host)
    ]
    return {
        "versions": {
            "cec_mpi": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "mpi4py": mpi4py.__version__,
        },
        "mpi_library": library or "none",
        "machine_of_rank": machines,
        "hosts": [process.host_name for process in processes],
        "pids": [process.pid for process in processes],
        "cores": [process.own_cores for process in processes],
        "threads": list(opening.threads),
        "shard_files": files,
        "devices": ["", *(report.device for report in reports)],
        "rows": manifest.rows,
        "columns": manifest.columns,
        "rows_per_shard": manifest.rows_per_shard,
        "dtype": manifest.dtype,
        "machines": manifest.code.machines,
        "recovery": manifest.code.recovery,
        "code": manifest.code.family,
        "copies": manifest.copies,
        "participants": options.machines,
        "scheme": options.scheme,
        "precision": options.precision,
        "shards": options.shards,
        "stragglers": options.stragglers,
        "verify": options.verify,
        "cache": opening.options.cache or None,
        "machines_with_copies": machines_with_copies,
        "speeds": "learn" if speeds is None else speeds,
        "emulation": None if emulation is None else asdict(emulation),
    }


def hosts_of_ranks(processes: Sequence[ProcessInfo], ranks: int) -> list[str]:
    """Return the host of each rank; a single process serves all ranks."""
    hosts = [process.host_name for process in processes]
    return hosts if len(hosts) > 1 else hosts * ranks


def describe_devices(header: Mapping[str, Any]) -> str:
    """Return the number of machines on each device, in words.

    Parameters
    ----------
    header : mapping
        See `run_header`.

    Examples
    --------
    >>> describe_devices({
    ...     "machine_of_rank": [0, 1, 2, 3], "devices": ["", "torch:cuda:0", "", "torch:cuda:0"],
    ... })
    '2 machines on torch:cuda:0, 1 machine on cpu'
    """
    pairs = zip(header["machine_of_rank"], header["devices"], strict=True)
    counts = Counter(device or CPU for machine, device in pairs if machine)
    return ", ".join(f"{plural(count, 'machine')} on {name}" for name, count in counts.items())


def rank_table(header: Mapping[str, Any]) -> str:
    """Return a table of where each rank runs and reads its shard.

    Parameters
    ----------
    header : mapping
        See `run_header`.

    Examples
    --------
    >>> print(rank_table({
    ...     "machine_of_rank": [0, 1, 0], "hosts": ["node1", "node1", "node2"],
    ...     "cores": [8, 8, 4], "threads": [4, 4, 4], "shard_files": ["", "/s/shard-0001.npy", ""],
    ... }))
    machine  rank  host   cores  threads  shard
     master     0  node1      8        4
          1     1  node1      8        4  /s/shard-0001.npy
      spare     2  node2      4        4
    """
    hosts, cores, threads = header["hosts"], header["cores"], header["threads"]
    width = max(map(len, ["host", *hosts]))
    devices = header.get("devices") or [""] * len(header["machine_of_rank"])
    device_width = max(6, *map(len, devices)) if any(devices) else 0
    device_heading = f"  {'device':{device_width}}" if device_width else ""
    lines = [f"machine  rank  {'host':{width}}  cores  threads{device_heading}  shard"]
    rows = zip(header["machine_of_rank"], header["shard_files"], devices, strict=True)
    for position, (machine, file, device) in enumerate(rows):
        name = machine or ("spare" if position else "master")
        rank = position if len(hosts) > 1 else 0  # one process
        line = f"{name:>7}  {rank:4}  {hosts[rank]:{width}}  {cores[rank]:5}  {threads[rank]:7}"
        device_cell = f"  {device or 'cpu':{device_width}}" if device_width else ""
        lines.append(f"{line}{device_cell}  {file}".rstrip())
    return "\n".join(lines)
