"""Powers of two that vectors are multiplied with before they are sent, so that nothing overflows.

The result is divided by them in the end. Both are exact, but for numbers that underflow: those of
a vector are then below what its products could show, and those of a result are right to the last
digit that subnormal numbers have. Rows of X may have been divided by powers of two, too, before
they were encoded: both are undone together, since one of them alone may overflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.equilibration import ZEROS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# By the bytes of a number: log2 of what the scale of a product is brought to, and of the most that
# a number of a vector may then be. Sums and coefficients of decoders fit above, and what is lost
# below is less than rounding: float64 reaches from 2**-1074 to 2**1024, float32 to 2**128.
_AIM = {8: 128, 4: 48}
_MOST = {8: 480, 4: 80}
_SMALL, _NEVER = 2.0**-900, -(2**20)  # sums below this are not trusted; the exponent of 0
_LARGEST_POWER = 1022  # whose inverse is a normal number, too
_LENGTH = 64  # log2 of more numbers than a vector has
_SUMMABLE = 2.0 ** (1023 - _LENGTH)  # of numbers below it the sum is finite


class NotFiniteError(ValueError):
    """A number of a vector is NaN or infinite."""


class Scales:
    """What products of a matrix and vectors are measured in.

    Parameters
    ----------
    largest : (r,) array_like of float
        The largest absolute value of an entry in each column of what was encoded, c. Finite.
    arithmetic : dtype
        In which vectors are sent, and multiplied.
    rows : (q,) array_like of int, optional
        Row i of X is ``2**rows[i]`` times that of what was encoded; or more than there are rows.

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
        self._aim, self._most = _AIM[size], _MOST[size]
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
        """Exponents for Z W.

        Parameters
        ----------
        W : (k, r) ndarray of float64
            One vector in each row.
        work : (k, r) ndarray of float64
            Scratch.

        Returns
        -------
        (k,) ndarray of int64
            e, such that ``2**-e w`` is to be sent; 0 for a vector of zeros.

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
        """Exponents for X' V, with V of shape (q, k): ``2**(rows - e) v`` is to be sent."""
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
        """As `_exponents`, where products with powers of rows and weights underflow."""
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
        each = exponents.tolist()
        if max(map(abs, each)) + self._most_of_rows > _LARGEST_POWER:
            return multiplied(values, self.rows[:count, np.newaxis] + exponents, out)
        beside = math.ldexp(1.0, each[0]) if len(each) == 1 else np.ldexp(1.0, exponents)
        with np.errstate(over="ignore", under="ignore"):
            powers: Floats = np.multiply(
                self._powers[:count], beside, out=out if work is None else work
            )
            return np.multiply(values, powers, out=powers if work is None else out)

    def _exponents(
        self, sizes: Floats, weights: Floats | None, above: int
    ) -> tuple[list[int], list[float]]:
        """Exponents of vectors, one in each row, and the sums of their sizes."""
        most, shift = sizes.max(axis=1).tolist(), 0
        if not all(each < _SUMMABLE for each in most):  # nor is NaN
            if not all(map(math.isfinite, most)):
                raise NotFiniteError
            sizes, shift = np.ldexp(sizes, -_LENGTH), _LENGTH
        totals = np.add.reduce(sizes, axis=1) if weights is None else np.dot(sizes, weights)
        sums: list[float] = totals.tolist()
        beside = shift + self._exponent - self._aim
        found = []
        for largest, total in zip(most, sums, strict=True):
            exponent = math.frexp(largest)[1] - self._most
            if total:
                exponent = max(exponent, math.frexp(total)[1] + beside)
            found.append(exponent + above if largest else 0)
        return found, sums


def multiplied(
    values: NDArray[Any], exponents: NDArray[np.integer], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Multiply numbers with powers of two, each of them rounded at most once.

    Parameters
    ----------
    values : ndarray of float
    exponents : ndarray of int
        Of a shape that fits.
    out : ndarray, optional
        Receives the products, infinite where they overflow.

    Returns
    -------
    ndarray
        `out`, or a new array.
    """
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
