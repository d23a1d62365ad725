"""Rows divided by powers of two, so that large ones do not drown small ones in a code.

A number of a shard is a sum of L numbers of X, and its rounding is relative to the largest of
them. Rows whose largest entries are in [1/2, 1) lose nothing to each other; powers of two are
undone exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FOLDED = 16, 200  # rows of so many columns are folded: NumPy reduces short rows slowly
_WIDE = 512  # columns, from which on it reduces columns fast
_LEAST = 2.0**-40  # from here to its reciprocal squares can be summed in float32,
_LEAST_SQUARED = 2.0**-480  # and in float64


def largest_of_rows(rows: NDArray[np.floating], work: NDArray[np.floating]) -> NDArray[Any]:
    """The largest absolute value of each row; NaN where there is one.

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
    >>> largest_of_rows(np.array([[1.0, -3.0], [0.0, 0.0]]), np.empty((2, 2)))
    array([3., 0.])
    """
    largest: NDArray[Any]
    sizes = np.abs(rows, out=work)
    few, many = _FOLDED
    width = sizes.shape[-1]
    if width >= many:
        largest = sizes.max(axis=-1)
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


def exponents_of(
    largest: NDArray[np.floating], least: NDArray[np.floating] | None = None
) -> NDArray[np.int16]:
    """What rows are to be divided by, as exponents of 2.

    Parameters
    ----------
    largest : (...) ndarray of float
        The largest absolute values of rows, in the dtype in which they are kept.
    least : (...) ndarray of float, optional
        The smallest ones that are not 0, where that may matter: a row is not divided by more
        than leaves these normal numbers of the dtype, or at all if they are none.

    Returns
    -------
    (...) ndarray of int16
        Such that the largest absolute value of each row comes to [1/2, 1); 0 where it is 0.

    Examples
    --------
    >>> exponents_of(np.array([1.0, 0.75, 3.0, 0.0, 1e-6]))
    array([  1,   0,   2,   0, -19], dtype=int16)
    >>> exponents_of(np.float32([1e30]), least=np.float32([1e-30]))
    array([26], dtype=int16)
    """
    exponents = _frexp(largest)
    if least is not None:
        normal = _frexp(least) - int(np.finfo(largest.dtype).minexp) - 1
        exponents = np.minimum(exponents, np.maximum(normal, 0))
    short: NDArray[np.int16] = exponents.astype(np.int16)
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
        Of the dtype of the rows.

    Returns
    -------
    bool
        Whether that was exact: no entry became too small for its dtype.

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
    """Exponents as of `numpy.frexp`, which takes long: of normal numbers from their bits."""
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
    """Divide rows by the powers of two that bring them to one size.

    Parameters
    ----------
    rows, out, work : (..., w) ndarray of float
        Of one dtype; `work` is scratch.

    Returns
    -------
    (...) ndarray of int16, or None
        The exponents; None where some row is not finite, and `out` is undefined.

    Examples
    --------
    >>> rows, out = np.array([[3.0, -1.0], [0.0, 1e-9]]), np.empty((2, 2))
    >>> equilibrate(rows, out, np.empty((2, 2)))
    array([  2, -29], dtype=int16)
    >>> out.tolist()
    [[0.75, -0.25], [0.0, 0.536870912]]
    """
    largest = largest_of_rows(rows, work)
    if not np.isfinite(largest).all():
        return None
    exponents = exponents_of(largest)
    if not divide_rows(rows, exponents, out):
        restored = np.ldexp(out, exponents[..., np.newaxis].astype(np.int32))
        lossy = (restored != rows).any(axis=-1)
        exponents[lossy] = exponents_of(largest[lossy], least_of_rows(rows[lossy]))
        divide_rows(rows, exponents, out)
    return exponents


def least_of_rows(rows: NDArray[np.floating]) -> NDArray[Any]:
    """The smallest absolute value that is not 0 in each row; infinite where all are 0."""
    sizes = np.abs(rows)
    least: NDArray[Any] = sizes.min(axis=-1, where=sizes > 0, initial=np.inf)
    return least


class ColumnSizes:
    """The largest absolute value and the mean square of each column, over blocks of rows.

    Blocks have to come in one order for the same digits.

    Parameters
    ----------
    columns : int

    Attributes
    ----------
    largest : (w,) ndarray of float64

    Examples
    --------
    >>> sizes = ColumnSizes(2)
    >>> sizes.add(np.array([[3.0, 0.0], [-4.0, 1e-200]]))
    4.0
    >>> sizes.largest.tolist(), sizes.typical(2).round(3).tolist()
    ([4.0, 1e-200], [3.536, 0.0])
    """

    def __init__(self, columns: int) -> None:
        self.largest = np.zeros(columns)
        self._squares = np.zeros(columns)

    def add(self, rows: NDArray[np.floating]) -> float:
        """Add a block of rows; returns its largest absolute value, NaN if it has one.

        Parameters
        ----------
        rows : (n, w) ndarray of float
            Contiguous.
        """
        most, least = (
            _over_columns(each.reduce, each.reduce, rows) for each in (np.maximum, np.minimum)
        )
        sizes = np.maximum(np.abs(most), np.abs(least))
        np.maximum(self.largest, sizes, out=self.largest)
        largest = float(sizes.max())
        if not np.isfinite(largest):
            return largest
        with np.errstate(over="ignore"):
            squares = _over_columns(_sum_of_squares, np.add.reduce, rows).astype(np.float64)
        if rows.dtype != np.float64 and not _LEAST <= sizes.min() <= largest <= 1 / _LEAST:
            odd = (sizes > 0) & ((sizes < _LEAST) | (sizes > 1 / _LEAST))
            squares[odd] = _sum_of_squares(rows[:, odd].astype(np.float64))
        self._squares += squares
        return largest

    def typical(self, rows: int) -> NDArray[np.float64]:
        """Root mean squares over so many rows; the largest values where squares are too large."""
        means = np.minimum(np.sqrt(self._squares / rows), self.largest)
        usual = (self.largest > _LEAST_SQUARED) & (self.largest < 1 / _LEAST_SQUARED)
        return np.where(usual, means, self.largest)


def _sum_of_squares(rows: NDArray[Any]) -> NDArray[Any]:
    squares: NDArray[Any] = np.einsum("ij,ij->j", rows, rows)
    return squares


def _over_columns(
    of_rows: Callable[[NDArray[Any]], NDArray[Any]],
    of_results: Callable[[NDArray[Any]], NDArray[Any]],
    rows: NDArray[Any],
) -> NDArray[Any]:
    """A sum or an extreme of each column, of several rows side by side where they are short."""
    height, width = rows.shape
    beside = min(height, -(-_WIDE // width))
    whole = height - height % beside
    found = of_rows(rows[:whole].reshape(-1, beside * width)).reshape(beside, width)
    if whole < height:
        found = np.vstack((found, of_rows(rows[whole:])))
    return of_results(found)
