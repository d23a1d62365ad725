"""Products of rows, and of their transpose, with several vectors.

OpenBLAS multiplies small matrices as they are. It first packs (copies) larger ones, which takes
longer than the product if there are few vectors. It reads several rows at the same time, which
stalls on memory if the product is cheap. So such rows are first read sequentially into the L2
cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.scratch import Scratch

# About the maximum of rows * columns * vectors that OpenBLAS multiplies without packing operands.
MAX_UNPACKED_WORK = 10**6
_MAX_UNPACKED_VECTORS = 96  # above this number of vectors, packing is faster
# Bytes of a row that np.vecdot multiplies by two vectors: it stays cached for the second one.
_VECDOT_ROW_BYTES = range(768, 5 << 10)
_PREFETCH_BYTES = 512 << 10  # bytes of rows to prefetch at a time
# Minimum and maximum bytes of a row that is prefetched. The maximum decreases with the number of
# vectors: pairs (maximum bytes of the products of a row, maximum bytes of the row).
_MIN_PREFETCH_ROW_BYTES = 480
_MAX_PREFETCH_ROW_BYTES = ((32, 10 << 10), (64, 2560), (1 << 62, 1 << 10))
_MIN_PREFETCH_ROWS = 40  # minimum number of rows to prefetch for rows.T @ U
_MIN_SLAB_ROWS = 12  # minimum rows of a slab, which one call multiplies
# Slabs of rows.T @ U without `_prefetch`: hardware prefetches at most about 12 long rows.
_WIDE_COLUMNS, _MIN_WIDE_SLAB_ROWS = 2048, 12
_MIN_UNPREFETCHED_ROWS, _MAX_UNPREFETCHED_ROWS = 16, 48
# Slabs of rows.T @ U that OpenBLAS packs: a few megabytes stay in the caches.
_ADJOINT_SLAB_BYTES, _MIN_LARGE_SLAB_ROWS, _MAX_LARGE_SLAB_ROWS = 4 << 20, 128, 4096
# Slabs of rows @ W.T with many vectors; Python handles signals in between.
_MANY_VECTORS_SLAB_BYTES = 64 << 20
_MIN_FLOAT32_SLAB_BYTES, _MIN_FLOAT32_SLAB_ROWS = 1 << 20, 4096  # for sums in float32


def is_small_product(entries: int, vector_count: int) -> bool:
    """Return whether rows with this number of entries are multiplied fastest by one BLAS call."""
    return entries * vector_count < MAX_UNPACKED_WORK


def transpose_vectors(W: NDArray[Any], scratch: Scratch) -> NDArray[Any]:
    """Return the transpose of the vectors, (r, k), copied to contiguous memory if they are few.

    Parameters
    ----------
    W : (k, r) ndarray
    scratch : Scratch
        Holds the result until the next call.
    """
    if len(W) > _MAX_UNPACKED_VECTORS:
        return W.T
    columns_of_W = scratch.array("columns_of_W", W.T.shape, W.dtype)
    np.copyto(columns_of_W, W.T)
    return columns_of_W


def multiply_block(
    rows: NDArray[Any],
    W: NDArray[Any],
    columns_of_W: NDArray[Any],
    out: NDArray[Any],
    scratch: Scratch,
    *,
    is_cached: bool = False,
) -> None:
    """Multiply rows by each of k vectors: ``out <- rows @ W.T``.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    W : (k, r) ndarray
        In the dtype of the rows.
    columns_of_W : (r, k) ndarray
        Result of `transpose_vectors`.
    out : (m, k) ndarray
        In the dtype of the rows.
    scratch : Scratch
    is_cached : bool
        Whether the product is small (`is_small_product`) and its rows are likely cached; then
        `columns_of_W` may be ``W.T``.

    Examples
    --------
    >>> rows, W, out = np.eye(3)[:2], np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.empty((2, 2))
    >>> multiply_block(rows, W, transpose_vectors(W, Scratch()), out, Scratch())
    >>> out
    array([[1., 4.],
           [2., 5.]])
    """
    count, columns = rows.shape
    vector_count, row_bytes = len(W), columns * rows.itemsize
    if is_cached:
        np.matmul(rows, columns_of_W, out=out)
        return
    if vector_count == 2 and row_bytes in _VECDOT_ROW_BYTES:
        np.vecdot(rows[:, np.newaxis], W, out=out)
        return
    needs_prefetch = vector_count <= _MAX_UNPACKED_VECTORS and _needs_prefetch(
        row_bytes, vector_count * rows.itemsize
    )
    if vector_count > _MAX_UNPACKED_VECTORS:
        width, height = columns, max(_MIN_LARGE_SLAB_ROWS, _MANY_VECTORS_SLAB_BYTES // row_bytes)
    elif needs_prefetch:
        width, height = columns, _rows_per_prefetch(columns, rows.itemsize, vector_count)
    else:
        width = _even_width(columns, MAX_UNPACKED_WORK // (_MIN_SLAB_ROWS * vector_count))
        height = (MAX_UNPACKED_WORK - 1) // (width * vector_count)
    for first in range(0, count, height):
        row_slab, target = rows[first : first + height], out[first : first + height]
        if needs_prefetch:
            _prefetch(row_slab)
        np.matmul(row_slab[:, :width], columns_of_W[:width], out=target)
        for column in range(width, columns, width):
            partial = scratch.array("partial", target.shape, out.dtype)
            panel = slice(column, column + width)
            np.matmul(row_slab[:, panel], columns_of_W[panel], out=partial)
            target += partial


def add_transposed_block(
    rows: NDArray[Any],
    U: NDArray[Any],
    sums: NDArray[np.float64],
    scratch: Scratch,
    *,
    is_cached: bool = False,
) -> None:
    """Add the transpose of rows times k vectors: ``sums += rows.T @ U``.

    Rows of float32 are summed in float32 slab by slab, and the sums of slabs in float64.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    U : (m, k) ndarray
        In the dtype of the rows.
    sums : (r, k) ndarray of float64
    scratch : Scratch
    is_cached : bool
        See `multiply_block`.

    Examples
    --------
    >>> sums = np.ones((3, 2))
    >>> add_transposed_block(np.eye(3)[:2], np.array([[5.0, 6.0], [7.0, 8.0]]), sums, Scratch())
    >>> sums.T
    array([[6., 8., 1.],
           [7., 9., 1.]])
    """
    vector_count, row_bytes = U.shape[1], rows.shape[1] * rows.itemsize
    uses_small_slabs = vector_count <= _MAX_UNPACKED_VECTORS and not is_cached
    if uses_small_slabs and rows.dtype == sums.dtype:
        _add_slabs(rows, U, sums, scratch)
        return
    height = max(_MIN_LARGE_SLAB_ROWS, min(_MAX_LARGE_SLAB_ROWS, _ADJOINT_SLAB_BYTES // row_bytes))
    if uses_small_slabs:
        height = max(_MIN_FLOAT32_SLAB_ROWS, _MIN_FLOAT32_SLAB_BYTES // row_bytes)
    slab_sums = scratch.array("sums", sums.shape, rows.dtype)
    for first in range(0, len(rows), height):
        row_slab, vector_slab = rows[first : first + height], U[first : first + height]
        if uses_small_slabs:
            slab_sums.fill(0)
            _add_slabs(row_slab, vector_slab, slab_sums, scratch)
        else:
            np.matmul(row_slab.T, vector_slab, out=slab_sums)
        np.add(sums, slab_sums, out=sums)


def _add_slabs(rows: NDArray[Any], U: NDArray[Any], sums: NDArray[Any], scratch: Scratch) -> None:
    """Add products slab by slab, in the dtype of the rows."""
    count, columns = rows.shape
    vector_count, row_bytes = U.shape[1], columns * rows.itemsize
    width, height = columns, _rows_per_prefetch(columns, rows.itemsize, vector_count)
    needs_prefetch = row_bytes >= _MIN_PREFETCH_ROW_BYTES and height >= _MIN_PREFETCH_ROWS
    if row_bytes < _MIN_PREFETCH_ROW_BYTES:
        height = max(1, MAX_UNPACKED_WORK // 4 // (columns * vector_count))
    elif not needs_prefetch:
        is_wide = columns >= _WIDE_COLUMNS
        min_height = _MIN_WIDE_SLAB_ROWS if is_wide else _MIN_UNPREFETCHED_ROWS
        height = min(_MAX_UNPREFETCHED_ROWS, max(min_height, 3 * vector_count // 2))
        width = _even_width(columns, MAX_UNPACKED_WORK // (height * vector_count))
    for first in range(0, count, height):
        row_slab, vector_slab = rows[first : first + height], U[first : first + height]
        if needs_prefetch:
            _prefetch(row_slab)
        for column in range(0, columns, width):
            panel = sums[column : column + width]
            partial = scratch.array("partial", panel.shape, rows.dtype)
            np.matmul(row_slab[:, column : column + width].T, vector_slab, out=partial)
            panel += partial


def _needs_prefetch(row_bytes: int, product_bytes: int) -> bool:
    """Return whether products of these rows would stall on memory without a prefetch."""
    limits = _MAX_PREFETCH_ROW_BYTES
    max_bytes = next(row_limit for limit, row_limit in limits if product_bytes <= limit)
    return _MIN_PREFETCH_ROW_BYTES <= row_bytes <= max_bytes


def _rows_per_prefetch(columns: int, itemsize: int, vector_count: int) -> int:
    """Return the number of rows that fit in the cache and are multiplied without packing."""
    cached_rows = _PREFETCH_BYTES // (columns * itemsize)
    return max(1, min(cached_rows, (MAX_UNPACKED_WORK - 1) // (columns * vector_count)))


def _prefetch(rows: NDArray[Any]) -> None:
    """Bring rows into the caches by a sequential read, which the hardware prefetcher supports."""
    rows.view(np.int64 if rows.itemsize == 8 else np.int32).max()


def _even_width(columns: int, max_width: int) -> int:
    """Return the width of the fewest panels of about equal width, at most `max_width`."""
    return -(-columns // -(-columns // max_width))
