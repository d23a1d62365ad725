"""A coded shard in a file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.file_shard import FileShard
from cec_mpi.store.shard import NOTHING_LOADED, Holding, Intervals, LoadCost, Verification


class CodedShard(FileShard, DenseShard):
    """The shard of one machine; see `FileShard`.

    Attributes
    ----------
    rows : (R, r) ndarray
        Rows; only those that were loaded are valid.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: CodedManifest,
        machine: int,
        holding: Holding,
        verify: Verification,
    ) -> None:
        super().__init__(path, store, manifest, machine, holding, verify)
        self._grid = grid = manifest.grid
        entries = self.array_at(manifest.entry_offset(0), grid.rows * grid.columns, manifest.dtype)
        self.rows: NDArray[Any] = entries.reshape(grid.rows, grid.columns)

    def __repr__(self) -> str:
        rows, columns = self.rows.shape
        return (
            f"<Shard of machine {self.machine}, {rows}x{columns} {self.rows.dtype}, "
            f"in {str(self.path)!r}>"
        )

    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """See `DenseShard.pieces`; the rows are one array."""
        return (self.rows[start:stop],)

    def load(self, intervals: Intervals) -> LoadCost:
        """Load the blocks that have these rows; see `FileShard.load_blocks`."""
        if 0 not in self._is_loaded:
            return NOTHING_LOADED
        begin = time.perf_counter()
        missing_blocks: list[int] = []
        for start, stop in intervals:
            blocks = self._grid.blocks_of_rows(start, stop)
            if self._is_loaded.find(0, blocks.start, blocks.stop) >= 0:
                missing_blocks += blocks
        bytes_read = self.load_blocks(missing_blocks)
        return LoadCost(time.perf_counter() - begin, bytes_read) if bytes_read else NOTHING_LOADED
