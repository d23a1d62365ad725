"""Shards whose rows are arrays in memory, or memory-mapped.

Rows of float32 that are multiplied with float64 are converted a few at a time, and multiplied while
they are in the cache. So sums are computed in float64, and memory is read as for float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.block import (
    add_transposed_block,
    is_best_uncopied,
    multiply_block,
    transpose_vectors,
)
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.products.single import add_transposed, multiply
from cec_mpi.store.shard import Intervals, Shard

# Bytes to convert at a time: less is slower, more leaves the caches. With several vectors slabs
# have many rows, with one vector long rows.
_CONVERTED_BYTES = 2 << 20
_CONVERTED_COLUMNS, _CONVERTED_BLOCK_COLUMNS = 1 << 16, 1 << 12

# Size of rows that probably stay in the caches from step to step.
_CACHED_BYTES = 4 << 20


class _Slab(NamedTuple):
    """Slab of rows of a shard, or of some of their columns."""

    first: int  # row
    left: int  # column
    converted: NDArray[Any]


class DenseShard(Shard):
    """A shard whose rows are arrays in memory or memory-mapped."""

    _scratch = Scratch()

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """Return the rows ``start..stop`` as one or more consecutive arrays."""

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        if len(W) > 1:
            self._multiply_block(W, intervals, out)
            return
        w, answers = W[0], out[:, 0]
        cached = answers.size * w.nbytes <= _CACHED_BYTES
        position = 0
        for start, stop in intervals:
            for piece in self.pieces(start, stop):
                target = answers[position : position + len(piece)]
                position += len(piece)
                if piece.dtype == w.dtype:
                    multiply(piece, w, target, cached=cached)
                else:
                    self._multiply_converted(piece, w, target)

    def _multiply_converted(self, piece: NDArray[Any], w: NDArray[Any], out: NDArray[Any]) -> None:
        for first, left, converted in self._convert_slabs(piece, w.dtype, _CONVERTED_COLUMNS):
            height, width = converted.shape
            rows, w_slab = out[first : first + height], w[left : left + width]
            into = self._scratch.of("panel", rows.shape, w.dtype) if left else rows
            multiply(converted, w_slab, into, cached=True)
            if left:
                rows += into

    def _multiply_block(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        cached = is_best_uncopied(len(out) * W.shape[1], len(W))
        columns_of_W = W.T if cached else transpose_vectors(W, self._scratch)
        for position, piece in self._pieces(intervals):
            target = out[position : position + len(piece)]
            if piece.dtype == W.dtype:
                multiply_block(piece, W, columns_of_W, target, self._scratch, cached=cached)
                continue
            for first, left, converted in self._convert_slabs(
                piece, W.dtype, _CONVERTED_BLOCK_COLUMNS
            ):
                height, width = converted.shape
                rows, panel = target[first : first + height], slice(left, left + width)
                into = self._scratch.of("panel", rows.shape, W.dtype) if left else rows
                uncopied = is_best_uncopied(converted.size, len(W))
                multiply_block(
                    converted,
                    W[:, panel],
                    columns_of_W[panel],
                    into,
                    self._scratch,
                    cached=uncopied,
                )
                if left:
                    rows += into

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`; accumulates slabs in double precision."""
        out.fill(0)
        vectors = U.shape[1]
        one, size = vectors == 1, len(U) * len(out)
        cached = size * U.itemsize <= _CACHED_BYTES if one else is_best_uncopied(size, vectors)
        for position, piece in self._pieces(intervals):
            U_piece = U[position : position + len(piece)]
            if piece.dtype != U.dtype:
                self._add_converted(piece, U_piece, out)
            elif one:
                add_transposed(piece, U_piece[:, 0], out[:, 0], self._scratch, cached=cached)
            else:
                add_transposed_block(piece, U_piece, out, self._scratch, cached=cached)

    def _add_converted(
        self, piece: NDArray[Any], U: NDArray[Any], out: NDArray[np.float64]
    ) -> None:
        one = U.shape[1] == 1
        max_columns = _CONVERTED_COLUMNS if one else _CONVERTED_BLOCK_COLUMNS
        for first, left, converted in self._convert_slabs(piece, U.dtype, max_columns):
            height, width = converted.shape
            U_slab, sums = U[first : first + height], out[left : left + width]
            if one:
                add_transposed(converted, U_slab[:, 0], sums[:, 0], self._scratch, cached=True)
            else:
                uncopied = is_best_uncopied(converted.size, U.shape[1])
                add_transposed_block(converted, U_slab, sums, self._scratch, cached=uncopied)

    def _pieces(self, intervals: Intervals) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the arrays of these rows, and their position among the multiplied rows."""
        position = 0
        for start, stop in intervals:
            for piece in self.pieces(start, stop):
                yield position, piece
                position += len(piece)

    def _convert_slabs(
        self, piece: NDArray[Any], dtype: np.dtype[Any], max_columns: int
    ) -> Iterator[_Slab]:
        """Yield converted slabs of these rows; each is valid until the next."""
        most = _CONVERTED_BYTES // dtype.itemsize
        rows, columns = piece.shape
        width = min(columns, max_columns)
        height = most // width
        for first in range(0, rows, height):
            for left in range(0, columns, width):
                source = piece[first : first + height, left : left + width]
                converted = self._scratch.of("converted", source.shape, dtype)
                np.copyto(converted, source)
                yield _Slab(first, left, converted)
