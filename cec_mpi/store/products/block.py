"""Rows times several vectors, and their transpose times several.

OpenBLAS multiplies small matrices as they are, and copies larger ones first, which takes longer
than the product where vectors are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.products.scratch import Scratch

_SMALL = 10**6  # rows * columns * vectors of what OpenBLAS multiplies without copying: not quite
_FEW_VECTORS = 96  # for more of them copying pays
# Bytes of a row, and of it and all vectors, for which rows are summed vector by vector, if few.
_SUMMED_ROW, _SUMMED, _MOST_SUMMED = 768, 15 << 10, 4
_FEWEST_ROWS = 12  # of a slab of rows, of which as many as can be are multiplied at once
# Rows that are added up at once stand far apart: more of them than this are not prefetched.
_FAR_BYTES, _WIDE_COLUMNS, _FAR_ROWS = 2560, 2048, (12, 16, 48)
# Larger matrices: OpenBLAS copies slabs, some megabytes of which stay in the caches.
_SLAB_BYTES, _FEWEST_SLAB_ROWS, _MOST_SLAB_ROWS = 4 << 20, 128, 4096
_COPIED_BYTES = 64 << 20  # multiplied at once with many vectors: signals wait for it
_SINGLE_BYTES = 1 << 20  # of float32 that is added up at once, at the least


def are_few(numbers: int, vectors: int) -> bool:
    """Whether rows with so many numbers are best multiplied as they are."""
    return numbers * vectors < _SMALL


def turn(W: NDArray[Any], scratch: Scratch) -> NDArray[Any]:
    """The vectors of `multiply_block` as it wants them, (r, k): side by side if they are few.

    Parameters
    ----------
    W : (k, r) ndarray
    scratch : Scratch
        Has the result until the next one.
    """
    if len(W) > _FEW_VECTORS:
        return W.T
    turned = scratch.of("turned", W.T.shape, W.dtype)
    np.copyto(turned, W.T)
    return turned


def multiply_block(
    rows: NDArray[Any],
    W: NDArray[Any],
    turned: NDArray[Any],
    out: NDArray[Any],
    scratch: Scratch,
    *,
    cached: bool = False,
) -> None:
    """Multiply rows with each of k vectors: ``out <- rows @ W.T``.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    W : (k, r) ndarray
        In the dtype of the rows.
    turned : (r, k) ndarray
        These columns of `turn`.
    out : (m, k) ndarray
        In the same.
    scratch : Scratch
    cached : bool
        Whether the rows are few (`are_few`), and likely to be in the caches: `turned` may be the
        transpose of W then.

    Examples
    --------
    >>> rows, W, out = np.eye(3)[:2], np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.empty((2, 2))
    >>> multiply_block(rows, W, turn(W, Scratch()), out, Scratch())
    >>> out
    array([[1., 4.],
           [2., 5.]])
    """
    count, columns = rows.shape
    vectors, row_bytes = len(W), columns * rows.itemsize
    if cached:
        np.matmul(rows, turned, out=out)
        return
    if _summed_twice(row_bytes, vectors):
        np.vecdot(rows[:, np.newaxis], W, out=out)
        return
    if vectors > _FEW_VECTORS:
        width, height = columns, max(_FEWEST_SLAB_ROWS, _COPIED_BYTES // row_bytes)
    else:
        width = _even(columns, _SMALL // (_FEWEST_ROWS * vectors))
        height = (_SMALL - 1) // (width * vectors)
    for first in range(0, count, height):
        some, target = rows[first : first + height], out[first : first + height]
        np.matmul(some[:, :width], turned[:width], out=target)
        for left in range(width, columns, width):
            partial = scratch.of("partial", target.shape, out.dtype)
            panel = slice(left, left + width)
            np.matmul(some[:, panel], turned[panel], out=partial)
            target += partial


def add_transposed_block(
    rows: NDArray[Any],
    U: NDArray[Any],
    sums: NDArray[np.float64],
    scratch: Scratch,
    *,
    cached: bool = False,
) -> None:
    """Multiply the transpose of rows with k vectors: ``sums += rows.T @ U``.

    Rows of float32 are added up in float32 some thousand at a time, and these sums in float64.

    Parameters
    ----------
    rows : (m, r) ndarray of float
    U : (m, k) ndarray
        In the dtype of the rows.
    sums : (r, k) ndarray of float64
    scratch : Scratch
    cached : bool
        As for `multiply_block`.

    Examples
    --------
    >>> sums = np.ones((3, 2))
    >>> add_transposed_block(np.eye(3)[:2], np.array([[5.0, 6.0], [7.0, 8.0]]), sums, Scratch())
    >>> sums.T
    array([[6., 8., 1.],
           [7., 9., 1.]])
    """
    vectors, row_bytes = U.shape[1], rows.shape[1] * rows.itemsize
    few = vectors <= _FEW_VECTORS and not cached
    if few and rows.dtype == sums.dtype:
        _add_slabs(rows, U, sums, scratch)
        return
    slab = max(_FEWEST_SLAB_ROWS, min(_MOST_SLAB_ROWS, _SLAB_BYTES // row_bytes))
    if few:
        slab = max(_MOST_SLAB_ROWS, _SINGLE_BYTES // row_bytes)
    here = scratch.of("sums", sums.shape, rows.dtype)
    for first in range(0, len(rows), slab):
        some, theirs = rows[first : first + slab], U[first : first + slab]
        if few:
            here.fill(0)
            _add_slabs(some, theirs, here, scratch)
        else:
            np.matmul(some.T, theirs, out=here)
        np.add(sums, here, out=sums)


def _summed_twice(row_bytes: int, vectors: int) -> bool:
    """Whether a row and all vectors fit into the first level of the caches."""
    fit = row_bytes >= _SUMMED_ROW and (vectors + 1) * row_bytes <= _SUMMED
    return fit and vectors <= _MOST_SUMMED


def _add_slabs(rows: NDArray[Any], U: NDArray[Any], sums: NDArray[Any], scratch: Scratch) -> None:
    """The same, slab by slab, in the dtype of the rows."""
    count, columns = rows.shape
    vectors, row_bytes = U.shape[1], columns * rows.itemsize
    if row_bytes < _FAR_BYTES:
        height, width = max(1, _SMALL // 4 // (columns * vectors)), columns
    else:
        few, usual, most = _FAR_ROWS
        least = few if columns >= _WIDE_COLUMNS else usual
        height = min(most, max(least, 3 * vectors // 2))
        width = _even(columns, _SMALL // (height * vectors))
    for first in range(0, count, height):
        some, theirs = rows[first : first + height], U[first : first + height]
        for left in range(0, columns, width):
            panel = sums[left : left + width]
            partial = scratch.of("partial", panel.shape, rows.dtype)
            np.matmul(some[:, left : left + width].T, theirs, out=partial)
            panel += partial


def _even(columns: int, most: int) -> int:
    """The width of panels that are about equally wide, and not wider than this."""
    return -(-columns // -(-columns // most))
