"""Scaling by powers of two: of vectors before they are sent, and of rows of X before encoding.

Vectors are scaled so that no product overflows, and the result is divided by the same powers. Both
are exact except for underflow: numbers of a vector that underflow do not change its products, and
numbers of a result are exact to the last digit of subnormal numbers. Rows of X are divided by
powers of two, so that large rows do not drown small ones in a code: a number of a shard is a sum of
L numbers of X, and its rounding is relative to the largest of them. Both scalings are undone
together, because one of them alone may overflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# By the bytes of a number: log2 of the scale of a product after scaling, and of the largest number
# of a vector. Sums and coefficients of decoders have room above, and what is lost below is less
# than rounding: float64 reaches from 2**-1074 to 2**1024, float32 to 2**128. A vector that is as
# near as _NEAR is sent as it is.
_AIM = {8: 128, 4: 48}
_MOST = {8: 480, 4: 80}
_NEAR = {8: 256, 4: 0}
_SMALL, _NEVER = 2.0**-900, -(2**20)  # sums below this are not trusted; the exponent of 0
_LARGEST_POWER = 1022  # whose inverse is a normal number, too
_LENGTH = 64  # log2 of more numbers than a vector has
_SUMMABLE = 2.0 ** (1023 - _LENGTH)  # of numbers below it the sum is finite
ZEROS = -4096  # the exponent of a row of zeros: what else is decoded there is multiplied away
_FOLDED = 16, 200  # rows of so many columns are folded: NumPy reduces short rows slowly
_WIDE = 512  # columns, from which on it reduces columns fast


class NotFiniteError(ValueError):
    """A number of a vector is NaN or infinite."""


class Scales:
    """The scales of products of a matrix and vectors.

    Parameters
    ----------
    largest : (r,) array_like of float
        The largest absolute value of an entry in each column of what was encoded, c. Finite.
    arithmetic : dtype
        Dtype in which vectors are sent and multiplied.
    rows : (q,) array_like of int, optional
        Row i of X is ``2**rows[i]`` times that of the encoded matrix; may be longer.

    Attributes
    ----------
    rows : (q,) ndarray of int64, or None
    relative : (q, 1) ndarray of float64, or None
        ``2**(rows - max(rows))``.
    used : (r,) ndarray of float64, or None
        0 for columns of zeros and 1 for the others; None if no column is zeros.

    Notes
    -----
    The scale of ``Z w``, Z being what was encoded, is ``s = sum_j c_j |w_j|``, that of ``Z' v`` is
    ``s = max_j c_j sum_i |v_i|``: no entry of the product is larger.

    Examples
    --------
    >>> scales = Scales([1.0, 2.0], np.float32)
    >>> w = np.array([[1e39, -1e39], [0.0, 1e-46], [0.0, 0.0]])
    >>> exponents = scales.of_product(w, np.empty(w.shape))
    >>> scaled = multiplied(w, -exponents[:, np.newaxis], np.empty(w.shape, np.float32))
    >>> exponents.tolist(), np.frexp(np.abs(scaled) @ [1.0, 2.0])[1].tolist()
    ([84, -199, 0], [48, 48, 0])
    """

    rows: Ints | None = None
    relative: Floats | None = None
    used: Floats | None = None

    def __init__(
        self,
        largest: ArrayLike,
        arithmetic: np.dtype[Any] | type[np.floating],
        rows: ArrayLike | None = None,
    ) -> None:
        sizes = np.asarray(largest, dtype=np.float64)
        if not sizes.all():
            self.used = (sizes > 0).astype(np.float64)
        self._exponent = int(np.frexp(sizes.max())[1])
        self._weights: Floats = np.ldexp(sizes, -self._exponent)
        self._places = np.where(sizes > 0, np.frexp(sizes)[1], _NEVER).astype(np.int64)
        size = np.dtype(arithmetic).itemsize
        self._aim, self._most, self._near = _AIM[size], _MOST[size], _NEAR[size]
        self._above = 0
        found = np.zeros(1, np.int64) if rows is None else np.asarray(rows, dtype=np.int64)
        if found.any():
            self.rows = found
            used = found != ZEROS
            self._above = int(found.max(where=used, initial=-_LARGEST_POWER)) if used.any() else 0
            self.relative = np.ldexp(1.0, found - self._above)[:, np.newaxis]
            self._most_of_rows = int(np.abs(found).max(where=used, initial=0))
            self._far_apart = self._above - int(found.min(where=used, initial=self._above)) > 900
            with np.errstate(over="ignore", under="ignore"):
                self._powers = np.ldexp(1.0, found)[:, np.newaxis]

    def of_product(self, W: Floats, work: Floats) -> Ints:
        """Return exponents for Z W.

        Parameters
        ----------
        W : (k, r) ndarray of float64
            One vector in each row.
        work : (k, r) ndarray of float64
            Scratch.

        Returns
        -------
        (k,) ndarray of int64
            e, so that ``2**-e w`` is sent; 0 for a vector of zeros, or if w needs no scaling.

        Raises
        ------
        NotFiniteError
            There is NaN or infinity in W.
        """
        found, sums = self._exponents(np.abs(W, out=work), self._weights, 0)
        for k, total in enumerate(sums):
            if total < _SMALL:
                found[k] = self._exponent_of_small(W[k], np.zeros(1, np.int64), self._places)
        return np.array(found, dtype=np.int64)

    def of_adjoint(self, V: Floats, work: Floats) -> Ints:
        """Return exponents for X' V, with V of shape (q, k): ``2**(rows - e) v`` is sent."""
        sizes = np.abs(V, out=work)
        if self.relative is not None:
            np.multiply(sizes, self.relative[: len(V)], out=sizes)
        found, sums = self._exponents(sizes.T, None, self._above)
        if self.rows is not None:
            rows, weights = self.rows[: len(V)], np.full(1, self._exponent)
            for k, total in enumerate(sums):
                if total < _SMALL or self._far_apart:
                    found[k] = self._exponent_of_small(V[:, k], rows, weights)
        return np.array(found, dtype=np.int64)

    def _exponent_of_small(self, numbers: Floats, rows: Ints, weights: Ints) -> int:
        """See `_exponents`; for products with powers of rows and weights that underflow."""
        digits, places = np.frexp(numbers)
        places = np.where((digits != 0) & (rows != ZEROS), places + rows, _NEVER)
        largest, weighed = int(places.max()), places + weights
        if largest == _NEVER:
            return 0
        most = int(weighed.max())
        total = float(np.ldexp(np.abs(digits), np.maximum(weighed - most, -_LARGEST_POWER)).sum())
        return max(largest - self._most, most + math.frexp(total)[1] - self._aim)

    def with_rows(
        self,
        values: Floats,
        exponents: Ints,
        out: Floats | None = None,
        work: Floats | None = None,
    ) -> Floats:
        """Multiply numbers of vectors as long as a column of X with 2 to both powers at once.

        Parameters
        ----------
        values : (n, k) ndarray of float64
        exponents : (k,) ndarray of int64
        out : (n, k) ndarray of float64, optional
        work : (n, k) ndarray of float64, optional
            Scratch. Needed where `out` is `values`.

        Returns
        -------
        (n, k) ndarray of float64
        """
        if self.rows is None:
            return multiplied(values, exponents, out)
        count = len(values)
        row_exponents = exponents.tolist()
        if max(map(abs, row_exponents)) + self._most_of_rows > _LARGEST_POWER:
            return multiplied(values, self.rows[:count, np.newaxis] + exponents, out)
        row_factors = (
            math.ldexp(1.0, row_exponents[0])
            if len(row_exponents) == 1
            else np.ldexp(1.0, exponents)
        )
        with np.errstate(over="ignore", under="ignore"):
            powers: Floats = np.multiply(
                self._powers[:count], row_factors, out=out if work is None else work
            )
            return np.multiply(values, powers, out=powers if work is None else out)

    def _exponents(
        self, sizes: Floats, weights: Floats | None, above: int
    ) -> tuple[list[int], list[float]]:
        """Exponents of vectors, one in each row, and the sums of their sizes."""
        most, shift = sizes.max(axis=1).tolist(), 0
        if not all(size < _SUMMABLE for size in most):  # nor is NaN
            if not all(map(math.isfinite, most)):
                raise NotFiniteError
            sizes, shift = np.ldexp(sizes, -_LENGTH), _LENGTH
        totals = np.add.reduce(sizes, axis=1) if weights is None else np.dot(sizes, weights)
        sums: list[float] = totals.tolist()
        total_shift = shift + self._exponent - self._aim
        found = []
        near = self._near if self.rows is None else 0
        for largest, total in zip(most, sums, strict=True):
            exponent = math.frexp(largest)[1] - self._most
            if total:
                of_sum = math.frexp(total)[1] + total_shift
                exponent = max(exponent, of_sum)
                if exponent <= near and abs(of_sum) <= near:
                    exponent = 0
            found.append(exponent + above if largest else 0)
        return found, sums


def multiplied(
    values: NDArray[Any], exponents: NDArray[np.integer], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Multiply numbers by powers of two; each is rounded at most once.

    Parameters
    ----------
    values : ndarray of float
    exponents : ndarray of int
        Broadcast to the shape of the values.
    out : ndarray, optional
        Receives the products, which are infinite if they overflow.

    Returns
    -------
    ndarray
        `out`, or a new array.
    """
    if out is values and not exponents.any():
        return values
    with np.errstate(over="ignore", under="ignore"):
        if exponents.size == 1 and abs(exponents.item()) <= _LARGEST_POWER:
            power = np.float64(math.ldexp(1.0, exponents.item()))
            found: NDArray[Any] = np.multiply(values, power, out=out, casting="same_kind")
        elif np.abs(exponents).max() <= _LARGEST_POWER:
            powers = np.ldexp(1.0, exponents)
            found = np.multiply(values, powers, out=out, casting="same_kind")
        else:
            found = np.ldexp(values, exponents, out=out, casting="same_kind")
    return found


def largest_of_rows(rows: NDArray[np.floating], work: NDArray[np.floating]) -> NDArray[Any]:
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
    >>> exponents_of(np.array([1.0, 0.75, 3.0, 0.0, 1e-6]))
    array([    1,     0,     2, -4096,   -19], dtype=int16)
    >>> exponents_of(np.float32([1e30]), least=np.float32([1e-30]))
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
    """Return the smallest absolute value of each row that is not 0; infinite for zero rows."""
    sizes = np.abs(rows)
    least: NDArray[Any] = sizes.min(axis=-1, where=sizes > 0, initial=np.inf)
    return least


def largest_of_columns(rows: NDArray[np.floating]) -> NDArray[Any]:
    """Return the largest absolute value of each column; NaN if a column has one.

    Parameters
    ----------
    rows : (n, w) ndarray of float
        Contiguous.

    Examples
    --------
    >>> largest_of_columns(np.array([[3.0, 0.0], [-4.0, 1e-200]])).tolist()
    [4.0, 1e-200]
    """
    most, least = (_over_columns(extreme, rows) for extreme in (np.maximum, np.minimum))
    largest: NDArray[Any] = np.maximum(np.abs(most), np.abs(least))
    return largest


def _over_columns(extreme: np.ufunc, rows: NDArray[Any]) -> NDArray[Any]:
    """Return an extreme of each column; several short rows are reduced together."""
    height, width = rows.shape
    rows_per_line = min(height, -(-_WIDE // width))
    whole = height - height % rows_per_line
    found = extreme.reduce(rows[:whole].reshape(-1, rows_per_line * width)).reshape(
        rows_per_line, width
    )
    if whole < height:
        found = np.vstack((found, extreme.reduce(rows[whole:])))
    reduced: NDArray[Any] = extreme.reduce(found)
    return reduced
