"""Read a damaged shard: rows that its file does not give are rebuilt from other shards.

Rebuilt rows stay in memory. Nothing is written; `repair` restores the store.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.format.checksums import read_rows
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.manifest import rows_of
from cec_mpi.store.format.shard_files import problem_on_opening
from cec_mpi.store.plain import DamagedBlockError, PlainShard
from cec_mpi.store.reader import Store
from cec_mpi.store.rebuilding import Blocks
from cec_mpi.store.shard import Holding, Intervals, Loaded, Mended, Verify

log = logging.getLogger(__name__)


class DegradedShard(DenseShard):
    """A shard like `PlainShard`, whose file may be damaged or missing.

    Parameters
    ----------
    store : Store
        Store with the other shards. L of them are needed if the file cannot be used.
    machine : int
    holding, verify, copy
        See `Store.open_shard`.

    Attributes
    ----------
    path : Path
        File of the shard.
    count : int
        Number of rows, R.

    Raises
    ------
    DamagedStoreError
        The file cannot be used, and fewer than L other shards exist.
    """

    def __init__(
        self,
        store: Store,
        machine: int,
        holding: Holding = "mmap",
        verify: Verify = "first-read",
        copy: Path | None = None,
    ) -> None:
        self._store, self._machine, self._grid = store, machine, store.manifest.grid
        self.path = copy or store.path / store.manifest.shards[machine - 1].file
        self.count = self._grid.rows
        self._blocks: Blocks | None = None
        self._memory: dict[int, NDArray[Any]] = {}  # rows of blocks that were rebuilt
        self._rebuilt: list[Block] = []  # blocks that `mended` has not reported
        self._error_bound = 0.0
        self._file: PlainShard | None = None
        try:
            self._file = PlainShard(self.path, store.path, store.manifest, machine, holding, verify)
        except DamagedStoreError as error:
            self._check_others(error)
            log.warning("%s", error)

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """These rows, from the first to the last, each part of them where it is."""
        height = self._grid.block_rows
        here = [row for row in range(start // height, -(-stop // height)) if row in self._memory]
        cuts = {start, stop} | {cut for row in here for cut in (row * height, (row + 1) * height)}
        for first, last in pairwise(sorted(cut for cut in cuts if start <= cut <= stop)):
            row = first // height
            if row in self._memory:
                yield self._memory[row][first - row * height : last - row * height]
            else:
                assert self._file is not None
                yield self._file.rows[first:last]

    def changed(self) -> bool:
        """As `PlainShard.changed`."""
        if self._file is None:
            return False
        try:
            return self._file.changed()
        except DamagedStoreError as error:
            self._leave_file(error)
            return True

    def load(self, intervals: Intervals) -> Loaded:
        """Make rows ready, from the file or from other shards.

        Raises
        ------
        DamagedStoreError
            Fewer than L shards are good at some rows, which are named.
        """
        begin = time.perf_counter()
        told, in_memory = len(self._rebuilt), len(self._memory)
        loaded = Loaded()
        while self._file is not None:
            self._file.pass_over(self._memory)
            try:
                loaded = self._file.load(intervals)
                break
            except DamagedBlockError as error:
                self._mend(error.number // self._grid.across, str(error))
            except DamagedStoreError as error:
                self._leave_file(error)
        else:
            for start, stop in intervals:
                height = self._grid.block_rows
                for row in range(start // height, -(-stop // height)):
                    self._mend(row, f"{self.path} cannot be used")
        if len(self._memory) == in_memory:
            return loaded
        numbers = [block.number for block in self._rebuilt[told:]]
        if numbers:
            rows = rows_of(numbers, self._store.manifest)
            log.warning("%s: %s are being rebuilt from other shards", self.path, rows)
        new = list(self._memory.values())[in_memory:]
        read = loaded.bytes + sum(rows.nbytes for rows in new)
        return Loaded(time.perf_counter() - begin, read, replaced=True)

    def mended(self) -> Mended:
        """As `Shard.mended`."""
        blocks, self._rebuilt = self._rebuilt, []
        starts = {block.start: block.stop for block in blocks}
        if not starts:
            return Mended(error_bound=self._error_bound)
        rows = sum(stop - start for start, stop in starts.items())
        return Mended(rows, min(starts), max(starts.values()) - 1, self._error_bound)

    def _mend(self, row: int, problem: str) -> None:
        """Have the blocks of these rows in memory."""
        if row in self._memory:
            return
        if self._blocks is None:
            self._blocks = _blocks_of(self._store)
        grid = self._grid
        numbers = range(row * grid.across, (row + 1) * grid.across)
        first, last = grid.block(numbers[0]), grid.block(numbers[-1])
        values = np.empty((last.stop - first.start, grid.columns), self._store.manifest.dtype)
        flat = values.reshape(-1)
        for block in map(grid.block, numbers):
            place = slice(block.offset - first.offset, block.offset - first.offset + block.size)
            own = self._blocks.read(self._machine, block)  # of a damaged copy, the shard itself
            if own is not None:
                flat[place] = own
                continue
            try:
                flat[place], bound = self._blocks.rebuild(self._machine, block)
            except DamagedStoreError as error:
                raise DamagedStoreError(
                    f"{problem}, and its rows cannot be rebuilt: {error}"
                ) from None
            self._rebuilt.append(block)
            self._error_bound = max(self._error_bound, bound)
        self._memory[row] = values

    def _leave_file(self, error: DamagedStoreError) -> None:
        """Use what is in memory, and nothing of the file as it was opened."""
        log.warning("%s", error)
        self._file = None

    def _check_others(self, error: DamagedStoreError) -> None:
        """Look for as many shards as are needed; else what is wrong stays wrong."""
        manifest, path = self._store.manifest, self._store.path
        files = [path / shard.file for shard in manifest.shards]
        good = [file for file in files if not problem_on_opening(file, manifest)]
        needed = manifest.code.recovery
        if len(good) < needed:
            raise DamagedStoreError(
                f"{error}, and it cannot be rebuilt: only {len(good)} shards can be read here, "
                f"but {needed} are needed"
            ) from None


def _blocks_of(store: Store) -> Blocks:
    sums = read_rows(store.path, store.manifest, store.manifest.code.recovery)
    return Blocks(store.path, store.manifest, sums)
