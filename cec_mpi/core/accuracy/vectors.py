"""Preparation of input vectors (copy, check, scaling), and rescaling of results.

Vectors are divided by powers of two so that no product overflows, and results are multiplied by the
same powers. Both are exact except for underflow: entries of a vector that underflow change its
products slightly (see `Scaler.underflow_error`), and subnormal entries of a result are rounded
once. If rows of X were divided by powers of two before encoding (`scaling`), one multiplication
undoes both scalings, because undoing one of them alone may overflow.

Errors of products are proportional to the magnitude of their terms; users need them relative to
the result. The ratio of the terms to the result, the `cancellation`, measures the lost digits.
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
# Sums and decoder coefficients cannot overflow, and numbers that underflow are usually smaller than
# the rounding error. A vector is sent unscaled if its exponent is at most _UNSCALED_LOG2, and the
# log2 of the scale of its product differs from _TARGET_LOG2 by at most as much.
_TARGET_LOG2 = {8: 128, 4: 48}
_MAX_LOG2 = {8: 480, 4: 80}
_UNSCALED_LOG2 = {8: 256, 4: 0}
_EXPONENT_OF_ZERO = -(2**20)
_MIN_SUM, _MAX_SUM = 2.0**-900, 2.0**900  # outside, terms may have underflowed or overflowed
_SAFE_LOG2 = 1022  # 2**-1022 and 2**1022 are normal numbers
_MAX_EXPONENT_RANGE = 900  # of rows; with more, a relative row scale could be subnormal
_MAX_SQUARABLE_LOG2 = 400  # the squares of norms from 2**-400 to 2**400 are normal numbers
_CACHE_BLOCK = 1 << 15  # entries that stay in the cache while they are copied, weighted and summed
_SINGLE_THREAD_BLOCK = 1 << 13  # entries; OpenBLAS computes their dot product without threads


class NotFiniteError(ValueError):
    """An entry of a vector is NaN or infinite."""


class Scaler:
    """Scales vectors by powers of two for products with a matrix Z, and rescales the results.

    Parameters
    ----------
    column_max : (r,) array_like of float
        c, the largest absolute value in each column of Z, the encoded matrix. Finite.
    arithmetic : dtype
        Dtype in which vectors are sent and multiplied.
    row_exponents : (q,) array_like of int, optional
        Row i of X is ``2**row_exponents[i]`` times row i of Z. May be longer than q.
    is_rounded : bool
        Whether X was rounded for encoding, so that nonzero columns may have become zeros.

    Attributes
    ----------
    row_exponents : (q,) ndarray of int64, or None
    max_row_exponent : int
    underflow_error : float
        Bound on the error of an entry of Z w, before rescaling, from entries of w that underflow.

    Notes
    -----
    The scale of ``Z w`` is ``s = sum_j c_j |w_j|``, that of ``Z' v`` is
    ``s = max_j c_j sum_i |v_i|``: no entry of the product is larger. The 2-norm of the n terms is
    between ``s / sqrt(n)`` and s, and shows that most vectors need no scaling.

    Examples
    --------
    >>> scaler = Scaler([1.0, 2.0], np.float32)
    >>> W, out = np.array([[1e39, 0.0, 0.0], [-1e39, 1e-46, 0.0]]), np.empty((3, 2), np.float32)
    >>> exponents, term_norms = scaler.prepare(W, out)
    >>> exponents, np.frexp(np.abs(out) @ [1.0, 2.0])[1].tolist()
    ([84, -199, 0], [48, 48, 0])
    >>> Scaler([4.0, 1.0], np.float64).prepare(np.array([[3.0], [-5.0]]), np.empty((1, 2)))
    ([0], [13.0])
    """

    row_exponents: Ints | None = None

    def __init__(
        self,
        column_max: ArrayLike,
        arithmetic: np.dtype[Any] | type[np.floating],
        row_exponents: ArrayLike | None = None,
        is_rounded: bool = False,
    ) -> None:
        self._column_max: Floats = np.asarray(column_max, dtype=np.float64)
        self._matrix_max = float(self._column_max.max(initial=0.0))
        self._matrix_exponent = math.frexp(self._matrix_max)[1]
        # The weights are scaled if their sums could overflow or underflow.
        self._weights_exponent = self._matrix_exponent if abs(self._matrix_exponent) > 200 else 0
        self._weights = (
            np.ldexp(self._column_max, -self._weights_exponent)
            if self._weights_exponent
            else self._column_max
        )
        self._has_zero_columns = not is_rounded and not self._column_max.all()
        info, size = np.finfo(arithmetic), np.dtype(arithmetic).itemsize
        self._target_exponent, self._max_exponent = _TARGET_LOG2[size], _MAX_LOG2[size]
        self._unscaled_exponent = _UNSCALED_LOG2[size]
        scaled_sum = float((self._column_max * 2.0**-64).sum())
        # Underflow adds an error of up to half the smallest subnormal number.
        self.underflow_error = math.ldexp(scaled_sum, int(info.minexp - info.nmant) - 1 + 64)
        self.max_row_exponent = self._reference_exponent = 0
        exponents = np.asarray(0 if row_exponents is None else row_exponents, dtype=np.int64)
        if exponents.any():
            self.row_exponents = exponents
            nonzero = exponents[exponents != ZERO_ROW]
            self.max_row_exponent = int(exponents.max())
            self._reference_exponent = int(nonzero.max(initial=-_SAFE_LOG2)) if nonzero.size else 0
            self._max_abs_row_exponent = int(np.abs(nonzero).max(initial=0))
            smallest = int(nonzero.min(initial=self._reference_exponent))
            self._has_wide_range = self._reference_exponent - smallest > _MAX_EXPONENT_RANGE
            self._relative_row_scales = np.ldexp(1.0, exponents - self._reference_exponent)[
                :, np.newaxis
            ]

    def prepare(self, W: NDArray[Any], out: NDArray[Any]) -> tuple[list[int], list[float]]:
        """Copy and scale W for Z W; return its exponents and the norms of the terms.

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
        term_norms : list of float
            ``norm(c * w)`` of each vector in `out`.

        Raises
        ------
        NotFiniteError
            W has an entry that is NaN or infinite as float64.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exponents: list[int] = []
            norms = self._copy_unscaled(W, out, self._weights, self._weights_exponent)
            if norms is None:
                exponents = [self._exponent_of(w) for w in W.T]
                for w, row, exponent in zip(W.T, out, exponents, strict=True):
                    for block in _blocks(len(row)):
                        entries = np.asarray(w[block], np.float64)
                        entries = self._ignore_zero_columns(entries, block)
                        scale_by_powers(entries, np.array(-exponent), row[block])
                norms = [_norm(row, self._weights) for row in out]
        term_norms = [math.ldexp(norm, self._weights_exponent) for norm in norms]
        return exponents or [0] * len(out), term_norms

    def prepare_adjoint(self, V: NDArray[Any], out: Floats) -> tuple[list[int], list[float]]:
        """Copy and scale V for X' V; return its exponents and the norms of the terms.

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
        term_norms : list of float
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
                norms = self._copy_unscaled(V, out.T, None, self._matrix_exponent)
            if norms is None:
                exponents = [self._exponent_of_adjoint(v) for v in V.T]
                np.copyto(out, V, casting="unsafe")
                self.scale_rows(out, [-exponent for exponent in exponents], out)
                norms = [_norm(v, None) for v in out.T]
        term_norms = [self._matrix_max * norm for norm in norms]
        return exponents or [0] * len(term_norms), term_norms

    def norms_of_unscaled_adjoint(self, V: Floats) -> list[float] | None:
        """Return the norms of the terms of X' V if V, (q, k), needs no scaling, otherwise None."""
        if self.row_exponents is not None:
            return None
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            norms = self._copy_unscaled(V, None, None, self._matrix_exponent)
        return norms and [self._matrix_max * norm for norm in norms]

    def _copy_unscaled(
        self, W: NDArray[Any], out: NDArray[Any] | None, weights: Floats | None, unit_exponent: int
    ) -> list[float] | None:
        """Copy vectors, (n, k) to (k, n), and return norms of terms in units of 2**unit_exponent.

        The result is None if a vector may need scaling. Without `out` nothing is copied.
        """
        length, columns = W.shape
        max_sum_log2 = self._unscaled_exponent + self._target_exponent - unit_exponent
        min_log2 = max(max_sum_log2 - 2 * self._unscaled_exponent, -_MAX_SQUARABLE_LOG2)
        max_log2 = min(max_sum_log2 - length.bit_length() // 2 - 1, _MAX_SQUARABLE_LOG2)
        if min_log2 >= max_log2:
            return None
        squares, blocks = [0.0] * columns, _blocks(length, columns)
        scratch = np.empty(blocks[0].stop)
        for block in blocks:
            vectors = W[block].T
            if out is not None:
                np.copyto(out[:, block], vectors, casting="unsafe")
                vectors = out[:, block]
            for column, entries in enumerate(vectors):
                if weights is not None:
                    entries = np.multiply(entries, weights[block], out=scratch[: len(entries)])
                squares[column] += _sum_of_squares(entries)
        norms = list(map(math.sqrt, squares))
        min_norm, max_norm = math.ldexp(1.0, min_log2), math.ldexp(1.0, max_log2)
        return norms if all(min_norm <= norm <= max_norm for norm in norms) else None

    def _ignore_zero_columns(self, entries: Floats, block: slice) -> Floats:
        """Return entries, with 0 for those that multiply columns of zeros.

        These entries must not affect the scaling.
        """
        if not self._has_zero_columns:
            return entries
        return np.where(self._column_max[block] > 0, entries, 0.0)

    def _exponent_of(self, w: NDArray[Any]) -> int:
        """Return the exponent of a vector for Z w."""
        largest = largest_relevant = total = 0.0
        for block in _blocks(len(w)):
            magnitudes = np.abs(np.asarray(w[block], np.float64))
            largest = _max_or_nan(largest, magnitudes)
            relevant = self._ignore_zero_columns(magnitudes, block)
            largest_relevant = _max_or_nan(largest_relevant, relevant)
            total += float(np.dot(magnitudes, self._weights[block]))
        if not math.isfinite(largest):
            raise NotFiniteError
        if _MIN_SUM <= total <= _MAX_SUM:
            return self._estimate_exponent(
                largest_relevant, total, self._weights_exponent, self._unscaled_exponent
            )
        entries = self._ignore_zero_columns(np.asarray(w, np.float64), slice(None))
        weight_exponents = np.frexp(self._column_max)[1]
        weight_exponents = np.where(self._column_max > 0, weight_exponents, _EXPONENT_OF_ZERO)
        return self._exact_exponent(entries, np.zeros(1, np.int64), weight_exponents)

    def _exponent_of_adjoint(self, v: NDArray[Any]) -> int:
        """Return the exponent of a vector for X' v."""
        largest = largest_scaled = total = 0.0
        for block in _blocks(len(v)):
            magnitudes = np.abs(np.asarray(v[block], np.float64))
            largest = _max_or_nan(largest, magnitudes)
            if self.row_exponents is not None:
                magnitudes *= self._relative_row_scales[block, 0]
            largest_scaled = _max_or_nan(largest_scaled, magnitudes)
            total += float(np.add.reduce(magnitudes))
        if not math.isfinite(largest):
            raise NotFiniteError
        is_unsafe = self.row_exponents is not None and (self._has_wide_range or total < _MIN_SUM)
        if total <= _MAX_SUM and not is_unsafe:
            max_unscaled = self._unscaled_exponent if self.row_exponents is None else 0
            exponent = self._estimate_exponent(
                largest_scaled, total, self._matrix_exponent, max_unscaled
            )
            return exponent + self._reference_exponent * bool(largest_scaled)
        row_exponents = np.zeros(1, np.int64)
        if self.row_exponents is not None:
            row_exponents = self.row_exponents[: len(v)]
        return self._exact_exponent(
            np.asarray(v, np.float64), row_exponents, np.array([self._matrix_exponent])
        )

    def _estimate_exponent(
        self, largest: float, total: float, unit_exponent: int, max_unscaled: int
    ) -> int:
        """Return the exponent for a largest entry and a sum of terms in units of 2**unit_exponent.

        It is 0 (no scaling) if the entry is at most ``2**max_unscaled`` times its target, and the
        sum differs from its target at most by this factor.
        """
        exponent = math.frexp(largest)[1] - self._max_exponent
        if total:
            sum_exponent = math.frexp(total)[1] + unit_exponent - self._target_exponent
            exponent = max(exponent, sum_exponent)
            if exponent <= max_unscaled and abs(sum_exponent) <= max_unscaled:
                return 0
        return exponent if largest else 0

    def _exact_exponent(self, entries: Floats, row_exponents: Ints, weight_exponents: Ints) -> int:
        """Return the exponent without computing terms, which could overflow or underflow."""
        mantissas, exponents = np.frexp(entries)
        is_nonzero = (mantissas != 0) & (row_exponents != ZERO_ROW)
        exponents = np.where(is_nonzero, exponents + row_exponents, _EXPONENT_OF_ZERO)
        terms = exponents + weight_exponents
        largest, largest_term = int(exponents.max()), int(terms.max())
        if largest <= _EXPONENT_OF_ZERO:
            return 0
        shifts = np.maximum(terms - largest_term, -_SAFE_LOG2)
        total = float(np.ldexp(np.abs(mantissas), shifts).sum())
        return max(
            largest - self._max_exponent,
            largest_term + math.frexp(total)[1] - self._target_exponent,
        )

    def scale_rows(
        self, values: Floats, exponents: Sequence[int], out: Floats | None = None
    ) -> Floats:
        """Multiply entry (i, j) by ``2**(row_exponents[i] + exponents[j])``.

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
        column_exponents = np.array(exponents)
        if self.row_exponents is None:
            return scale_by_powers(values, column_exponents, out)
        max_exponent = max(map(abs, exponents)) + self._max_abs_row_exponent
        if self._has_wide_range or max_exponent > _SAFE_LOG2:
            row_exponents = self.row_exponents[: len(values), np.newaxis]
            return scale_by_powers(values, row_exponents + column_exponents, out)
        scaled = np.empty_like(values) if out is None else out
        factors = np.ldexp(1.0, column_exponents + self._reference_exponent)
        with np.errstate(over="ignore", under="ignore"):
            for block in _blocks(len(values), len(exponents)):
                np.multiply(
                    values[block], self._relative_row_scales[block] * factors, out=scaled[block]
                )
        return scaled


def scale_by_powers(
    values: NDArray[Any], exponents: NDArray[np.integer], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Multiply values by powers of two, and round each product at most once.

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
        if exponents.size == 1 and abs(exponents.item()) <= _SAFE_LOG2:
            power = np.float64(math.ldexp(1.0, exponents.item()))
            scaled: NDArray[Any] = np.multiply(values, power, out=out, casting="same_kind")
        elif np.abs(exponents).max() <= _SAFE_LOG2:
            powers = np.ldexp(1.0, exponents)
            scaled = np.multiply(values, powers, out=out, casting="same_kind")
        else:
            scaled = np.ldexp(values, exponents, out=out, casting="same_kind")
    return scaled


def vector_max_abs(vectors: Floats) -> list[float]:
    """Return the largest absolute value of each column; NaN for a column with NaN.

    Parameters
    ----------
    vectors : (n, k) ndarray of float

    Examples
    --------
    >>> vector_max_abs(np.array([[1.0, -3.0], [2.0, 0.5]]))
    [2.0, 3.0]
    """
    if vectors.shape[1] != 1:
        return np.maximum(vectors.max(axis=0), -vectors.min(axis=0)).tolist()  # type: ignore[no-any-return]
    extremes: list[float] = []
    for block in _blocks(len(vectors)):
        entries = vectors[block, 0]
        # For short vectors argmax is faster than max; it returns the index of a NaN, too.
        extremes += entries.item(entries.argmax()), -entries.item(entries.argmin())
    return [math.nan if any(map(math.isnan, extremes)) else max(extremes)]


def cancellation(
    term_norms: Sequence[float], exponents: Sequence[int], result_max: Sequence[float]
) -> float | None:
    """Return the largest ratio, over columns, of the norm of the terms to the largest result.

    Parameters
    ----------
    term_norms : (k,) sequence of float
        Norm of the terms of each column before rescaling.
    exponents : (k,) sequence of int
        Each column is rescaled by this power of two.
    result_max : (k,) sequence of float
        Largest absolute value in each column of the result.

    Returns
    -------
    float or None
        None if no column has nonzero terms and a nonzero, finite result.

    Examples
    --------
    >>> cancellation([3.0, 2.0, 0.0], [1, 0, 0], [1.0, 0.5, 0.0])
    6.0
    >>> print(cancellation([3.0], [0], [0.0]))
    None
    """
    ratios = []
    for norm, exponent, largest in zip(term_norms, exponents, result_max, strict=True):
        if norm and largest and math.isfinite(largest):
            mantissa, result_exponent = math.frexp(largest)
            try:
                ratios.append(math.ldexp(norm / mantissa, exponent - result_exponent))
            except OverflowError:
                ratios.append(math.inf)
    return max(ratios, default=None)


def _blocks(length: int, columns: int = 1) -> list[slice]:
    """Return slices of vectors, so short that `columns` of them fit in the cache.

    All slices but the last have at least 1024 entries.
    """
    step = max(_CACHE_BLOCK // columns, 1024)
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def _sum_of_squares(vector: NDArray[Any]) -> float:
    """Return the sum of squares without OpenBLAS threads, which stall on a busy computer."""
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


def _max_or_nan(largest: float, values: Floats) -> float:
    """Return the maximum of `largest` and `values`; NaN if one of them is NaN."""
    return float(np.maximum(largest, np.maximum.reduce(values)))
