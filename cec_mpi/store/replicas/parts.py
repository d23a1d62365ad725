"""The parts and cells of a store of replicas, for who plans."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cec_mpi.core.replicas.parts import Parts
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.format.manifest import CopiesManifest
from cec_mpi.store.format.scaling import read_array


def read_parts(directory: Path, manifest: CopiesManifest) -> Parts:
    """Read the cells of a store of replicas.

    Raises
    ------
    DamagedStoreError
        They are as the manifest says neither in the file nor in its copy.
    """
    layout = manifest.replicas
    rows, entries = read_array(directory, *manifest.arrays()[1])
    at = np.searchsorted(rows, layout.bounds)
    if (
        (np.diff(rows) < 1).any()
        or (np.diff(entries) < 0).any()
        or at[-1] != rows.size - 1
        or (rows[at] != layout.bounds).any()
        or (entries[at] != layout.entries).any()
    ):
        raise DamagedStoreError(f"{directory}: the cells are not those of the parts")
    return Parts(at, rows, entries)
