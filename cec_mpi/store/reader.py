"""Opening stores and shards: each block is checked when it is read for the first time."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.checksums import block_sum, read_row
from cec_mpi.store.files import read_at, sync
from cec_mpi.store.manifest import Manifest, ShardEntry
from cec_mpi.store.manifest_file import read_manifest

__all__ = [
    "HOLDINGS",
    "VERIFYING",
    "Holding",
    "Loaded",
    "Shard",
    "Store",
    "Verify",
    "make_shard_file",
    "open_store",
    "problem_on_opening",
]

Holding = Literal["mmap", "ram"]
Verify = Literal["first-read", "never"]
HOLDINGS = ("mmap", "ram")
VERIFYING = ("first-read", "never")


@dataclass(frozen=True)
class Loaded:
    """What reading rows for the first time took."""

    seconds: float = 0.0
    bytes: int = 0


class Shard:
    """The shard of one machine, read-only; rows are there once they were asked for.

    Parameters
    ----------
    path : Path
        The ``.npy`` file.
    store : Path
    manifest : Manifest
    machine : int
    holding : {"mmap", "ram"}
        Whether rows are computed with where they are in the page cache, or in memory of
        this process.
    verify : {"first-read", "never"}

    Attributes
    ----------
    path : Path
    rows : (R, r) ndarray
        Only rows that `load` was asked for may be looked at.

    Raises
    ------
    DamagedStoreError
        The file is missing, has another size or header, or its checksums are damaged.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: Manifest,
        machine: int,
        holding: Holding = "mmap",
        verify: Verify = "first-read",
    ) -> None:
        self.path = path
        self._manifest = manifest
        self._advice = "" if path.parent == store else " (cec-mpi stage copies it anew)"
        self._ram = holding == "ram"
        self._sums = None if verify == "never" else read_row(store, manifest, machine)
        grid = manifest.grid
        self._ready = np.zeros(grid.count, dtype=bool)
        if not self._ram and self._sums is None:
            self._ready[:] = True
        problem = problem_on_opening(path, manifest)
        if problem:
            raise DamagedStoreError(f"{path}: {problem}")
        shape = (grid.rows, grid.columns)
        self.rows: NDArray[Any]
        if self._ram:
            self.rows = np.empty(shape, manifest.dtype)  # no memory until it is written to
        else:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.rows = np.frombuffer(mapped, manifest.dtype, offset=len(manifest.header)).reshape(
                shape
            )
        self._buffer = np.empty(grid.block_rows * grid.block_columns, manifest.dtype)

    def load(self, intervals: Iterable[tuple[int, int]]) -> Loaded:
        """Have these rows ready, checked if this was asked for.

        Only blocks that were never asked for before are read.

        Raises
        ------
        DamagedStoreError
            Names the shard and the rows that differ from what was written.
        """
        begin = time.perf_counter()
        grid = self._manifest.grid
        wanted = np.zeros(grid.count, dtype=bool)
        for start, stop in intervals:
            blocks = grid.of_rows(start, stop)
            wanted[blocks.start : blocks.stop] = True
        missing = np.flatnonzero(wanted & ~self._ready)
        if not missing.size:
            return Loaded()
        flat = self.rows.reshape(-1)
        read = 0
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for number in missing.tolist():
                block = grid.block(number)
                place = slice(block.offset, block.offset + block.size)
                rows = flat[place] if self._ram else self._buffer[: block.size]
                got = read_at(descriptor, rows, self._manifest.place(block.offset))
                differs = self._sums is not None and block_sum(rows) != self._sums[number]
                if got < rows.nbytes or differs:
                    reason = "differ from what was written" if differs else "are cut off"
                    raise DamagedStoreError(
                        f"{self.path}: rows {block.start}..{block.stop - 1} {reason}{self._advice}"
                    )
                self._ready[number] = True
                read += rows.nbytes
        except OSError as error:
            raise DamagedStoreError(f"{self.path}: unreadable ({error.strerror})") from None
        finally:
            os.close(descriptor)
        return Loaded(time.perf_counter() - begin, read)


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

    def open_shard(
        self,
        machine: int,
        holding: Holding = "mmap",
        verify: Verify = "first-read",
        copy: Path | None = None,
    ) -> Shard:
        """The shard of one machine.

        Parameters
        ----------
        machine : int
            From 1.
        holding : {"mmap", "ram"}
        verify : {"first-read", "never"}
        copy : Path, optional
            A file to take in the place of the store's own.

        Raises
        ------
        InputError
            The store has no such machine.
        DamagedStoreError
            The file is missing, truncated, or another one than the manifest names.
        """
        entry = self._entry(machine)
        path = copy or self.path / entry.file
        return Shard(path, self.path, self.manifest, machine, holding, verify)

    def shard(self, machine: int) -> NDArray[Any]:
        """All rows of the shard of one machine, memory-mapped and checked: shape (R, r).

        Raises
        ------
        DamagedStoreError
            The file is not what the manifest says; names the rows.
        """
        shard = self.open_shard(machine)
        shard.load([(0, self.manifest.rows_per_shard)])
        return shard.rows

    def check_files(self) -> None:
        """Check that every shard is there and has its size and header.

        Raises
        ------
        DamagedStoreError
            Names the first that has not.
        """
        for entry in self.manifest.shards:
            problem = problem_on_opening(self.path / entry.file, self.manifest)
            if problem:
                raise DamagedStoreError(f"{self.path / entry.file}: {problem}")

    def _entry(self, machine: int) -> ShardEntry:
        if not 1 <= machine <= len(self.manifest.shards):
            raise InputError(f"machine {machine}: {self.path} has {len(self.manifest.shards)}")
        return self.manifest.shards[machine - 1]


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store: read its manifest.

    Raises
    ------
    StoreError
        There is no store, or it is not one that this version reads.
    """
    directory = Path(path)
    return Store(directory, read_manifest(directory))


def problem_on_opening(path: Path, manifest: Manifest) -> str:
    """What the size or the header of a shard file has against it, or an empty text."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(len(manifest.header))
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable ({error.strerror})"
    if size != manifest.shard_bytes:
        return f"{size} bytes, expected {manifest.shard_bytes}"
    if header != manifest.header.encode("latin-1"):
        return "its header differs from what was written"
    return ""


def make_shard_file(directory: Path, manifest: Manifest, machine: int) -> None:
    """Give a shard file its header and its size where it has not; its numbers stay."""
    path = directory / manifest.shards[machine - 1].file
    if not problem_on_opening(path, manifest):
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(descriptor, manifest.header.encode("latin-1"), 0)
        os.ftruncate(descriptor, manifest.shard_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync(directory)
