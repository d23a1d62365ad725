"""What the steps of a run have in common: the first line of its records."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import Opened, Opening
from cec_mpi.runtime.placement import host_of_ranks
from cec_mpi.runtime.places import Place
from cec_mpi.store.staging import node_directory

__all__ = ["run_header"]


def run_header(
    opening: Opening,
    opened: Sequence[Opened],
    emulation: Emulation | None,
    places: Sequence[Place],
    library: str,
) -> dict[str, Any]:
    """Versions, where each rank is, the store and the options, ready for JSON.

    Parameters
    ----------
    opening : Opening
    opened : sequence of Opened
        What ranks from 1 on said to it.
    emulation : Emulation or None
    places : sequence of Place
        Of ranks from 0 on; one alone when all machines are in this process.
    library : str
        Name of the MPI library; empty for none.
    """
    import mpi4py
    import scipy

    manifest, options = opening.manifest, opening.options
    files = ["", *(each.shard for each in opened)]
    machines = [0, *opening.machines]
    hosts = host_of_ranks(places, len(machines))
    copied = [
        machine
        for machine, file, host in zip(machines, files, hosts, strict=True)
        if file and Path(file).parent != node_directory(opening.store, host)
    ]
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "cec_mpi": cec_mpi.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "mpi4py": mpi4py.__version__,
        },
        "mpi_library": library or "none",
        "machine_of_rank": machines,
        "hosts": [place.host for place in places],
        "cores": [place.own_cores for place in places],
        "threads": list(opening.threads),
        "shard_files": files,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "rows_per_shard": manifest.rows_per_shard,
        "dtype": manifest.dtype,
        "machines": manifest.code.machines,
        "recovery": manifest.code.recovery,
        "code": manifest.code.family,
        "taking_part": options.machines,
        "scheme": options.scheme,
        "shards": options.shards,
        "verify": options.verify,
        "staged": options.staged or None,
        "machines_with_copies": copied,
        "speeds": options.speeds,
        "emulation": None if emulation is None else asdict(emulation),
    }
