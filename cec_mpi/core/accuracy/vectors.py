"""Preparation of input vectors (copy, check, scaling), and rescaling of results.

Vectors are divided by powers of two so that no product overflows, and the result is multiplied by
the same powers. Both are exact except for underflow: entries of a vector that underflow do not
change its products, and entries of a result are exact to the last bit of subnormal numbers. If rows
of X were divided by powers of two before encoding (`scaling`), both scalings are undone in one
multiplication, because one of them alone may overflow.

Error bounds of products are relative to the size of their terms; users need them relative to the
result. The ratio of the two sizes measures the digits lost to `cancellation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.scaling import ZERO_ROW

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# By item size: log2 of the scale of a product after scaling, and of the largest entry of a vector.
# They leave headroom for sums and decoder coefficients, and what underflows is smaller than the
# rounding error: float64 reaches from 2**-1074 to 2**1024, float32 to 2**128. A vector whose
# exponent is at most _UNSCALED_LOG2 is sent unscaled.
_TARGET_LOG2 = {8: 128, 4: 48}
_MAX_LOG2 = {8: 480, 4: 80}
_UNSCALED_LOG2 = {8: 256, 4: 0}
_EXPONENT_OF_ZERO = -(2**20)
_MIN_SUM, _MAX_SUM = 2.0**-900, 2.0**900  # outside, sums may have underflowed or overflowed
_MAX_POWER = 1022  # 2**-1022 is still a normal number
_MAX_EXPONENT_RANGE = 900  # of rows; beyond, ratios of their powers would be subnormal
_MAX_SQUARABLE_LOG2 = 400  # norms up to 2**400, and down to its inverse, have squares in range
_CACHE_BLOCK = 1 << 15  # entries that stay in the cache through copy, weighting and sum
_SINGLE_THREAD_BLOCK = 1 << 13  # entries whose dot product starts no OpenBLAS threads


class NotFiniteError(ValueError):
    """An entry of a vector is NaN or infinite."""


class Scales:
    """The scales of products of a matrix and vectors.

    Parameters
    ----------
    largest : (r,) array_like of float
        The largest absolute value in each column of the encoded matrix Z, c. Finite.
    arithmetic : dtype
        Dtype in which vectors are sent and multiplied.
    row_exponents : (q,) array_like of int, optional
        Row i of X is ``2**row_exponents[i]`` times row i of Z. May be longer than q.
    is_rounded : bool
        Whether X was rounded for encoding, so that columns of zeros may have been small numbers.

    Attributes
    ----------
    row_exponents : (q,) ndarray of int64, or None
    max_row_exponent : int
    underflow_error : float
        Bound of the error of an entry of X w from entries of w that underflow.

    Notes
    -----
    The scale of ``Z w`` is ``s = sum_j c_j |w_j|``, that of ``Z' v`` is
    ``s = max_j c_j sum_i |v_i|``: no entry of the product is larger. Nearly all vectors need no
    scaling. The 2-norm of the n terms shows it, because it is between ``s / sqrt(n)`` and s.

    Examples
    --------
    >>> scales = Scales([1.0, 2.0], np.float32)
    >>> w, sent = np.array([[1e39, 0.0, 0.0], [-1e39, 1e-46, 0.0]]), np.empty((3, 2), np.float32)
    >>> exponents, terms = scales.prepare(w, sent)
    >>> exponents, np.frexp(np.abs(sent) @ [1.0, 2.0])[1].tolist()
    ([84, -199, 0], [48, 48, 0])
    >>> Scales([4.0, 1.0], np.float64).prepare(np.array([[3.0], [-5.0]]), np.empty((1, 2)))
    ([0], [13.0])
    """

    row_exponents: Ints | None = None

    def __init__(
        self,
        largest: ArrayLike,
        arithmetic: np.dtype[Any] | type[np.floating],
        row_exponents: ArrayLike | None = None,
        is_rounded: bool = False,
    ) -> None:
        self._largest: Floats = np.asarray(largest, dtype=np.float64)
        self._max_column = float(self._largest.max(initial=0.0))
        self._exponent = math.frexp(self._max_column)[1]
        # A common power is taken out of the weights if their sums could overflow or underflow.
        self._power = self._exponent if abs(self._exponent) > 200 else 0
        self._weights = np.ldexp(self._largest, -self._power) if self._power else self._largest
        self._has_unused_columns = not is_rounded and not self._largest.all()
        info, size = np.finfo(arithmetic), np.dtype(arithmetic).itemsize
        self._target, self._max_exponent = _TARGET_LOG2[size], _MAX_LOG2[size]
        self._unscaled_exponent = _UNSCALED_LOG2[size]
        half = int(info.minexp - info.nmant) - 1  # log2 of half the smallest subnormal number
        self.underflow_error = math.ldexp(float((self._largest * 2.0**-64).sum()), half + 64)
        self.max_row_exponent = self._reference_exponent = 0
        exponents = np.asarray(0 if row_exponents is None else row_exponents, dtype=np.int64)
        if exponents.any():
            self.row_exponents = exponents
            used = exponents[exponents != ZERO_ROW]
            self.max_row_exponent = int(exponents.max())
            self._reference_exponent = int(used.max(initial=-_MAX_POWER)) if used.size else 0
            self._max_abs_row_exponent = int(np.abs(used).max(initial=0))
            smallest = int(used.min(initial=self._reference_exponent))
            self._has_wide_range = self._reference_exponent - smallest > _MAX_EXPONENT_RANGE
            self._relative = np.ldexp(1.0, exponents - self._reference_exponent)[:, np.newaxis]

    def prepare(self, W: NDArray[Any], out: NDArray[Any]) -> tuple[list[int], list[float]]:
        """Copy W, scaled for Z W, and return the exponents and the norms of its terms.

        Parameters
        ----------
        W : (r, k) ndarray
            Real numbers.
        out : (k, r) ndarray of float
            Receives ``2**-e w`` for each column w of W.

        Returns
        -------
        exponents : list of int
            e of each vector; 0 if w is zero or needs no scaling.
        terms : list of float
            ``norm(c * w)`` of each vector in `out`.

        Raises
        ------
        NotFiniteError
            W has an entry that is NaN or infinite as float64.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            norms, exponents = self._copy_unscaled(W, out, self._weights, self._power), []
            if norms is None:
                exponents = [self._exponent_of(w) for w in W.T]
                for w, row, exponent in zip(W.T, out, exponents, strict=True):
                    for block in _blocks(len(row)):
                        entries = np.asarray(w[block], np.float64)
                        entries = self._zero_unused(entries, block)
                        scale_by_powers(entries, np.array(-exponent), row[block])
                norms = [_norm(row, self._weights) for row in out]
        terms = [math.ldexp(norm, self._power) for norm in norms]
        return exponents or [0] * len(out), terms

    def prepare_adjoint(self, V: NDArray[Any], out: Floats) -> tuple[list[int], list[float]]:
        """Copy V, scaled for X' V, and return the exponents and the norms of its terms.

        Parameters
        ----------
        V : (q, k) ndarray
            Real numbers.
        out : (q, k) ndarray of float64
            Receives ``2**(row_exponents - e) v`` for each column v of V.

        Returns
        -------
        exponents : list of int
            e of each vector, see `prepare`.
        terms : list of float
            ``max(c) * norm(v)`` of each vector in `out`.

        Raises
        ------
        NotFiniteError
            V has an entry that is NaN or infinite as float64.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exponents: list[int] = []
            norms = None
            if self.row_exponents is None:
                norms = self._copy_unscaled(V, out.T, None, self._exponent)
            if norms is None:
                exponents = [self._exponent_of_adjoint(v) for v in V.T]
                np.copyto(out, V, casting="unsafe")
                self.scale_rows(out, [-exponent for exponent in exponents], out)
                norms = [_norm(v, None) for v in out.T]
        terms = [self._max_column * norm for norm in norms]
        return exponents or [0] * len(terms), terms

    def _copy_unscaled(
        self, W: NDArray[Any], out: NDArray[Any], weights: Floats | None, power: int
    ) -> list[float] | None:
        """Copy vectors, (n, k) to (k, n), and return the norms of their terms over 2**power.

        Returns None if a vector may need scaling.
        """
        columns, length = out.shape
        max_sum_log2 = self._unscaled_exponent + self._target - power
        low = max(max_sum_log2 - 2 * self._unscaled_exponent, -_MAX_SQUARABLE_LOG2)
        high = min(max_sum_log2 - length.bit_length() // 2 - 1, _MAX_SQUARABLE_LOG2)
        if low >= high:
            return None
        squares, blocks = [0.0] * columns, _blocks(length, columns)
        work = np.empty(blocks[0].stop)
        for block in blocks:
            copied = out[:, block]
            np.copyto(copied, W[block].T, casting="unsafe")
            for column, entries in enumerate(copied):
                if weights is not None:
                    entries = np.multiply(entries, weights[block], out=work[: len(entries)])
                squares[column] += _sum_of_squares(entries)
        norms = list(map(math.sqrt, squares))
        min_norm, max_norm = math.ldexp(1.0, low), math.ldexp(1.0, high)
        return norms if all(min_norm <= norm <= max_norm for norm in norms) else None

    def _zero_unused(self, entries: Floats, block: slice) -> Floats:
        """Set entries for columns of zeros to 0, so that they do not affect the scaling."""
        if not self._has_unused_columns:
            return entries
        return np.where(self._largest[block] > 0, entries, 0.0)

    def _exponent_of(self, w: NDArray[Any]) -> int:
        """Return the exponent of a vector for Z w."""
        largest = used = total = 0.0
        for block in _blocks(len(w)):
            sizes = np.abs(np.asarray(w[block], np.float64))
            largest = _running_max(largest, sizes)
            used = _running_max(used, self._zero_unused(sizes, block))
            total += float(np.dot(sizes, self._weights[block]))
        if not math.isfinite(largest):
            raise NotFiniteError
        if _MIN_SUM <= total <= _MAX_SUM:
            return self._estimate_exponent(used, total, self._power, self._unscaled_exponent)
        entries = self._zero_unused(np.asarray(w, np.float64), slice(None))
        weights = np.where(self._largest > 0, np.frexp(self._largest)[1], _EXPONENT_OF_ZERO)
        return self._exact_exponent(entries, np.zeros(1, np.int64), weights)

    def _exponent_of_adjoint(self, v: NDArray[Any]) -> int:
        """Return the exponent of a vector for X' v."""
        largest = relative = total = 0.0
        for block in _blocks(len(v)):
            sizes = np.abs(np.asarray(v[block], np.float64))
            largest = _running_max(largest, sizes)
            if self.row_exponents is not None:
                sizes *= self._relative[block, 0]
            relative = _running_max(relative, sizes)
            total += float(np.add.reduce(sizes))
        if not math.isfinite(largest):
            raise NotFiniteError
        is_unsafe = self.row_exponents is not None and (self._has_wide_range or total < _MIN_SUM)
        if total <= _MAX_SUM and not is_unsafe:
            unscaled = self._unscaled_exponent if self.row_exponents is None else 0
            exponent = self._estimate_exponent(relative, total, self._exponent, unscaled)
            return exponent + self._reference_exponent * bool(relative)
        rows = self.row_exponents
        rows = np.zeros(1, np.int64) if rows is None else rows[: len(v)]
        return self._exact_exponent(np.asarray(v, np.float64), rows, np.array([self._exponent]))

    def _estimate_exponent(self, largest: float, total: float, power: int, unscaled: int) -> int:
        """Return the exponent of a vector from its largest entry and the sum of its terms.

        The exponent is 0 if none of the sizes exceeds ``2**unscaled`` times its target.
        """
        exponent = math.frexp(largest)[1] - self._max_exponent
        if total:
            of_sum = math.frexp(total)[1] + power - self._target
            exponent = max(exponent, of_sum)
            if exponent <= unscaled and abs(of_sum) <= unscaled:
                return 0
        return exponent if largest else 0

    def _exact_exponent(self, entries: Floats, rows: Ints, weights: Ints) -> int:
        """Return the exponent from exponents alone, for terms that could leave the range."""
        mantissas, exponents = np.frexp(entries)
        exponents = np.where(
            (mantissas != 0) & (rows != ZERO_ROW), exponents + rows, _EXPONENT_OF_ZERO
        )
        terms = exponents + weights
        largest, largest_term = int(exponents.max()), int(terms.max())
        if largest <= _EXPONENT_OF_ZERO:
            return 0
        shifts = np.maximum(terms - largest_term, -_MAX_POWER)
        total = float(np.ldexp(np.abs(mantissas), shifts).sum())
        return max(largest - self._max_exponent, largest_term + math.frexp(total)[1] - self._target)

    def scale_rows(
        self, values: Floats, exponents: Sequence[int], out: Floats | None = None
    ) -> Floats:
        """Multiply row i of column j by ``2**(row_exponents[i] + exponents[j])``.

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
        if self.row_exponents is None:
            return scale_by_powers(values, powers, out)
        max_power = max(map(abs, exponents)) + self._max_abs_row_exponent
        if self._has_wide_range or max_power > _MAX_POWER:
            rows = self.row_exponents[: len(values), np.newaxis]
            return scale_by_powers(values, rows + powers, out)
        scaled = np.empty_like(values) if out is None else out
        factors = np.ldexp(1.0, powers + self._reference_exponent)
        with np.errstate(over="ignore", under="ignore"):
            for block in _blocks(len(values), len(exponents)):
                np.multiply(values[block], self._relative[block] * factors, out=scaled[block])
        return scaled


def scale_by_powers(
    values: NDArray[Any], exponents: NDArray[np.integer], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Multiply values by powers of two, with at most one rounding each.

    Parameters
    ----------
    values : ndarray of float
    exponents : ndarray of int
        Broadcast to the shape of the values.
    out : ndarray, optional
        Receives the products; those that overflow are infinite.

    Returns
    -------
    ndarray
        `out`, or a new array.
    """
    if out is values and not exponents.any():
        return values
    with np.errstate(over="ignore", under="ignore"):
        if exponents.size == 1 and abs(exponents.item()) <= _MAX_POWER:
            power = np.float64(math.ldexp(1.0, exponents.item()))
            scaled: NDArray[Any] = np.multiply(values, power, out=out, casting="same_kind")
        elif np.abs(exponents).max() <= _MAX_POWER:
            powers = np.ldexp(1.0, exponents)
            scaled = np.multiply(values, powers, out=out, casting="same_kind")
        else:
            scaled = np.ldexp(values, exponents, out=out, casting="same_kind")
    return scaled


def max_abs_of_columns(columns: Floats) -> list[float]:
    """Return the largest absolute value in each column; NaN for a column with NaN.

    Examples
    --------
    >>> max_abs_of_columns(np.array([[1.0, -3.0], [2.0, 0.5]]))
    [2.0, 3.0]
    """
    if columns.shape[1] != 1:
        return np.maximum(columns.max(axis=0), -columns.min(axis=0)).tolist()  # type: ignore[no-any-return]
    extremes: list[float] = []
    for block in _blocks(len(columns)):
        entries = columns[block, 0]
        # Of short vectors faster than `max` and `min`; finds NaN, too.
        extremes += entries.item(entries.argmax()), -entries.item(entries.argmin())
    return [math.nan if any(map(math.isnan, extremes)) else max(extremes)]


def cancellation(
    terms: Sequence[float], exponents: Sequence[int], largest: Sequence[float]
) -> float | None:
    """Return the largest ratio, over the columns, of the size of the terms to that of the result.

    Parameters
    ----------
    terms : (k,) sequence of float
        Size of the terms of each column, before rescaling.
    exponents : (k,) sequence of int
        Exponents of the powers of two of the rescaling.
    largest : (k,) sequence of float
        Largest absolute value in each column of the result.

    Returns
    -------
    float or None
        None if the terms or the result of every column are 0.

    Examples
    --------
    >>> cancellation([3.0, 2.0, 0.0], [1, 0, 0], [1.0, 0.5, 0.0])
    6.0
    >>> print(cancellation([3.0], [0], [0.0]))
    None
    """
    ratios = []
    for size, exponent, result in zip(terms, exponents, largest, strict=True):
        if size and result and math.isfinite(result):
            mantissa, result_exponent = math.frexp(result)
            try:
                ratios.append(math.ldexp(size / mantissa, exponent - result_exponent))
            except OverflowError:
                ratios.append(math.inf)
    return max(ratios, default=None)


def _blocks(length: int, columns: int = 1) -> list[slice]:
    """Return slices of `columns` vectors that fit in the cache, of at least 1024 entries."""
    step = max(_CACHE_BLOCK // columns, 1024)
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def _sum_of_squares(vector: NDArray[Any]) -> float:
    """Return the sum of squares, without OpenBLAS threads: they stall on a busy computer."""
    total = 0.0
    for first in range(0, len(vector), _SINGLE_THREAD_BLOCK):
        block = vector[first : first + _SINGLE_THREAD_BLOCK]
        total += float(np.dot(block, block))
    return total


def _norm(vector: NDArray[Any], weights: Floats | None) -> float:
    """Return the 2-norm of a weighted vector, without overflow."""
    square = 0.0
    for block in _blocks(len(vector)):
        entries = np.asarray(vector[block], np.float64)
        square += _sum_of_squares(entries if weights is None else entries * weights[block])
    if 2.0 ** (-2 * _MAX_SQUARABLE_LOG2) < square < 2.0 ** (2 * _MAX_SQUARABLE_LOG2):
        return math.sqrt(square)
    entries = np.asarray(vector, np.float64) * (1.0 if weights is None else weights)
    largest = float(np.abs(entries).max(initial=0.0))
    return largest * math.sqrt(_sum_of_squares(entries / (largest or 1.0)))


def _running_max(largest: float, sizes: Floats) -> float:
    """Return the maximum of `largest` and `sizes`; NaN if one of them is NaN."""
    return float(np.maximum(largest, np.maximum.reduce(sizes)))
