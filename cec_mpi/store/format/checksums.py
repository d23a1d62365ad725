"""Checksums of blocks: XXH3, 64 bits each, in one array of a row per machine.

The manifest holds a 128-bit XXH3 of each row, so the array itself can be checked, and made
again from shards that are whole.
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import publish, read_at
from cec_mpi.files.regular import open_regular, refuse_shortage, why_unreadable
from cec_mpi.store.format.manifest import Manifest, ShardEntry, checksums_name
from cec_mpi.store.format.manifest_file import publish_manifest

Sums = NDArray[np.uint64]

_MOST_HEADER = 4096  # bytes; ours have 128


def block_sum(data: Any) -> int:
    """Checksum of the bytes of a block."""
    return int(xxhash.xxh3_64_intdigest(data))


def row_sum(sums: Sums) -> str:
    """Checksum of the checksums of one shard, for the manifest."""
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(sums, dtype="<u8").data))


def publish_checksums(directory: Path, name: str, sums: Sums) -> None:
    """Write the checksums of a store, shape (N, blocks), and a copy of them."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(sums, dtype="<u8"))
    for each in checksum_files(name):
        publish(directory / each, file.getvalue())


def checksum_files(name: str) -> tuple[str, str]:
    """The file of checksums that a manifest names, and its copy."""
    return name, name.replace(".npy", ".copy.npy")


def publish_generation(
    directory: Path, manifest: Manifest, code: MDSCode, shards: tuple[ShardEntry, ...], sums: Sums
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
    for name in checksum_files(checksums_name(manifest.generation - 1)):
        (directory / name).unlink(missing_ok=True)
    return changed


def read_checksums(directory: Path, manifest: Manifest) -> tuple[Sums, dict[str, str]]:
    """All checksums that can be had, from the file or its copy.

    Returns
    -------
    sums : (N, blocks) ndarray of uint64
        Each row from a file where it is as the manifest says; else as it is in the first
        one, and zeros where there is none.
    problems : dict of str to str
        By file what is wrong with it.
    """
    sums = np.zeros((manifest.code.machines, manifest.grid.count), np.uint64)
    trusted = np.zeros(len(sums), dtype=bool)
    problems = {}
    for name in checksum_files(manifest.checksums):
        try:
            with _SumsFile(directory / name, manifest) as file:
                found = file.rows()
        except DamagedStoreError as error:
            problems[name] = str(error)
            continue
        right = np.array(
            [
                row_sum(row) == shard.xxh3_128
                for row, shard in zip(found, manifest.shards, strict=True)
            ]
        )
        if not right.all():
            problems[name] = "altered"
        take = ~trusted & (right | ~sums.any(axis=1))
        sums[take] = found[take]
        trusted |= right
    return sums, problems


def read_rows(directory: Path, manifest: Manifest, least: int) -> Sums:
    """The checksums of all shards, (N, blocks); zeros where they are damaged.

    Raises
    ------
    DamagedStoreError
        Those of fewer than `least` machines are as the manifest says, in the file or in
        its copy.
    """
    sums, _ = read_checksums(directory, manifest)
    shards = enumerate(manifest.shards, start=1)
    bad = [n for n, shard in shards if row_sum(sums[n - 1]) != shard.xxh3_128]
    if len(sums) - len(bad) < least:
        raise DamagedStoreError(_damaged(directory, manifest, bad[0]))
    sums[[n - 1 for n in bad]] = 0
    return sums


def read_row(directory: Path, manifest: Manifest, machine: int) -> Sums:
    """The checksums of one shard, from the file or its copy.

    Raises
    ------
    DamagedStoreError
        They are as the manifest says in neither.
    """
    for name in checksum_files(manifest.checksums):
        try:
            with _SumsFile(directory / name, manifest) as file:
                sums = file.row(machine)
        except DamagedStoreError:
            continue
        if row_sum(sums) == manifest.shards[machine - 1].xxh3_128:
            return sums
    raise DamagedStoreError(_damaged(directory, manifest, machine))


def _damaged(directory: Path, manifest: Manifest, machine: int) -> str:
    names = " and ".join(checksum_files(manifest.checksums))
    return (
        f"{directory}: the checksums of machine {machine} are missing or altered in {names} "
        f"(cec-mpi repair {directory} mends that)"
    )


class _SumsFile:
    """A file of checksums that has the shape that a manifest says, open for reading."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._blocks = manifest.grid.count
        self._machines = manifest.code.machines
        try:
            self._descriptor = open_regular(path)
        except OSError as error:
            raise DamagedStoreError(why_unreadable(error)) from None
        try:
            self._check()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _check(self) -> None:
        size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, _MOST_HEADER, 0)
        try:
            file = io.BytesIO(head)
            version = np.lib.format.read_magic(file)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception as error:  # the header is parsed as Python: it can raise anything
            reason = str(error).split("\n")[0]
            raise DamagedStoreError(f"unreadable ({reason})") from None
        self._begin = file.tell()
        found = (version, shape, fortran, dtype)
        if found != ((1, 0), (self._machines, self._blocks), False, np.dtype("<u8")):
            raise DamagedStoreError("has another shape")
        expected = self._begin + 8 * self._machines * self._blocks
        if size != expected:
            raise DamagedStoreError(f"{size} bytes, expected {expected}")

    def row(self, machine: int) -> Sums:
        """The checksums of one shard."""
        sums = np.empty(self._blocks, "<u8")
        place = self._begin + 8 * self._blocks * (machine - 1)
        try:
            got = read_at(self._descriptor, sums, place)
        except OSError as error:
            refuse_shortage(error, "a file of checksums")
            raise DamagedStoreError(why_unreadable(error)) from None
        if got < sums.nbytes:
            raise DamagedStoreError("cut off")
        return sums.astype(np.uint64, copy=False)

    def rows(self) -> Sums:
        """Those of all shards, shape (N, blocks)."""
        return np.stack([self.row(n) for n in range(1, self._machines + 1)])

    def __enter__(self) -> _SumsFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
