"""Shards whose rows are arrays in memory, or memory-mapped.

Rows of float32 that are multiplied by float64 are converted in slabs, which are multiplied while
they are in the cache. So sums are computed in float64 at the memory traffic of float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.block import (
    add_transposed_block,
    is_small_product,
    multiply_block,
    transpose_vectors,
)
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.products.single import add_transposed, multiply
from cec_mpi.store.shard import Intervals, Shard

_CONVERTED_BYTES = 2 << 20  # size of a converted slab, which stays in the caches
# Maximum number of columns of a slab for one vector, and for several vectors.
_CONVERTED_COLUMNS, _CONVERTED_BLOCK_COLUMNS = 1 << 16, 1 << 12
_CACHED_BYTES = 4 << 20  # size of rows that probably stay in the caches from step to step


class DenseShard(Shard):
    """A shard whose rows are arrays in memory or memory-mapped."""

    _scratch = Scratch()

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """Return the rows ``start:stop`` as one or more consecutive arrays."""

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        if len(W) > 1:
            self._multiply_block(W, intervals, out)
            return
        w, products = W[0], out[:, 0]
        is_cached = products.size * w.nbytes <= _CACHED_BYTES
        position = 0  # a generator of positions would cost as much as a short product
        for start, stop in intervals:
            for piece in self.pieces(start, stop):
                target = products[position : position + len(piece)]
                position += len(piece)
                if piece.dtype == w.dtype:
                    multiply(piece, w, target, is_cached=is_cached)
                else:
                    self._multiply_converted(piece, w, target)

    def _multiply_converted(self, piece: NDArray[Any], w: NDArray[Any], out: NDArray[Any]) -> None:
        for row, column, slab in self._convert_slabs(piece, w.dtype, _CONVERTED_COLUMNS):
            height, width = slab.shape
            target, w_slab = out[row : row + height], w[column : column + width]
            product = self._scratch.array("panel", target.shape, w.dtype) if column else target
            multiply(slab, w_slab, product, is_cached=True)
            if column:
                target += product

    def _multiply_block(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        is_cached = is_small_product(len(out) * W.shape[1], len(W))
        columns_of_W = W.T if is_cached else transpose_vectors(W, self._scratch)
        for position, piece in self._positioned_pieces(intervals):
            target = out[position : position + len(piece)]
            if piece.dtype == W.dtype:
                multiply_block(piece, W, columns_of_W, target, self._scratch, is_cached=is_cached)
                continue
            for row, column, slab in self._convert_slabs(piece, W.dtype, _CONVERTED_BLOCK_COLUMNS):
                height, width = slab.shape
                target_slab, panel = target[row : row + height], slice(column, column + width)
                product = target_slab
                if column:
                    product = self._scratch.array("panel", target_slab.shape, W.dtype)
                multiply_block(
                    slab,
                    W[:, panel],
                    columns_of_W[panel],
                    product,
                    self._scratch,
                    is_cached=is_small_product(slab.size, len(W)),
                )
                if column:
                    target_slab += product

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`; sums of slabs are added in float64."""
        out.fill(0)
        vector_count = U.shape[1]
        is_single, entries = vector_count == 1, len(U) * len(out)
        if is_single:
            is_cached = entries * U.itemsize <= _CACHED_BYTES
        else:
            is_cached = is_small_product(entries, vector_count)
        for position, piece in self._positioned_pieces(intervals):
            U_piece = U[position : position + len(piece)]
            if piece.dtype != U.dtype:
                self._add_converted(piece, U_piece, out)
            elif is_single:
                add_transposed(piece, U_piece[:, 0], out[:, 0], self._scratch, is_cached=is_cached)
            else:
                add_transposed_block(piece, U_piece, out, self._scratch, is_cached=is_cached)

    def _add_converted(
        self, piece: NDArray[Any], U: NDArray[Any], out: NDArray[np.float64]
    ) -> None:
        is_single = U.shape[1] == 1
        max_columns = _CONVERTED_COLUMNS if is_single else _CONVERTED_BLOCK_COLUMNS
        for row, column, slab in self._convert_slabs(piece, U.dtype, max_columns):
            height, width = slab.shape
            U_slab, sums = U[row : row + height], out[column : column + width]
            if is_single:
                add_transposed(slab, U_slab[:, 0], sums[:, 0], self._scratch, is_cached=True)
            else:
                is_cached = is_small_product(slab.size, U.shape[1])
                add_transposed_block(slab, U_slab, sums, self._scratch, is_cached=is_cached)

    def _positioned_pieces(self, intervals: Intervals) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the position of each array among the multiplied rows, and the array."""
        position = 0
        for start, stop in intervals:
            for piece in self.pieces(start, stop):
                yield position, piece
                position += len(piece)

    def _convert_slabs(
        self, piece: NDArray[Any], dtype: np.dtype[Any], max_columns: int
    ) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield the first row, first column and converted entries of each slab of a piece.

        The entries are valid until the next slab.
        """
        rows, columns = piece.shape
        width = min(columns, max_columns)
        height = _CONVERTED_BYTES // dtype.itemsize // width
        for row in range(0, rows, height):
            for column in range(0, columns, width):
                source = piece[row : row + height, column : column + width]
                slab = self._scratch.array("converted", source.shape, dtype)
                np.copyto(slab, source)
                yield row, column, slab
