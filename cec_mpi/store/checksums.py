"""Checksums of blocks: XXH3, 64 bits each, in one array of a row per machine.

The manifest holds a 128-bit XXH3 of each row, so the array itself can be checked, and made
again from shards that are whole.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.core.mds import MDSCode
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files import publish
from cec_mpi.store.manifest import Manifest, ShardEntry, checksums_name
from cec_mpi.store.manifest_file import publish_manifest

__all__ = [
    "block_sum",
    "publish_checksums",
    "publish_generation",
    "read_checksums",
    "read_row",
    "row_sum",
]

Sums = NDArray[np.uint64]


def block_sum(data: Any) -> int:
    """Checksum of the bytes of a block."""
    return int(xxhash.xxh3_64_intdigest(data))


def row_sum(sums: Sums) -> str:
    """Checksum of the checksums of one shard, for the manifest."""
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(sums, dtype="<u8").data))


def publish_checksums(directory: Path, name: str, sums: Sums) -> None:
    """Write the checksums of a store: shape (N, blocks)."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(sums, dtype="<u8"))
    publish(directory / name, file.getvalue())


def publish_generation(
    directory: Path,
    manifest: Manifest,
    code: MDSCode,
    shards: tuple[ShardEntry, ...],
    sums: Sums,
) -> Manifest:
    """Put the next manifest of a store in the place of this one, with its checksums.

    The checksums that this one names stay beside the new ones, for jobs that have just
    read it; those before them go.
    """
    changed = replace(
        manifest, code=code, shards=shards, checksums=checksums_name(manifest.generation + 1)
    )
    publish_checksums(directory, changed.checksums, sums)
    publish_manifest(directory, changed)
    (directory / checksums_name(manifest.generation - 1)).unlink(missing_ok=True)
    return changed


def read_checksums(directory: Path, manifest: Manifest) -> Sums:
    """The checksums as they are in their file; zeros where there are none.

    Parameters
    ----------
    directory : Path
    manifest : Manifest

    Returns
    -------
    (N, blocks) ndarray of uint64
        Not compared with the manifest.
    """
    shape = (manifest.code.machines, manifest.grid.count)
    try:
        sums = _open(directory, manifest)
    except DamagedStoreError:
        return np.zeros(shape, np.uint64)
    return np.array(sums, np.uint64)


def read_row(directory: Path, manifest: Manifest, machine: int) -> Sums:
    """The checksums of one shard.

    Raises
    ------
    DamagedStoreError
        The file with the checksums is missing or altered.
    """
    sums = np.array(_open(directory, manifest)[machine - 1], np.uint64)
    if row_sum(sums) != manifest.shards[machine - 1].xxh3_128:
        raise DamagedStoreError(
            f"{directory / manifest.checksums}: the checksums of machine {machine} were altered "
            f"(cec-mpi repair {directory} mends them)"
        )
    return sums


def _open(directory: Path, manifest: Manifest) -> Any:
    path = directory / manifest.checksums
    shape = (manifest.code.machines, manifest.grid.count)
    try:
        sums = np.load(path, mmap_mode="r", allow_pickle=False)
        problem = "" if sums.shape == shape and sums.dtype == np.uint64 else "has another shape"
    except FileNotFoundError:
        problem = "missing"
    except Exception as error:  # the header is parsed as Python: it can raise anything
        problem = f"unreadable ({str(error).splitlines()[0]})"
    if problem:
        raise DamagedStoreError(f"{path}: {problem} (cec-mpi repair {directory} mends it)")
    return sums
