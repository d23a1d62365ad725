"""The shard of a code on a device.

Blocks of the file are checked, and copied to the device. Vectors and answers cross once for each
product; rows never come back. Rows of float32 that are multiplied with float64 are converted a few
at a time.
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
from cec_mpi.store.shard import Intervals, Verify
from cec_mpi.text import format_bytes

_CONVERTED_BYTES = 32 << 20  # at once, after the conversion: more would leave the caches of a GPU
# Of float32 that is added up in float32: bytes, and rows at the least and at the most.
_SUMMED_BYTES, _SUMMED_ROWS = 32 << 20, (4096, 1 << 17)


class DeviceShard(CodedShard):
    """The shard of one machine, on a device; see `FileShard`.

    Parameters
    ----------
    path, store, manifest, machine, verify
        See `FileShard`.
    device : Device

    Attributes
    ----------
    array : array
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
        verify: Verify,
        device: Device,
    ) -> None:
        super().__init__(path, store, manifest, machine, "mmap", verify)
        self.device = device
        self._purpose = f"the shard has {format_bytes(self.rows.nbytes)}"
        self._is_loaded = bytearray(manifest.block_count)
        with device.explain_shortage(self._purpose):
            self._buffer = device.allocate(manifest.block_bytes, np.dtype(np.uint8))
            self.array = device.empty(self.rows.shape, self.rows.dtype)
        self._warm: set[tuple[object, ...]] = set()  # kinds of products that were made
        self._fixed_seconds: dict[tuple[object, ...], float] = {}  # by kind

    def changed(self) -> bool:
        """See `Shard.changed`; rows on the device stay valid."""
        return False

    def _keep(self, block: int, data: NDArray[np.uint8]) -> None:
        place = self._grid.block(block)
        numbers = data.view(self.rows.dtype).reshape(place.stop - place.start, -1)
        with self.device.explain_shortage(self._purpose):
            self.array = self.device.write(self.array, numbers, place.start, place.left)

    def warm_up(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """See `Shard.warm_up`; runs such a product once, and times products of one row."""
        width = vectors.shape[1] if adjoint else len(vectors)
        most = self._most_rows(adjoint, vectors.dtype)
        tiles = [tile for _, tile in self._tiles(intervals, most)]
        kind = adjoint, width, vectors.dtype
        new = {(*kind, height) for height in self.device.program_heights(tiles)} - self._warm
        if new:
            self._warm |= new
            self._time_product(adjoint, vectors, intervals)
        if kind not in self._fixed_seconds:
            start = intervals[0][0]
            first = vectors[:1] if adjoint else vectors
            seconds = [self._time_product(adjoint, first, [(start, start + 1)]) for _ in range(4)]
            self._fixed_seconds[kind] = min(seconds)
        return self._fixed_seconds[kind]

    def _time_product(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """Make a product, and return its seconds."""
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
        device, rows = self.device, self.array
        with device.explain_shortage(self._purpose):
            vectors = device.put(W)
            most = self._most_rows(False, W.dtype)
            tiles = list(self._tiles(intervals, most))
            answers = [device.multiply(rows, tile, vectors, most) for _, tile in tiles]
            for (position, tile), answer in zip(tiles, answers, strict=True):
                target = out[position : position + tile.stop - tile.start - tile.skip]
                device.get(answer, target, tile.skip)

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`; accumulates sums of float32 in double precision."""
        device, total = self.device, None
        out.fill(0)
        with device.explain_shortage(self._purpose):
            most = self._most_rows(True, U.dtype)
            tiles = list(self._tiles(intervals, most))
            for (_, tile), given in zip(tiles, device.put_parts(U, tiles), strict=True):
                part = device.multiply_transposed(self.array, tile, given, most)
                if device.has_float64:
                    total = device.add(total, part)
                else:
                    here = np.empty(out.shape, U.dtype)
                    device.get(_turned(part), here)
                    out += here
            if total is not None:
                device.get(_turned(total), out)

    def _most_rows(self, adjoint: bool, dtype: np.dtype[Any]) -> int:
        """Return how many rows are multiplied at once."""
        if dtype != self.rows.dtype:
            return max(1, _CONVERTED_BYTES // (self._grid.columns * dtype.itemsize))
        if adjoint and dtype == np.float32:
            fewest, most = _SUMMED_ROWS
            return max(fewest, min(most, _SUMMED_BYTES // self.rows[:1].nbytes))
        return self.count

    def _tiles(self, intervals: Intervals, most: int) -> Iterator[tuple[int, Tile]]:
        """Yield tiles of these rows, and where their rows are among those that are multiplied."""
        position = 0
        for start, stop in intervals:
            for tile in self.device.tiles(start, stop, most):
                yield position, tile
                position += tile.stop - tile.start - tile.skip


def _turned(vectors: Any) -> Any:
    return vectors if vectors.ndim == 1 else vectors.T
