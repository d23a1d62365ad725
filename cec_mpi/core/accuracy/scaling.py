"""Scaling of rows of X by powers of two before encoding.

Large rows must not drown small ones in a code: a number of a shard is a sum of L numbers of X, and
its rounding is relative to the largest of them. Division by powers of two is exact except for
underflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ZEROS = -4096  # the exponent of a row of zeros: what else is decoded there is multiplied away
_FOLD_WIDTHS = 16, 48  # rows of so many columns are folded: NumPy reduces short rows slowly
_WIDE_ROW = 2048  # columns, from which on it reduces columns fast


def row_max_abs(rows: NDArray[np.floating], work: NDArray[np.floating]) -> NDArray[Any]:
    """Return the largest absolute value of each row; NaN if a row has one.

    Parameters
    ----------
    rows : (..., w) ndarray of float
    work : (..., w) ndarray of float
        Scratch.

    Returns
    -------
    (...) ndarray

    Examples
    --------
    >>> row_max_abs(np.array([[1.0, -3.0], [0.0, 0.0]]), np.empty((2, 2)))
    array([3., 0.])
    """
    largest: NDArray[Any]
    sizes = np.abs(rows, out=work)
    few, many = _FOLD_WIDTHS
    width = sizes.shape[-1]
    if width >= many:  # NumPy compares integers faster, and bits of sizes are in the same order
        largest = sizes.view(f"i{sizes.itemsize}").max(axis=-1).view(sizes.dtype)
        return largest
    while width > few:
        half = width // 2
        if width % 2:
            np.maximum(sizes[..., 0], sizes[..., width - 1], out=sizes[..., 0])
        np.maximum(sizes[..., :half], sizes[..., half : 2 * half], out=sizes[..., :half])
        width = half
    largest = sizes[..., 0].copy()
    for column in range(1, width):
        np.maximum(largest, sizes[..., column], out=largest)
    return largest


def compute_row_exponents(
    largest: NDArray[np.floating], least: NDArray[np.floating] | None = None
) -> NDArray[np.int16]:
    """Return the exponents of the powers of two by which rows are divided.

    Parameters
    ----------
    largest : (...) ndarray of float
        Largest absolute values of rows, in the dtype in which they are kept.
    least : (...) ndarray of float, optional
        Smallest absolute values that are not 0. With them a row is divided only as far as these
        stay normal numbers of the dtype.

    Returns
    -------
    (...) ndarray of int16
        With them the largest absolute value of each row is in [1/2, 1); `ZEROS` for rows of zeros.

    Examples
    --------
    >>> compute_row_exponents(np.array([1.0, 0.75, 3.0, 0.0, 1e-6]))
    array([    1,     0,     2, -4096,   -19], dtype=int16)
    >>> compute_row_exponents(np.float32([1e30]), least=np.float32([1e-30]))
    array([26], dtype=int16)
    """
    exponents = _frexp(largest)
    if least is not None:
        normal = _frexp(least) - int(np.finfo(largest.dtype).minexp) - 1
        exponents = np.minimum(exponents, np.maximum(normal, 0))
    short: NDArray[np.int16] = exponents.astype(np.int16)
    zeros = largest == 0
    if zeros.any():
        short[zeros] = ZEROS
    return short


def divide_rows(
    rows: NDArray[np.floating], exponents: NDArray[np.int16], out: NDArray[np.floating]
) -> bool:
    """Divide each row by its power of two.

    Parameters
    ----------
    rows : (..., w) ndarray of float
    exponents : (...) ndarray of int16
    out : (..., w) ndarray of float
        Receives the rows, in their dtype.

    Returns
    -------
    bool
        Whether the division was exact: no entry has underflowed.

    Examples
    --------
    >>> out = np.empty((1, 2), np.float32)
    >>> divide_rows(np.float32([[8.0, 6.0]]), np.int16([4]), out), out.tolist()
    (True, [[0.5, 0.375]])
    >>> divide_rows(np.float32([[1e38, 1e-7]]), np.int16([127]), out)
    False
    """
    most = int(np.finfo(rows.dtype).maxexp) - 1
    wanted = -exponents.astype(np.int32)
    wanted[wanted == -ZEROS] = 0
    powers = np.minimum(wanted, most)
    factors = _powers_of_two(powers, rows.dtype)
    try:
        with np.errstate(under="raise"):
            np.multiply(rows, factors[..., np.newaxis], out=out)
        exact = True
    except FloatingPointError:
        with np.errstate(under="ignore"):
            np.multiply(rows, factors[..., np.newaxis], out=out)
        exact = False
    more = wanted > most  # rows of subnormal numbers
    if more.any():
        out[more] *= _powers_of_two(wanted[more] - most, rows.dtype)[:, np.newaxis]
    return exact


def _frexp(numbers: NDArray[np.floating]) -> NDArray[Any]:
    """Return the exponents of `numpy.frexp`, faster: from the bits of normal numbers."""
    info = np.finfo(numbers.dtype)
    bits = np.ascontiguousarray(numbers).view(f"i{numbers.itemsize}") >> info.nmant
    exponents: NDArray[Any] = bits - (int(info.maxexp) - 2)
    others = bits == 0
    if others.any():
        exponents[others] = np.frexp(numbers[others])[1]
    return exponents


def _powers_of_two(exponents: NDArray[np.int32], dtype: np.dtype[Any]) -> NDArray[Any]:
    info = np.finfo(dtype)
    powers: NDArray[Any]
    if exponents.min(initial=0) < int(info.minexp):
        powers = np.ldexp(np.ones((), dtype), exponents)
    else:
        bits = exponents.astype(f"i{dtype.itemsize}") + (int(info.maxexp) - 1)
        powers = (bits << info.nmant).view(dtype)
    return powers


def equilibrate(
    rows: NDArray[np.floating], out: NDArray[np.floating], work: NDArray[np.floating]
) -> NDArray[np.int16] | None:
    """Divide rows by powers of two, so that all have about one size.

    Parameters
    ----------
    rows, out, work : (..., w) ndarray of float
        Arrays of one dtype; `work` is scratch.

    Returns
    -------
    (...) ndarray of int16, or None
        The exponents; None if a row is not finite, and then `out` is undefined.

    Examples
    --------
    >>> rows, out = np.array([[3.0, -1.0], [0.0, 1e-9]]), np.empty((2, 2))
    >>> equilibrate(rows, out, np.empty((2, 2)))
    array([  2, -29], dtype=int16)
    >>> out.tolist()
    [[0.75, -0.25], [0.0, 0.536870912]]
    """
    largest = row_max_abs(rows, work)
    if not np.isfinite(largest).all():
        return None
    exponents = compute_row_exponents(largest)
    if not divide_rows(rows, exponents, out):
        restored = np.ldexp(out, exponents[..., np.newaxis].astype(np.int32))
        lossy = (restored != rows).any(axis=-1)
        exponents[lossy] = compute_row_exponents(largest[lossy], row_min_abs_nonzero(rows[lossy]))
        divide_rows(rows, exponents, out)
    return exponents


def row_min_abs_nonzero(rows: NDArray[np.floating]) -> NDArray[Any]:
    """Return the smallest absolute value of each row that is not 0; infinite for zero rows."""
    sizes = np.abs(rows)
    least: NDArray[Any] = sizes.min(axis=-1, where=sizes > 0, initial=np.inf)
    return least


def column_max_abs(rows: NDArray[np.floating]) -> NDArray[Any]:
    """Return the largest absolute value of each column; NaN if a column has one.

    Parameters
    ----------
    rows : (n, w) ndarray of float
        Contiguous.

    Examples
    --------
    >>> column_max_abs(np.array([[3.0, 0.0], [-4.0, 1e-200]])).tolist()
    [4.0, 1e-200]
    """
    most, least = (_reduce_columns(extreme, rows) for extreme in (np.maximum, np.minimum))
    largest: NDArray[Any] = np.maximum(np.abs(most), np.abs(least))
    return largest


def _reduce_columns(extreme: np.ufunc, rows: NDArray[Any]) -> NDArray[Any]:
    """Return an extreme of each column; several short rows are reduced together."""
    height, width = rows.shape
    rows_per_line = min(height, -(-_WIDE_ROW // width))
    whole = height - height % rows_per_line
    found = extreme.reduce(rows[:whole].reshape(-1, rows_per_line * width)).reshape(
        rows_per_line, width
    )
    if whole < height:
        found = np.vstack((found, extreme.reduce(rows[whole:])))
    reduced: NDArray[Any] = extreme.reduce(found)
    return reduced
