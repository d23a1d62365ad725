"""Scaling of the rows of X by powers of two before encoding.

An entry of a shard is a weighted sum of L entries of X, and its rounding error is relative to the
largest of them. Scaling prevents rounding errors of large rows from swamping small rows. Division
by powers of two is exact except for underflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ZERO_ROW = -4096  # exponent of a row of zeros; rescaling flushes decoded rounding errors to 0
_MAX_LOOP_WIDTH, _MIN_REDUCE_WIDTH = 16, 48  # columns; NumPy reduces narrow rows slowly
_MIN_LINE_WIDTH = 2048  # columns; NumPy reduces narrow arrays along columns slowly


def row_max_abs(rows: NDArray[np.floating], scratch: NDArray[np.floating]) -> NDArray[Any]:
    """Return the largest absolute value of each row; NaN for a row with NaN.

    Parameters
    ----------
    rows : (..., w) ndarray of float
    scratch : (..., w) ndarray of float
        Overwritten.

    Returns
    -------
    (...) ndarray

    Examples
    --------
    >>> row_max_abs(np.array([[1.0, -3.0], [0.0, 0.0]]), np.empty((2, 2)))
    array([3., 0.])
    """
    largest: NDArray[Any]
    magnitudes = np.abs(rows, out=scratch)
    width = magnitudes.shape[-1]
    if width >= _MIN_REDUCE_WIDTH:
        # Nonnegative floats sort like their bits as integers, which NumPy compares faster.
        bits = magnitudes.view(f"i{magnitudes.itemsize}")
        largest = bits.max(axis=-1).view(magnitudes.dtype)
        return largest
    while width > _MAX_LOOP_WIDTH:  # fold the second half of each row onto the first
        half = width // 2
        if width % 2:
            np.maximum(magnitudes[..., 0], magnitudes[..., -1], out=magnitudes[..., 0])
        first_half, second_half = magnitudes[..., :half], magnitudes[..., half : 2 * half]
        magnitudes = np.maximum(first_half, second_half, out=first_half)
        width = half
    largest = magnitudes[..., 0].copy()
    for column in range(1, width):
        np.maximum(largest, magnitudes[..., column], out=largest)
    return largest


def compute_row_exponents(
    largest: NDArray[np.floating], smallest: NDArray[np.floating] | None = None
) -> NDArray[np.int16]:
    """Return the exponents of the powers of two by which rows are divided.

    Parameters
    ----------
    largest : (...) ndarray of float
        Largest absolute values of the rows, in the dtype of the store.
    smallest : (...) ndarray of float, optional
        Smallest nonzero absolute values of the rows. Exponents are limited so that these values
        stay normal numbers of the dtype.

    Returns
    -------
    (...) ndarray of int16
        Exponents that move the largest absolute value of each row into [1/2, 1); `ZERO_ROW` for
        rows of zeros.

    Examples
    --------
    >>> compute_row_exponents(np.array([1.0, 0.75, 3.0, 0.0, 1e-6]))
    array([    1,     0,     2, -4096,   -19], dtype=int16)
    >>> compute_row_exponents(np.float32([1e30]), smallest=np.float32([1e-30]))
    array([26], dtype=int16)
    """
    exponents = _frexp_exponents(largest)
    if smallest is not None:
        limits = _frexp_exponents(smallest) - int(np.finfo(largest.dtype).minexp) - 1
        exponents = np.minimum(exponents, np.maximum(limits, 0))
    row_exponents: NDArray[np.int16] = exponents.astype(np.int16)
    is_zero = largest == 0
    if is_zero.any():
        row_exponents[is_zero] = ZERO_ROW
    return row_exponents


def divide_rows(
    rows: NDArray[np.floating], exponents: NDArray[np.int16], out: NDArray[np.floating]
) -> bool:
    """Divide each row by its power of two.

    Parameters
    ----------
    rows : (..., w) ndarray of float
    exponents : (...) ndarray of int16
    out : (..., w) ndarray of float
        Receives the quotients, in the dtype of `rows`.

    Returns
    -------
    bool
        Whether the division was exact: no entry underflowed.

    Examples
    --------
    >>> out = np.empty((1, 2), np.float32)
    >>> divide_rows(np.float32([[8.0, 6.0]]), np.int16([4]), out), out.tolist()
    (True, [[0.5, 0.375]])
    >>> divide_rows(np.float32([[1e38, 1e-7]]), np.int16([127]), out)
    False
    """
    max_shift = int(np.finfo(rows.dtype).maxexp) - 1
    shifts = -exponents.astype(np.int32)
    shifts[shifts == -ZERO_ROW] = 0
    factors = _powers_of_two(np.minimum(shifts, max_shift), rows.dtype)
    try:
        with np.errstate(under="raise"):
            np.multiply(rows, factors[..., np.newaxis], out=out)
        is_exact = True
    except FloatingPointError:
        with np.errstate(under="ignore"):
            np.multiply(rows, factors[..., np.newaxis], out=out)
        is_exact = False
    is_subnormal = shifts > max_shift
    if is_subnormal.any():
        remaining_factors = _powers_of_two(shifts[is_subnormal] - max_shift, rows.dtype)
        out[is_subnormal] *= remaining_factors[:, np.newaxis]
    return is_exact


def _frexp_exponents(values: NDArray[np.floating]) -> NDArray[Any]:
    """Return the exponents of `numpy.frexp`, read from the bits because that is faster."""
    info = np.finfo(values.dtype)
    bits = np.ascontiguousarray(values).view(f"i{values.itemsize}") >> info.nmant
    exponents: NDArray[Any] = bits - (int(info.maxexp) - 2)
    is_subnormal = bits == 0
    if is_subnormal.any():
        exponents[is_subnormal] = np.frexp(values[is_subnormal])[1]
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
    rows: NDArray[np.floating], out: NDArray[np.floating], scratch: NDArray[np.floating]
) -> NDArray[np.int16] | None:
    """Divide rows by powers of two so that their largest entries have similar magnitudes.

    Parameters
    ----------
    rows, out, scratch : (..., w) ndarray of float
        Arrays of the same dtype; `out` and `scratch` are overwritten.

    Returns
    -------
    (...) ndarray of int16, or None
        The exponents. None if a row is not finite; `out` is undefined then.

    Examples
    --------
    >>> rows, out = np.array([[3.0, -1.0], [0.0, 1e-9]]), np.empty((2, 2))
    >>> equilibrate(rows, out, np.empty((2, 2)))
    array([  2, -29], dtype=int16)
    >>> out.tolist()
    [[0.75, -0.25], [0.0, 0.536870912]]
    """
    largest = row_max_abs(rows, scratch)
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
    """Return the smallest nonzero absolute value of each row; infinity for rows of zeros."""
    magnitudes = np.abs(rows)
    smallest: NDArray[Any] = magnitudes.min(axis=-1, where=magnitudes > 0, initial=np.inf)
    return smallest


def column_max_abs(rows: NDArray[np.floating]) -> NDArray[Any]:
    """Return the largest absolute value of each column; NaN for a column with NaN.

    Parameters
    ----------
    rows : (n, w) ndarray of float
        Contiguous.

    Examples
    --------
    >>> column_max_abs(np.array([[3.0, 0.0], [-4.0, 1e-200]])).tolist()
    [4.0, 1e-200]
    """
    maxima, minima = (_reduce_columns(ufunc, rows) for ufunc in (np.maximum, np.minimum))
    largest: NDArray[Any] = np.maximum(np.abs(maxima), np.abs(minima))
    return largest


def _reduce_columns(ufunc: np.ufunc, rows: NDArray[Any]) -> NDArray[Any]:
    """Reduce each column; short rows are first joined into lines, which NumPy reduces faster."""
    height, width = rows.shape
    rows_per_line = min(height, -(-_MIN_LINE_WIDTH // width))
    joined_rows = height - height % rows_per_line
    lines = rows[:joined_rows].reshape(-1, rows_per_line * width)
    reduced_lines = ufunc.reduce(lines).reshape(rows_per_line, width)
    if joined_rows < height:
        reduced_lines = np.vstack((reduced_lines, ufunc.reduce(rows[joined_rows:])))
    reduced: NDArray[Any] = ufunc.reduce(reduced_lines)
    return reduced
