"""Shards whose rows are arrays in memory, or mapped to it: products by BLAS.

Rows of float32 that are multiplied with float64 are converted some at a time, and are multiplied
while they are in the cache: BLAS then sums in float64, and memory is read as for float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.shard import Intervals, Shard
from cec_mpi.store.work import PerThread

# Rows multiplied at once with several columns. OpenBLAS copies what it multiplies: some
# megabytes of it stay in the caches until they are used.
_SLAB_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 128, 4096
# Converted at once: less takes longer, more leaves the second level of the caches. With several
# vectors BLAS wants many rows, with one long ones.
_CONVERTED_BYTES = 2 << 20
_CONVERTED_COLUMNS, _CONVERTED_WITH_SEVERAL = 1 << 16, 1 << 12


class _Slab(NamedTuple):
    """Some rows of a shard, or some columns of them."""

    position: int  # of the first row, among those that are multiplied
    left: int  # the first column
    numbers: NDArray[Any]


class DenseShard(Shard):
    """A shard that has its rows as arrays; what is computed with is never copied as a whole."""

    _partial: NDArray[Any] = np.empty(0)  # what a slab comes to
    _room = PerThread()  # for numbers that were converted

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """These rows, from the first to the last, in one or more parts."""

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """As `Shard.multiply`."""
        for position, left, numbers in self._slabs(intervals, W.dtype, len(W), whole=True):
            height, width = numbers.shape
            some, rows = W[:, left : left + width], out[position : position + height]
            target = self._partial_of(rows.shape, W.dtype) if left else rows
            if len(W) == 1:
                np.dot(numbers, some[0], out=target[:, 0])
            else:
                np.dot(numbers, some.T, out=target)
            if left:
                rows += target

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """As `Shard.multiply_transposed`: slabs add up in double precision, whatever it is."""
        out.fill(0)
        for position, left, numbers in self._slabs(intervals, U.dtype, U.shape[1]):
            height, width = numbers.shape
            some, target = U[position : position + height], out[left : left + width]
            partial = self._partial_of(target.shape, U.dtype)
            if U.shape[1] == 1:
                np.dot(some[:, 0], numbers, out=partial[:, 0])
            else:
                np.dot(numbers.T, some, out=partial)
            target += partial

    def _slabs(
        self, intervals: Intervals, dtype: np.dtype[Any], vectors: int, whole: bool = False
    ) -> Iterator[_Slab]:
        """These rows in this dtype, some at a time, for so many vectors.

        Where `whole` is true, rows for one vector stay together if they are of this dtype.
        """
        position = 0
        for piece in self._pieces(intervals):
            if piece.dtype != dtype:
                for slab in self._converted(piece, dtype, vectors):
                    yield slab._replace(position=position + slab.position)
            elif whole and vectors == 1:
                yield _Slab(position, 0, piece)
            else:
                row_bytes = max(1, piece.shape[1] * piece.itemsize)
                slab_rows = min(_MOST_ROWS, max(_FEWEST_ROWS, _SLAB_BYTES // row_bytes))
                for first in range(0, len(piece), slab_rows):
                    yield _Slab(position + first, 0, piece[first : first + slab_rows])
            position += len(piece)

    def _converted(
        self, piece: NDArray[Any], dtype: np.dtype[Any], vectors: int
    ) -> Iterator[_Slab]:
        """These rows in another dtype; what is yielded holds until the next."""
        most = _CONVERTED_BYTES // dtype.itemsize
        room: NDArray[Any] | None = getattr(self._room, dtype.name, None)
        if room is None:
            room = np.empty(most, dtype)
            setattr(self._room, dtype.name, room)
        rows, columns = piece.shape
        width = min(columns, _CONVERTED_COLUMNS if vectors == 1 else _CONVERTED_WITH_SEVERAL)
        height = most // width
        for first in range(0, rows, height):
            for left in range(0, columns, width):
                given = piece[first : first + height, left : left + width]
                numbers = room[: given.size].reshape(given.shape)
                np.copyto(numbers, given)
                yield _Slab(first, left, numbers)

    def _partial_of(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Room for numbers of this shape."""
        size = shape[0] * shape[1]
        if self._partial.size < size or self._partial.dtype != dtype:
            self._partial = np.empty(size, dtype)
        return self._partial[:size].reshape(shape)

    def _pieces(self, intervals: Intervals) -> Iterator[NDArray[Any]]:
        for start, stop in intervals:
            yield from self.pieces(start, stop)
