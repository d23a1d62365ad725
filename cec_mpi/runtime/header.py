"""What the steps of a run have in common: the first line of its records."""

from __future__ import annotations

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

import cec_mpi
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import Opening
from cec_mpi.runtime.launch import Place

__all__ = ["run_header"]


def run_header(
    opening: Opening,
    emulation: Emulation | None,
    places: list[Place],
    copies: list[int],
    library: str,
) -> dict[str, Any]:
    """Versions, hosts, the store and the options, ready for JSON."""
    import mpi4py
    import scipy

    manifest, options = opening.manifest, opening.options
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
        "hosts": [place.host for place in places],
        "threads": list(opening.threads),
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
        "machines_with_copies": copies,
        "speeds": options.speeds,
        "emulation": None if emulation is None else asdict(emulation),
    }
