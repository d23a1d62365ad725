"""A shard in a file, whose blocks are checked when they are first read.

A shard is opened once. The checked file is the mapped one, even if another file takes its name.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.files.durable import read_at
from cec_mpi.store.files.mapping import map_file
from cec_mpi.store.files.regular import Watched, refuse_shortage
from cec_mpi.store.format.checksums import block_sum, read_row
from cec_mpi.store.format.shard_files import open_checked, problem_of
from cec_mpi.store.shard import Holding, Intervals, Loaded, Verify

if TYPE_CHECKING:
    from cec_mpi.store.coded.manifest import CodedManifest


class PlainShard(DenseShard):
    """The shard of one machine, whose rows are available after `load`.

    Parameters
    ----------
    path : Path
        The ``.npy`` file.
    store : Path
    manifest : CodedManifest
    machine : int
    holding : {"mmap", "ram"}
        Whether rows are read through the page cache, or copied into memory of this process.
    verify : {"first-read", "never"}

    Attributes
    ----------
    path : Path
    count : int
        Rows, R.
    machine : int
    rows : (R, r) ndarray
        Rows; only those that were loaded are valid.

    Raises
    ------
    DamagedStoreError
        The file is missing, its size or header is wrong, or its checksums are damaged.
    ShortageError
        The process or the computer lacks a resource.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: CodedManifest,
        machine: int,
        holding: Holding = "mmap",
        verify: Verify = "first-read",
    ) -> None:
        self.path = path
        self.machine = machine
        self._manifest = manifest
        self._advice = (
            f" (cec-mpi repair {store} rebuilds them)"
            if path.parent == store
            else " (a machine that starts again copies it again from the store)"
        )
        self._ram = holding == "ram"
        self._descriptor = open_checked(path, manifest, machine)
        weakref.finalize(self, os.close, self._descriptor)
        self._watched = Watched(self._descriptor)
        self._sums = None if verify == "never" else read_row(store, manifest, machine)
        grid = manifest.grid
        there = not self._ram and self._sums is None
        self._ready = bytearray([there]) * grid.count  # by block
        self.count = grid.rows
        shape = (grid.rows, grid.columns)
        self.rows: NDArray[Any]
        if self._ram:
            self.rows = np.empty(shape, manifest.dtype)  # no memory until it is written to
        else:
            mapped = map_file(self._descriptor, manifest.shard_bytes, path)
            self.rows = np.frombuffer(
                mapped, manifest.dtype, offset=len(manifest.shard_header)
            ).reshape(shape)
        self._buffer = np.empty(grid.block_rows * grid.block_columns, manifest.dtype)

    def __repr__(self) -> str:
        rows, columns = self.rows.shape
        return (
            f"<Shard of machine {self.machine}, {rows}x{columns} {self.rows.dtype}, "
            f"in {str(self.path)!r}>"
        )

    def changed(self) -> bool:
        """Whether loaded rows may have been overwritten; `load` then checks them again.

        This compares size and times of the file. Rows in memory of this process, and rows that are
        never checked, stay valid.

        Raises
        ------
        DamagedStoreError
            The size or header of the file has changed.
        """
        if self._ram or not self._watched.changed():
            return False
        problem = problem_of(self._descriptor, self._manifest, self.machine)
        if problem:
            raise DamagedStoreError(f"{self.path}: {problem}{self._advice}")
        if self._sums is None:
            return False
        self._ready = bytearray(len(self._ready))
        return True

    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """See `DenseShard.pieces`; yields one part."""
        return (self.rows[start:stop],)

    def load(self, intervals: Intervals) -> Loaded:
        """Load rows, and check them if `verify` says so.

        Only blocks that are not loaded yet are read.

        Raises
        ------
        DamagedStoreError
            Rows were altered or truncated. The message names the shard and the rows.
        ShortageError
            The process or the computer lacks a resource.
        """
        if self._ready.find(0) < 0:
            return Loaded()
        begin = time.perf_counter()
        grid = self._manifest.grid
        missing = [
            number
            for start, stop in intervals
            for blocks in [grid.of_rows(start, stop)]
            if self._ready.find(0, blocks.start, blocks.stop) >= 0  # which takes least
            for number in blocks
            if not self._ready[number]
        ]
        if not missing:
            return Loaded()
        flat = self.rows.reshape(-1)
        read = 0
        try:
            for number in dict.fromkeys(missing):  # intervals may lie in one block
                block = grid.block(number)
                place = slice(block.offset, block.offset + block.size)
                rows = flat[place] if self._ram else self._buffer[: block.size]
                got = read_at(self._descriptor, rows, self._manifest.place(block.offset))
                differs = self._sums is not None and block_sum(rows) != self._sums[number]
                if got < rows.nbytes or differs:
                    reason = "do not match their checksum" if differs else "are truncated"
                    rows_named = f"rows {block.start}..{block.stop - 1}"
                    raise DamagedStoreError(f"{self.path}: {rows_named} {reason}{self._advice}")
                self._ready[number] = True
                read += rows.nbytes
        except OSError as error:
            refuse_shortage(error, self.path)
            raise DamagedStoreError(
                f"{self.path}: rows {block.start}..{block.stop - 1} are unreadable "
                f"({error.strerror}){self._advice}"
            ) from None
        return Loaded(time.perf_counter() - begin, read)
