"""A shard in a file: each block is checked when it is read for the first time.

A shard is opened once. What is checked is read from the very file that is mapped, whatever
takes its name meanwhile.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import read_at
from cec_mpi.files.mapping import map_file
from cec_mpi.files.regular import Watched, refuse_shortage
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.format.checksums import block_sum, read_row
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.format.shard_files import open_checked, problem_of
from cec_mpi.store.shard import Holding, Intervals, Loaded, Verify


class DamagedBlockError(DamagedStoreError):
    """A block of a shard cannot be read, or is not what was written; `number` says which."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class PlainShard(DenseShard):
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
    count : int
        Rows, R.
    machine : int
    rows : (R, r) ndarray
        Only rows that `load` was asked for may be looked at.

    Raises
    ------
    DamagedStoreError
        The file is missing, has another size or header, or its checksums are damaged.
    ShortageError
        The process or the computer is short of something.
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
        self.machine = machine
        self._manifest = manifest
        self._advice = (
            f" (cec-mpi repair {store} rebuilds them; a run with --elastic continues without)"
            if path.parent == store
            else " (cec-mpi stage copies it anew)"
        )
        self._ram = holding == "ram"
        self._descriptor = open_checked(path, manifest)
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
            self.rows = np.frombuffer(mapped, manifest.dtype, offset=len(manifest.header)).reshape(
                shape
            )
        self._buffer = np.empty(grid.block_rows * grid.block_columns, manifest.dtype)

    def __repr__(self) -> str:
        rows, columns = self.rows.shape
        return (
            f"<Shard of machine {self.machine}, {rows}x{columns} {self.rows.dtype}, "
            f"in {str(self.path)!r}>"
        )

    def changed(self) -> bool:
        """Whether rows that were ready may have been overwritten; `load` checks them again.

        Asks for the size and the times of the file. Rows in memory of this process, and
        those that are never checked, stay ready.

        Raises
        ------
        DamagedStoreError
            The file has another size or header now.
        """
        if self._ram or not self._watched.changed():
            return False
        problem = problem_of(self._descriptor, self._manifest)
        if problem:
            raise DamagedStoreError(f"{self.path}: {problem}{self._advice}")
        if self._sums is None:
            return False
        self._ready = bytearray(len(self._ready))
        return True

    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """As `DenseShard.pieces`: in one part."""
        return (self.rows[start:stop],)

    def pass_over(self, rows: Iterable[int]) -> None:
        """Do not read these rows of blocks: who uses the shard has them from elsewhere."""
        across = self._manifest.grid.across
        for row in rows:
            self._ready[row * across : (row + 1) * across] = b"\1" * across

    def load(self, intervals: Intervals) -> Loaded:
        """Have these rows ready, checked if this was asked for.

        Only blocks that are not ready are read.

        Raises
        ------
        DamagedStoreError
            Names the shard and the rows that differ from what was written.
        ShortageError
            The process or the computer is short of something.
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
                    reason = "differ from what was written" if differs else "are cut off"
                    rows_named = f"rows {block.start}..{block.stop - 1}"
                    raise DamagedBlockError(
                        f"{self.path}: {rows_named} {reason}{self._advice}", number
                    )
                self._ready[number] = True
                read += rows.nbytes
        except OSError as error:
            refuse_shortage(error, self.path)
            raise DamagedBlockError(
                f"{self.path}: rows {block.start}..{block.stop - 1} are unreadable "
                f"({error.strerror}){self._advice}",
                number,
            ) from None
        return Loaded(time.perf_counter() - begin, read)
