"""Vectors before they are sent, and results: copied, checked, scaled and measured at once.

Vectors are divided by powers of two so that no product overflows, and the result is multiplied by
the same powers. Both are exact except for underflow: numbers of a vector that underflow do not
change its products, and numbers of a result are exact to the last digit of subnormal numbers. Where
rows of X were divided by powers of two before encoding (`scaling`), both scalings are undone
together, because one of them alone may overflow.

Errors of products are relative to the size of the terms, and users see them relative to the result:
the quotient of both sizes says how many digits the result has lost (`cancellation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.scaling import ZEROS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# By the bytes of a number: log2 of the scale of a product after scaling, and of the largest number
# of a vector. Sums and coefficients of decoders have room above, and what is lost below is less
# than rounding: float64 reaches from 2**-1074 to 2**1024, float32 to 2**128. A vector that is as
# near as _UNSCALED_LOG2 is sent as it is.
_TARGET_LOG2 = {8: 128, 4: 48}
_MAX_LOG2 = {8: 480, 4: 80}
_UNSCALED_LOG2 = {8: 256, 4: 0}
_EXPONENT_OF_ZERO = -(2**20)
_SMALL = 2.0**-900  # sums below this are not trusted
_LARGE = 2.0**900  # nor are sums above this
_LARGEST_POWER = 1022  # whose inverse is a normal number, too
_FAR_APART = 900  # exponents of rows, whose quotients as powers would be subnormal numbers
_SQUARABLE = 400  # log2 of lengths that are roots of sums of squares, and of their reciprocals
_CACHED_COUNT = 1 << 15  # numbers that stay in the cache while they are copied, weighed and summed
_SINGLE_THREAD_COUNT = 1 << 13  # numbers whose dot product starts no threads of OpenBLAS


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
    is_rounded : bool
        Whether X was rounded, so that columns of zeros may have been small numbers.

    Attributes
    ----------
    rows : (q,) ndarray of int64, or None
    most_of_rows : int
        The largest exponent of a row.
    lost : float
        Largest error of an entry of X w from numbers of w that have underflowed.

    Notes
    -----
    The scale of ``Z w``, Z being what was encoded, is ``s = sum_j c_j |w_j|``, that of ``Z' v`` is
    ``s = max_j c_j sum_i |v_i|``: no entry of the product is larger. Nearly all vectors need no
    scaling, and the length of their terms shows it: it is at most s, and at least s over the root
    of their number.

    Examples
    --------
    >>> scales = Scales([1.0, 2.0], np.float32)
    >>> w, sent = np.array([[1e39, 0.0, 0.0], [-1e39, 1e-46, 0.0]]), np.empty((3, 2), np.float32)
    >>> exponents, terms = scales.take(w, sent)
    >>> exponents, np.frexp(np.abs(sent) @ [1.0, 2.0])[1].tolist()
    ([84, -199, 0], [48, 48, 0])
    >>> Scales([4.0, 1.0], np.float64).take(np.array([[3.0], [-5.0]]), np.empty((1, 2)))
    ([0], [13.0])
    """

    rows: Ints | None = None

    def __init__(
        self,
        largest: ArrayLike,
        arithmetic: np.dtype[Any] | type[np.floating],
        rows: ArrayLike | None = None,
        is_rounded: bool = False,
    ) -> None:
        self._largest: Floats = np.asarray(largest, dtype=np.float64)
        self._most_of_columns = float(self._largest.max(initial=0.0))
        self._exponent = math.frexp(self._most_of_columns)[1]
        # Weights are these sizes without a power that would make sums overflow or vanish.
        self._power = self._exponent if abs(self._exponent) > 200 else 0
        self._weights = np.ldexp(self._largest, -self._power) if self._power else self._largest
        self._drops = not is_rounded and not self._largest.all()
        info, size = np.finfo(arithmetic), np.dtype(arithmetic).itemsize
        self._aim, self._most = _TARGET_LOG2[size], _MAX_LOG2[size]
        self._near = _UNSCALED_LOG2[size]
        half = int(info.minexp - info.nmant) - 1  # log2 of half of the smallest number
        self.lost = math.ldexp(float((self._largest * 2.0**-64).sum()), half + 64)
        self.most_of_rows = self._max_row_exponent = 0
        found = np.zeros(1, np.int64) if rows is None else np.asarray(rows, dtype=np.int64)
        if found.any():
            self.rows = found
            used = found[found != ZEROS]
            self.most_of_rows = int(found.max())
            self._max_row_exponent = int(used.max(initial=-_LARGEST_POWER)) if used.size else 0
            self._size_of_rows = int(np.abs(used).max(initial=0))
            self._are_far_apart = (
                self._max_row_exponent - int(used.min(initial=self._max_row_exponent)) > _FAR_APART
            )
            self._relative = np.ldexp(1.0, found - self._max_row_exponent)[:, np.newaxis]

    def take(self, W: NDArray[Any], out: NDArray[Any]) -> tuple[list[int], list[float]]:
        """Copy W as it is sent for Z W, and measure its terms.

        Parameters
        ----------
        W : (r, k) ndarray
            Real numbers.
        out : (k, r) ndarray of float
            Receives ``2**-e w`` for each column w of W.

        Returns
        -------
        exponents : list of int
            e; 0 for a vector of zeros, or if w needs no scaling.
        terms : list of float
            ``norm(c * w)`` of each vector in `out`.

        Raises
        ------
        NotFiniteError
            W has NaN or infinity, as float64.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            lengths, exponents = self._take_unscaled(W, out, self._weights, self._power), []
            if lengths is None:
                exponents = [self._exponent_of(w) for w in W.T]
                for w, row, exponent in zip(W.T, out, exponents, strict=True):
                    for part in _parts(len(row)):
                        numbers = np.asarray(w[part], np.float64)
                        numbers = self._without_unused(numbers, part)
                        scale_by_powers(numbers, np.array(-exponent), row[part])
                lengths = [_length(row, self._weights) for row in out]
        terms = [math.ldexp(length, self._power) for length in lengths]
        return exponents or [0] * len(out), terms

    def take_adjoint(self, V: NDArray[Any], out: Floats) -> tuple[list[int], list[float]]:
        """Copy V as it is coded for X' V, and measure its terms.

        Parameters
        ----------
        V : (q, k) ndarray
            Real numbers.
        out : (q, k) ndarray of float64
            Receives ``2**(rows - e) v`` for each column v of V.

        Returns
        -------
        exponents : list of int
            e, see `take`.
        terms : list of float
            ``max(c) * norm(v)`` of each vector in `out`.

        Raises
        ------
        NotFiniteError
            V has NaN or infinity, as float64.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exponents: list[int] = []
            has_rows = self.rows is not None  # which the copy is multiplied by
            lengths = None if has_rows else self._take_unscaled(V, out.T, None, self._exponent)
            if lengths is None:
                exponents = [self._exponent_of_adjoint(v) for v in V.T]
                np.copyto(out, V, casting="unsafe")
                self.scale_rows(out, [-exponent for exponent in exponents], out)
                lengths = [_length(v, None) for v in out.T]
        terms = [self._most_of_columns * length for length in lengths]
        return exponents or [0] * len(terms), terms

    def _take_unscaled(
        self, W: NDArray[Any], out: NDArray[Any], weights: Floats | None, power: int
    ) -> list[float] | None:
        """Copy vectors, (n, k) to (k, n), and return the lengths of their terms over 2**power.

        Returns None if a vector must be scaled, or may have to be.
        """
        columns, length = out.shape
        above = self._near + self._aim - power  # log2 of the largest sum
        low = max(above - 2 * self._near, -_SQUARABLE)
        high = min(above - length.bit_length() // 2 - 1, _SQUARABLE)
        if low >= high:
            return None
        squares, parts = [0.0] * columns, _parts(length, columns)
        work = np.empty(parts[0].stop)
        for part in parts:
            copied = out[:, part]
            np.copyto(copied, W[part].T, casting="unsafe")
            for column, numbers in enumerate(copied):
                if weights is not None:
                    numbers = np.multiply(numbers, weights[part], out=work[: len(numbers)])
                squares[column] += _square(numbers)
        lengths = list(map(math.sqrt, squares))
        least, most = math.ldexp(1.0, low), math.ldexp(1.0, high)
        return lengths if all(least <= each <= most for each in lengths) else None

    def _without_unused(self, numbers: Floats, part: slice) -> Floats:
        """Replace numbers that meet only zeros, and must not make others underflow, by 0."""
        return np.where(self._largest[part] > 0, numbers, 0.0) if self._drops else numbers

    def _exponent_of(self, w: NDArray[Any]) -> int:
        """Return the exponent of a vector for Z w."""
        largest = used = total = 0.0
        for part in _parts(len(w)):
            sizes = np.abs(np.asarray(w[part], np.float64))
            largest = _larger(largest, sizes)
            used = _larger(used, self._without_unused(sizes, part))
            total += float(np.dot(sizes, self._weights[part]))
        if not math.isfinite(largest):
            raise NotFiniteError
        if _SMALL <= total <= _LARGE:
            return self._nearest(used, total, self._power, self._near)
        numbers = self._without_unused(np.asarray(w, np.float64), slice(None))
        places = np.where(self._largest > 0, np.frexp(self._largest)[1], _EXPONENT_OF_ZERO)
        return self._exact_exponent(numbers, np.zeros(1, np.int64), places)

    def _exponent_of_adjoint(self, v: NDArray[Any]) -> int:
        """Return the exponent of a vector for X' v."""
        largest = relative = total = 0.0
        for part in _parts(len(v)):
            sizes = np.abs(np.asarray(v[part], np.float64))
            largest = _larger(largest, sizes)
            if self.rows is not None:
                sizes *= self._relative[part, 0]
            relative = _larger(relative, sizes)
            total += float(np.add.reduce(sizes))
        if not math.isfinite(largest):
            raise NotFiniteError
        far = self.rows is not None and (self._are_far_apart or total < _SMALL)
        if total <= _LARGE and not far:
            near = self._near if self.rows is None else 0
            exponent = self._nearest(relative, total, self._exponent, near)
            return exponent + self._max_row_exponent * bool(relative)
        rows = np.zeros(1, np.int64) if self.rows is None else self.rows[: len(v)]
        return self._exact_exponent(np.asarray(v, np.float64), rows, np.array([self._exponent]))

    def _nearest(self, largest: float, total: float, power: int, near: int) -> int:
        """Return the exponent of a vector from its largest number and the sum of its terms."""
        exponent = math.frexp(largest)[1] - self._most
        if total:
            of_sum = math.frexp(total)[1] + power - self._aim
            exponent = max(exponent, of_sum)
            if exponent <= near and abs(of_sum) <= near:
                return 0
        return exponent if largest else 0

    def _exact_exponent(self, numbers: Floats, rows: Ints, weights: Ints) -> int:
        """Return the exponent if products with powers of rows and weights are out of range."""
        digits, places = np.frexp(numbers)
        places = np.where((digits != 0) & (rows != ZEROS), places + rows, _EXPONENT_OF_ZERO)
        weighed = places + weights
        largest, most = int(places.max()), int(weighed.max())
        if largest <= _EXPONENT_OF_ZERO:
            return 0
        total = float(np.ldexp(np.abs(digits), np.maximum(weighed - most, -_LARGEST_POWER)).sum())
        return max(largest - self._most, most + math.frexp(total)[1] - self._aim)

    def scale_rows(
        self, values: Floats, exponents: Sequence[int], out: Floats | None = None
    ) -> Floats:
        """Multiply numbers of vectors as long as a column of X with 2 to both powers at once.

        Parameters
        ----------
        values : (n, k) ndarray of float64
        exponents : (k,) sequence of int
        out : (n, k) ndarray of float64, optional
            May be `values`.

        Returns
        -------
        (n, k) ndarray of float64
        """
        powers = np.array(exponents)
        if self.rows is None:
            return scale_by_powers(values, powers, out)
        rows = self.rows[: len(values), np.newaxis]
        if self._are_far_apart or max(map(abs, exponents)) + self._size_of_rows > _LARGEST_POWER:
            return scale_by_powers(values, rows + powers, out)
        found = np.empty_like(values) if out is None else out
        factors = np.ldexp(1.0, powers + self._max_row_exponent)
        with np.errstate(over="ignore", under="ignore"):
            for part in _parts(len(values), len(exponents)):
                np.multiply(values[part], self._relative[part] * factors, out=found[part])
        return found


def scale_by_powers(
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


def max_abs_of_columns(columns: Floats) -> list[float]:
    """Return the largest absolute value in each column; NaN if a column has one.

    Examples
    --------
    >>> max_abs_of_columns(np.array([[1.0, -3.0], [2.0, 0.5]]))
    [2.0, 3.0]
    """
    if columns.shape[1] != 1:
        return np.maximum(columns.max(axis=0), -columns.min(axis=0)).tolist()  # type: ignore[no-any-return]
    found: list[float] = []
    for part in _parts(len(columns)):
        numbers = columns[part, 0]  # which NumPy reduces faster than a matrix of one column
        found += np.maximum.reduce(numbers).item(), -np.minimum.reduce(numbers).item()
    return [max(found) if all(each == each for each in found) else math.nan]


def cancellation(
    terms: Sequence[float], exponents: Sequence[int], largest: Sequence[float]
) -> float | None:
    """Return the size of the terms over the size of the result, of the worst column.

    Parameters
    ----------
    terms : (k,) sequence of float
        The size of the terms of each column of the result, before powers of two are undone.
    exponents : (k,) sequence of int
        The exponents of these powers.
    largest : (k,) sequence of float
        The largest absolute value in each column of the result.

    Returns
    -------
    float or None
        None if no column has both terms and a result other than 0.

    Examples
    --------
    >>> cancellation([3.0, 2.0, 0.0], [1, 0, 0], [1.0, 0.5, 0.0])
    6.0
    >>> print(cancellation([3.0], [0], [0.0]))
    None
    """
    found = []
    for size, exponent, most in zip(terms, exponents, largest, strict=True):
        if size and most and math.isfinite(most):
            digits, place = math.frexp(most)
            try:
                found.append(math.ldexp(size / digits, exponent - place))
            except OverflowError:
                found.append(math.inf)
    return max(found, default=None)


def _parts(length: int, columns: int = 1) -> list[slice]:
    """Return parts of vectors that stay in the cache; of many vectors at least a few numbers."""
    step = max(_CACHED_COUNT // columns, 1024)
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def _square(numbers: NDArray[Any]) -> float:
    """Return the sum of squares; OpenBLAS's threads wait for each other on a busy computer."""
    total = 0.0
    for first in range(0, len(numbers), _SINGLE_THREAD_COUNT):
        part = numbers[first : first + _SINGLE_THREAD_COUNT]
        total += float(np.dot(part, part))
    return total


def _length(vector: NDArray[Any], weights: Floats | None) -> float:
    """Return the length of a vector that has been weighted."""
    square = 0.0
    for part in _parts(len(vector)):
        numbers = np.asarray(vector[part], np.float64)
        square += _square(numbers if weights is None else numbers * weights[part])
    if 2.0 ** (-2 * _SQUARABLE) < square < 2.0 ** (2 * _SQUARABLE):
        return math.sqrt(square)
    numbers = np.asarray(vector, np.float64) * (1.0 if weights is None else weights)
    most = float(np.abs(numbers).max(initial=0.0))
    return most * math.sqrt(_square(numbers / (most or 1.0)))


def _larger(largest: float, sizes: Floats) -> float:
    """Return the larger one of a number and the largest size; NaN if there is one."""
    return float(np.maximum(largest, np.maximum.reduce(sizes)))
