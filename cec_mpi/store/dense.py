"""Shards whose rows are arrays in memory, or mapped to it: products by BLAS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.shard import Intervals, Shard

# Rows multiplied at once with several columns. OpenBLAS copies what it multiplies: some
# megabytes of it stay in the caches until they are used.
_SLAB_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 128, 4096


class DenseShard(Shard):
    """A shard that has its rows as arrays; they are computed with as they are, never copied."""

    _partial: NDArray[Any] = np.empty((0, 0))  # the sum of a slab

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """These rows, from the first to the last, in one or more parts."""

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """As `Shard.multiply`."""
        if len(W) == 1:
            position = 0
            for rows in self._pieces(intervals):
                end = position + len(rows)
                np.dot(rows, W[0], out=out[position:end, 0])
                position = end
        else:
            for position, rows in self._slabs(intervals):
                np.dot(rows, W.T, out=out[position : position + len(rows)])

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """As `Shard.multiply_transposed`: slabs add up in double precision, whatever it is."""
        if self._partial.shape != out.shape:
            self._partial = np.empty(out.shape, U.dtype)
        out.fill(0)
        for position, rows in self._slabs(intervals):
            part = U[position : position + len(rows)]
            if U.shape[1] == 1:
                np.dot(part[:, 0], rows, out=self._partial[:, 0])
            else:
                np.dot(rows.T, part, out=self._partial)
            out += self._partial

    def _slabs(self, intervals: Intervals) -> Iterator[tuple[int, NDArray[Any]]]:
        """These rows, some at a time: where they stand among them, and the rows."""
        position = 0
        for piece in self._pieces(intervals):
            row_bytes = max(1, piece.shape[1] * piece.itemsize)
            slab = min(_MOST_ROWS, max(_FEWEST_ROWS, _SLAB_BYTES // row_bytes))
            for first in range(0, len(piece), slab):
                rows = piece[first : first + slab]
                yield position, rows
                position += len(rows)

    def _pieces(self, intervals: Intervals) -> Iterator[NDArray[Any]]:
        for start, stop in intervals:
            yield from self.pieces(start, stop)
