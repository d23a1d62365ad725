"""Checksums of blocks (64-bit XXH3), in one array with a row for each machine.

The manifest has a 128-bit XXH3 of each row. So the array itself can be verified, and rebuilt from
good shards. The file of a replicated store has a single row with the checksums of all blocks,
because copies of a block have the same checksum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.format.array_files import ArrayFile, name_and_copy, publish_array
from cec_mpi.store.format.manifest import Checksums, Manifest


def block_checksum(data: Any) -> int:
    """Return the checksum of the bytes of a block."""
    return int(xxhash.xxh3_64_intdigest(data))


def shard_checksum(checksums: Checksums) -> str:
    """Return the checksum of the checksums of one shard, for the manifest."""
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(checksums, dtype="<u8").data))


def publish_checksums(directory: Path, manifest: Manifest, checksums: Checksums) -> None:
    """Write the checksums of a store, (N, blocks), and a copy of the file."""
    if manifest.checksums_shape[0] < len(checksums):  # copies of a block have the same checksum
        checksums = checksums.max(axis=0, keepdims=True)
    publish_array(directory, manifest.checksums.file, checksums)


def read_checksums(directory: Path, manifest: Manifest) -> tuple[Checksums, dict[str, str]]:
    """Read the best available checksums from the file and its copy.

    Returns
    -------
    checksums : (N, blocks) ndarray of uint64
        Each row is from the file in which it matches the manifest, otherwise from the first
        readable one, otherwise 0. Blocks that a machine does not hold have 0.
    problems : dict of str to str
        Problem of each damaged file, by file name.
    """
    placement = manifest.block_placement
    checksums = np.zeros(placement.shape, np.uint64)
    is_verified = np.zeros(len(checksums), dtype=bool)
    problems = {}
    for name in name_and_copy(manifest.checksums.file):
        try:
            with _open_checksums(directory / name, manifest) as file:
                stored = np.broadcast_to(file.read(), placement.shape)
        except DamagedStoreError as error:
            problems[name] = str(error)
            continue
        matches = _matches_manifest(stored, manifest)
        if not matches.all():
            problems[name] = "altered"
        is_better = ~is_verified & (matches | ~checksums.any(axis=1))
        checksums[is_better] = stored[is_better]
        is_verified |= matches
    return np.where(placement, checksums, 0), problems


def _matches_manifest(checksums: Checksums, manifest: Manifest) -> NDArray[np.bool_]:
    """Return a mask of the machines whose checksums match the manifest, (N,)."""
    rows = zip(checksums, manifest.block_placement, manifest.shards, strict=True)
    return np.array([shard_checksum(row[held]) == shard.xxh3_128 for row, held, shard in rows])


def read_verified_checksums(directory: Path, manifest: Manifest, min_machines: int) -> Checksums:
    """Return the checksums of all shards, (N, blocks); rows that do not match the manifest are 0.

    Raises
    ------
    DamagedStoreError
        The checksums of fewer than `min_machines` machines match the manifest, in the file or its
        copy.
    """
    checksums, _ = read_checksums(directory, manifest)
    bad = np.flatnonzero(~_matches_manifest(checksums, manifest))
    if len(checksums) - bad.size < min_machines:
        raise DamagedStoreError(_damage_message(directory, manifest, int(bad[0]) + 1))
    checksums[bad] = 0
    return checksums


def read_shard_checksums(directory: Path, manifest: Manifest, machine: int) -> Checksums:
    """Return the checksums of one shard, from the file or its copy.

    In a replicated store the row has all blocks; checksums of blocks not held may be wrong.

    Raises
    ------
    DamagedStoreError
        Neither the file nor its copy matches the manifest.
    """
    rows, _ = manifest.checksums_shape
    for name in name_and_copy(manifest.checksums.file):
        try:
            with _open_checksums(directory / name, manifest) as file:
                checksums = file.read_row(min(machine, rows) - 1)
        except DamagedStoreError:
            continue
        if (
            shard_checksum(checksums[manifest.blocks_held_by(machine)])
            == manifest.shards[machine - 1].xxh3_128
        ):
            return checksums
    raise DamagedStoreError(_damage_message(directory, manifest, machine))


def _damage_message(directory: Path, manifest: Manifest, machine: int) -> str:
    names = " and ".join(name_and_copy(manifest.checksums.file))
    return (
        f"{directory}: the checksums of machine {machine} are missing or altered in {names} "
        f"(cec-mpi repair {directory} restores them)"
    )


def _open_checksums(path: Path, manifest: Manifest) -> ArrayFile:
    return ArrayFile(path, manifest.checksums_shape, np.uint64)
