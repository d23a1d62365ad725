"""A coded shard on a device.

Blocks of the file are verified and copied to the device once. Each product transfers only its
vectors and its result. Rows of float32 that are multiplied by float64 are converted in tiles.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import count_rows
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.coded.shard import CodedShard
from cec_mpi.store.devices import Device, Tile
from cec_mpi.store.shard import Intervals, Verification
from cec_mpi.text import format_bytes

_CONVERTED_BYTES = 32 << 20  # maximum size of a converted tile, which stays in the caches of a GPU
# Size, and minimum and maximum number of rows, of tiles of float32 that are summed in float32.
_SUMMED_BYTES, _MIN_SUMMED_ROWS, _MAX_SUMMED_ROWS = 32 << 20, 4096, 1 << 17


class DeviceShard(CodedShard):
    """The shard of one machine, on a device; see `FileShard`.

    Parameters
    ----------
    path, store, manifest, machine, verify
        See `FileShard`.
    device : Device

    Attributes
    ----------
    device_rows : (R, r) array
        Rows on the device; only those that were loaded are valid.

    Raises
    ------
    ShortageError
        The device lacks memory.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: CodedManifest,
        machine: int,
        verify: Verification,
        device: Device,
    ) -> None:
        super().__init__(path, store, manifest, machine, "mmap", verify)
        self.device = device
        self._size_message = f"the shard takes up {format_bytes(self.rows.nbytes)}"
        self._is_loaded = bytearray(manifest.block_count)
        with device.explain_shortage(self._size_message):
            self._buffer = device.allocate_host(manifest.block_bytes, np.dtype(np.uint8))
            self.device_rows = device.empty(self.rows.shape, self.rows.dtype)
        self._compiled_programs: set[tuple[object, ...]] = set()  # signature and height of each
        self._fixed_seconds: dict[tuple[object, ...], float] = {}  # by signature of products

    def has_changed(self) -> bool:
        """See `Shard.has_changed`; rows on the device stay valid."""
        return False

    def _transfer_block(self, block: int, data: NDArray[np.uint8]) -> None:
        _, start, stop, left, *_ = self._grid.block(block)
        rows = data.view(self.rows.dtype).reshape(stop - start, -1)
        with self.device.explain_shortage(self._size_message):
            self.device_rows = self.device.write(self.device_rows, rows, start, left)

    def warm_up(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """See `Shard.warm_up`; computes the product once, and times products of one row."""
        count = vectors.shape[1] if adjoint else len(vectors)
        max_rows = self._max_rows(adjoint, vectors.dtype)
        tiles = [tile for _, tile in self._tiles(intervals, max_rows)]
        signature = adjoint, count, vectors.dtype
        programs = {(*signature, height) for height in self.device.compiled_heights(tiles)}
        if signature not in self._fixed_seconds or not programs <= self._compiled_programs:
            self._compiled_programs |= programs
            self._time_product(adjoint, vectors, intervals)
        if signature not in self._fixed_seconds:
            start = intervals[0][0]
            operand = vectors[:1] if adjoint else vectors
            one_row = [(start, start + 1)]
            seconds = [self._time_product(adjoint, operand, one_row) for _ in range(4)]
            self._fixed_seconds[signature] = min(seconds)
        return self._fixed_seconds[signature]

    def _time_product(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """Compute a product, and return how many seconds that took."""
        begin = time.perf_counter()
        if adjoint:
            sums = np.empty((self._grid.columns, vectors.shape[1]))
            self.multiply_transposed(vectors, intervals, sums)
        else:
            out = np.empty((count_rows(intervals), len(vectors)), vectors.dtype)
            self.multiply(vectors, intervals, out)
        return time.perf_counter() - begin

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        device, rows = self.device, self.device_rows
        with device.explain_shortage(self._size_message):
            vectors = device.put(W)
            max_rows = self._max_rows(False, W.dtype)
            tiles = list(self._tiles(intervals, max_rows))
            products = [device.multiply(rows, tile, vectors, max_rows) for _, tile in tiles]
            for (position, tile), product in zip(tiles, products, strict=True):
                target = out[position : position + tile.stop - tile.start - tile.skip]
                device.get(product, target, tile.skip)

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`; accumulates sums of float32 in double precision."""
        device, total = self.device, None
        out.fill(0)
        with device.explain_shortage(self._size_message):
            max_rows = self._max_rows(True, U.dtype)
            tiles = list(self._tiles(intervals, max_rows))
            for (_, tile), U_tile in zip(tiles, device.put_tiles(U, tiles), strict=True):
                product = device.multiply_transposed(self.device_rows, tile, U_tile, max_rows)
                if device.has_float64:
                    total = device.add(total, product)
                else:
                    term = np.empty(out.shape, U.dtype)
                    device.get(_transpose(product), term)
                    out += term
            if total is not None:
                device.get(_transpose(total), out)

    def _max_rows(self, adjoint: bool, dtype: np.dtype[Any]) -> int:
        """Return the maximum number of rows of a tile."""
        if dtype != self.rows.dtype:
            return max(1, _CONVERTED_BYTES // (self._grid.columns * dtype.itemsize))
        if adjoint and dtype == np.float32:
            count = _SUMMED_BYTES // self.rows[:1].nbytes
            return max(_MIN_SUMMED_ROWS, min(_MAX_SUMMED_ROWS, count))
        return self.row_count

    def _tiles(self, intervals: Intervals, max_rows: int) -> Iterator[tuple[int, Tile]]:
        """Yield the position of each tile among the multiplied rows, and the tile."""
        position = 0
        for start, stop in intervals:
            for tile in self.device.tiles(start, stop, max_rows):
                yield position, tile
                position += tile.stop - tile.start - tile.skip


def _transpose(vectors: Any) -> Any:
    return vectors if vectors.ndim == 1 else vectors.T  # the array API has .T only for matrices
