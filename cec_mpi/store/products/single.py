"""Products of rows, and of their transpose, with one vector.

np.vecdot and np.einsum reach the memory bandwidth if the vector stays in the L1 cache. BLAS
multiplies longer rows and cached rows. For short rows a sum per row is slow, so several rows are
multiplied as one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.block import MAX_UNPACKED_WORK
from cec_mpi.store.products.scratch import Scratch

# Sizes of rows for which np.vecdot, and np.einsum for rows.T @ u, are fastest: a row and the vector
# fit in 32 KiB of L1 cache.
_VECDOT_ROW_BYTES = range(256, 15 << 10)
_EINSUM_ROW_BYTES = range(512, 14 << 10)
# Sizes of longer rows for which np.vecdot is also fastest: the vector is in the L3 cache.
_LONG_ROW_BYTES = range(800_000, 4 << 20)
_VECDOT_COLUMNS = range(21, 32)  # of float64: BLAS is slow except for multiples of four
# Pairs (range of columns, number of rows that are multiplied as one), by itemsize.
_FUSED_ROWS = {8: ((range(2, 21), 2),), 4: ((range(9, 15), 4), (range(15, 27), 2))}
_MIN_FUSED_ENTRIES = 4096
# Float32 matrices with up to this number of columns: BLAS is fastest with this number of rows.
_NARROW_COLUMNS, _NARROW_SLAB_ROWS = 8, 10_000
# Slabs of float32 that are summed in float32: minimum and maximum number of rows, and size.
_MIN_FLOAT32_ROWS, _MAX_FLOAT32_ROWS, _FLOAT32_SLAB_BYTES = 128, 1 << 17, 4 << 20


def multiply(
    rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any], *, is_cached: bool = False
) -> None:
    """Multiply rows by a vector: ``out <- rows @ w``.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    w : (r,) ndarray
        In the dtype of the rows.
    out : (m,) ndarray
        In the dtype of the rows.
    is_cached : bool
        Whether the rows are probably in the caches.

    Examples
    --------
    >>> out = np.empty(2)
    >>> multiply(np.eye(3)[:2], np.array([5.0, 6.0, 7.0]), out)
    >>> out
    array([5., 6.])
    """
    columns = rows.shape[1]
    row_bytes = columns * rows.itemsize
    if is_cached:
        np.dot(rows, w, out=out)
    elif row_bytes in _VECDOT_ROW_BYTES or row_bytes in _LONG_ROW_BYTES:
        np.vecdot(rows, w, out=out)
    elif row_bytes >= _VECDOT_ROW_BYTES.stop:
        np.dot(rows, w, out=out)
    elif columns == 1:
        np.multiply(rows[:, 0], w[0], out=out)
    else:
        _multiply_short(rows, w, out)


def add_transposed(
    rows: NDArray[Any],
    u: NDArray[Any],
    sums: NDArray[np.float64],
    scratch: Scratch,
    *,
    is_cached: bool = False,
) -> None:
    """Add the transpose of rows times a vector: ``sums += rows.T @ u``.

    Rows of float32 are summed in float32 slab by slab, and the sums of slabs in float64.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    u : (m,) ndarray
        In the dtype of the rows.
    sums : (r,) ndarray of float64
    scratch : Scratch
    is_cached : bool
        See `multiply`.

    Examples
    --------
    >>> sums = np.ones(3)
    >>> add_transposed(np.eye(3)[:2], np.array([5.0, 6.0]), sums, Scratch())
    >>> sums
    array([6., 7., 1.])
    """
    count, columns = rows.shape
    row_bytes = columns * rows.itemsize
    partial = scratch.array("partial", (columns,), rows.dtype)
    height = max(1, count)
    if rows.dtype != sums.dtype:
        height = max(_MIN_FLOAT32_ROWS, min(_MAX_FLOAT32_ROWS, _FLOAT32_SLAB_BYTES // row_bytes))
    for first in range(0, count, height):
        row_slab, vector_slab = rows[first : first + height], u[first : first + height]
        if row_bytes in _EINSUM_ROW_BYTES and not is_cached:
            np.einsum("ij,i->j", row_slab, vector_slab, out=partial)
        else:
            np.dot(vector_slab, row_slab, out=partial)
        np.add(sums, partial, out=sums)


def _multiply_short(rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any]) -> None:
    """Multiply rows that have fewer bytes than `_VECDOT_ROW_BYTES`."""
    columns, itemsize = rows.shape[1], rows.itemsize
    group_size = _fused_group_size(rows, out)
    if group_size > 1:
        _multiply_fused(rows, w, out, group_size)
    elif itemsize == 8 and columns in _VECDOT_COLUMNS and columns % 4:
        np.vecdot(rows, w, out=out)
    else:
        needs_slabs = itemsize == 4 and columns <= _NARROW_COLUMNS
        height = _NARROW_SLAB_ROWS if needs_slabs else max(1, len(rows))
        for first in range(0, len(rows), height):
            np.dot(rows[first : first + height], w, out=out[first : first + height])


def _fused_group_size(rows: NDArray[Any], out: NDArray[Any]) -> int:
    """Return the number of rows to multiply as one; 1 unless rows and results are contiguous."""
    if rows.size < _MIN_FUSED_ENTRIES or not (rows.flags.c_contiguous and out.flags.c_contiguous):
        return 1
    for columns, group_size in _FUSED_ROWS.get(rows.itemsize, ()):
        if rows.shape[1] in columns:
            return group_size
    return 1


def _multiply_fused(
    rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any], group_size: int
) -> None:
    """Multiply groups of rows by a block-diagonal matrix with copies of w."""
    columns = rows.shape[1]
    group_count = len(rows) // group_size
    grouped_count = group_count * group_size
    matrix = np.zeros((group_size, columns, group_size), w.dtype)
    for k in range(group_size):
        matrix[k, :, k] = w
    matrix = matrix.reshape(group_size * columns, group_size)
    fused_rows = rows[:grouped_count].reshape(group_count, group_size * columns)
    fused_out = out[:grouped_count].reshape(group_count, group_size)
    height = (MAX_UNPACKED_WORK - 1) // matrix.size
    for first in range(0, group_count, height):
        np.matmul(fused_rows[first : first + height], matrix, out=fused_out[first : first + height])
    np.dot(rows[grouped_count:], w, out=out[grouped_count:])
