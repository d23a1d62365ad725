"""Shards as read-only memory maps, checked on opening; whole stores verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.encoder import HEAD_BYTES
from cec_mpi.store.manifest import Manifest, ShardEntry, read_manifest

__all__ = ["Store", "open_store"]


class Store:
    """A store that was opened: its manifest, and its shards on demand.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def shard(self, machine: int) -> NDArray[Any]:
        """The shard of one machine, memory-mapped: shape (R, r), read-only.

        Only its size and its first 64 KiB are checked; `verify` reads all of it.

        Raises
        ------
        DamagedStoreError
            The file is missing, truncated, or another one than the manifest names.
        """
        entry = self._entry(machine)
        problem = self._problem_on_opening(entry)
        if problem:
            raise DamagedStoreError(f"{self.path / entry.file}: {problem}")
        shard = np.load(self.path / entry.file, mmap_mode="r", allow_pickle=False)
        # A plain array is a little faster to slice than np.memmap, and keeps the map alive.
        plain: NDArray[Any] = shard.view(np.ndarray)
        return plain

    def check_files(self) -> None:
        """Check that every shard is there and has its size and head.

        Raises
        ------
        DamagedStoreError
            Names the first that has not.
        """
        for entry in self.manifest.shards:
            problem = self._problem_on_opening(entry)
            if problem:
                raise DamagedStoreError(f"{self.path / entry.file}: {problem}")

    def verify(self) -> Iterator[tuple[str, str | None]]:
        """Read every shard and compare its checksum.

        Yields
        ------
        file : str
        problem : str or None
            What is wrong with it, or None.
        """
        sums = {entry.sha256: entry.file for entry in self.manifest.shards}
        for entry in self.manifest.shards:
            yield entry.file, self._problem_of_size(entry) or self._problem_of_sum(entry, sums)

    def _entry(self, machine: int) -> ShardEntry:
        if not 1 <= machine <= len(self.manifest.shards):
            raise InputError(f"machine {machine}: {self.path} has {len(self.manifest.shards)}")
        return self.manifest.shards[machine - 1]

    def _problem_of_size(self, entry: ShardEntry) -> str | None:
        try:
            size = (self.path / entry.file).stat().st_size
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return f"unreadable ({error.strerror})"
        return None if size == entry.bytes else f"{size} bytes, expected {entry.bytes}"

    def _problem_of_sum(self, entry: ShardEntry, sums: dict[str, str]) -> str | None:
        try:
            with (self.path / entry.file).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"unreadable ({error.strerror})"
        if found == entry.sha256:
            return None
        other = sums.get(found)
        return f"holds the data of {other}" if other else "checksum differs"

    def _problem_on_opening(self, entry: ShardEntry) -> str | None:
        problem = self._problem_of_size(entry)
        if problem:
            return problem
        try:
            head = _head_sum(self.path / entry.file)
        except OSError as error:
            return f"unreadable ({error.strerror})"
        if head == entry.head_sha256:
            return None
        for other in self.manifest.shards:
            if other.head_sha256 == head:
                return f"holds the data of {other.file}"
        return "not the file that encode wrote (its first bytes differ)"


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store: read its manifest.

    Raises
    ------
    StoreError
        There is no store, or it is not one that this version reads.
    """
    directory = Path(path)
    return Store(directory, read_manifest(directory))


def _head_sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
