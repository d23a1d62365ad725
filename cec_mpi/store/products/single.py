"""Products of rows, and of their transpose, with one vector.

Sums of each row (vecdot), or of all rows (einsum), reach the memory bandwidth while the vector
stays in the L1 cache. BLAS multiplies longer rows and cached rows. Rows too short for a sum each
are multiplied several at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.scratch import Scratch

# rows * columns * vectors, up to about which OpenBLAS multiplies without copying its operands.
_MAX_UNCOPIED_WORK = 10**6
# Bytes of a row that is summed by itself: two of them are in 32 KiB of cache, and the stack.
_VECDOT_ROW_BYTES = range(256, 15 << 10)
_EINSUM_ROW_BYTES = range(512, 14 << 10)
_LONG_ROW_BYTES = range(800_000, 4 << 20)  # bytes of a row whose vector is in the third level
_ODD_COLUMNS = range(21, 32)  # of float64: BLAS takes longer where they are no multiple of four
# With so many columns, so many rows are multiplied as one, by bytes of a number.
_FUSED_ROWS = {8: ((range(2, 21), 2),), 4: ((range(9, 15), 4), (range(15, 27), 2))}
_MIN_FUSED_ENTRIES = 4096  # numbers
_NARROW_COLUMNS, _NARROW_ROWS = 8, 10_000  # of float32: BLAS is faster with fewer rows at once
# Of float32 that is added up in float32: rows, at the least and at the most, and bytes.
_SINGLE_ROWS, _SINGLE_BYTES = (128, 1 << 17), 4 << 20


def multiply(
    rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any], *, cached: bool = False
) -> None:
    """Multiply rows with a vector: ``out <- rows @ w``.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    w : (r,) ndarray
        In the dtype of the rows.
    out : (m,) ndarray
        In the same.
    cached : bool
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
    if cached:
        np.dot(rows, w, out=out)
    elif row_bytes in _VECDOT_ROW_BYTES or row_bytes in _LONG_ROW_BYTES:
        np.vecdot(rows, w, out=out)
    elif row_bytes >= _VECDOT_ROW_BYTES.stop:
        np.dot(rows, w, out=out)
    elif columns == 1:
        np.multiply(rows[:, 0], w[0], out=out)
    else:
        _multiply_narrow(rows, w, out)


def add_transposed(
    rows: NDArray[Any],
    u: NDArray[Any],
    sums: NDArray[np.float64],
    scratch: Scratch,
    *,
    cached: bool = False,
) -> None:
    """Multiply the transpose of rows with a vector: ``sums += rows.T @ u``.

    Rows of float32 are added in float32 in groups of some thousand, and these sums in float64.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    u : (m,) ndarray
        In the dtype of the rows.
    sums : (r,) ndarray of float64
    scratch : Scratch
    cached : bool
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
    partial = scratch.of("partial", (columns,), rows.dtype)
    height = max(1, count)
    if rows.dtype != sums.dtype:
        fewest, most = _SINGLE_ROWS
        height = max(fewest, min(most, _SINGLE_BYTES // row_bytes))
    for first in range(0, count, height):
        row_slab, vector_slab = rows[first : first + height], u[first : first + height]
        if row_bytes in _EINSUM_ROW_BYTES and not cached:
            np.einsum("ij,i->j", row_slab, vector_slab, out=partial)
        else:
            np.dot(vector_slab, row_slab, out=partial)
        np.add(sums, partial, out=sums)


def _multiply_narrow(rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any]) -> None:
    """Multiply rows that are too short for a sum each."""
    columns, itemsize = rows.shape[1], rows.itemsize
    together = _fused_rows(rows, out)
    if together > 1:
        _multiply_fused(rows, w, out, together)
    elif itemsize == 8 and columns in _ODD_COLUMNS and columns % 4:
        np.vecdot(rows, w, out=out)
    else:
        skinny = itemsize == 4 and columns <= _NARROW_COLUMNS
        height = _NARROW_ROWS if skinny else max(1, len(rows))
        for first in range(0, len(rows), height):
            np.dot(rows[first : first + height], w, out=out[first : first + height])


def _fused_rows(rows: NDArray[Any], out: NDArray[Any]) -> int:
    """Return how many rows are fused; rows and results must be contiguous."""
    if rows.size < _MIN_FUSED_ENTRIES or not (rows.flags.c_contiguous and out.flags.c_contiguous):
        return 1
    for columns, together in _FUSED_ROWS.get(rows.itemsize, ()):
        if rows.shape[1] in columns:
            return together
    return 1


def _multiply_fused(rows: NDArray[Any], w: NDArray[Any], out: NDArray[Any], together: int) -> None:
    """Multiply fused rows by a block-diagonal matrix with copies of w."""
    count, columns = rows.shape
    whole = count // together
    matrix = np.zeros((together, columns, together), w.dtype)
    for place in range(together):
        matrix[place, :, place] = w
    matrix = matrix.reshape(together * columns, together)
    wide = rows[: whole * together].reshape(whole, together * columns)
    several = out[: whole * together].reshape(whole, together)
    height = (_MAX_UNCOPIED_WORK - 1) // matrix.size
    for first in range(0, whole, height):
        np.matmul(wide[first : first + height], matrix, out=several[first : first + height])
    np.dot(rows[whole * together :], w, out=out[whole * together :])
