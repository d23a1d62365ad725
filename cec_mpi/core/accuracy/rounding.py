"""Bounds on rounding errors in shards, answers and decoded values.

The error of an entry of a shard is relative to the largest of the L entries of X that it combines.
The error of an answer is relative to the scale S of its row, which is
``S = sum_j max_l |X_l[j]| |w_j|`` or an upper bound on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Floats = NDArray[np.float64]

_SUM_ERROR_IN_EPSILONS = 8.0  # error of a sum of products, in machine epsilons of the arithmetic
_BOUND_IN_DEVIATIONS = 8.0  # bound on the rounding error of a sum, in standard deviations


def unit_roundoff(dtype: DTypeLike) -> float:
    """Return u, the largest relative error of rounding a number to this dtype."""
    return float(np.finfo(dtype).eps) / 2


def estimate_answer_error(dtype: DTypeLike, arithmetic: DTypeLike) -> float:
    """Return a practical bound on the error of an answer, relative to the magnitude of its terms.

    It is the machine epsilon of the shards or 8 times that of the arithmetic, whichever is larger.

    Examples
    --------
    >>> [estimate_answer_error(dtype, "float64") for dtype in ("float32", "float64")]
    [1.1920928955078125e-07, 1.7763568394002505e-15]
    """
    return float(max(np.finfo(dtype).eps, _SUM_ERROR_IN_EPSILONS * np.finfo(arithmetic).eps))


def is_lossless_cast(source: DTypeLike, target: DTypeLike) -> bool:
    """Return whether a floating-point dtype represents all values of another dtype exactly.

    Examples
    --------
    >>> is_lossless_cast("int16", "float32"), is_lossless_cast("int64", "float64")
    (True, False)
    """
    dtype, info = np.dtype(source), np.finfo(target)
    if dtype.kind in "iu":
        largest: int = np.iinfo(dtype).max
        return largest <= 1 << (int(info.nmant) + 1)
    return bool(np.can_cast(dtype, target))


def gamma(terms: ArrayLike, dtype: DTypeLike) -> Floats:
    """Return ``gamma_k = k u / (1 - k u)``, a bound on the error of a sum of products.

    The error is relative to the sum of their absolute values.

    Parameters
    ----------
    terms : array_like of int
        k, the number of products in each sum.
    dtype : dtype
        Arithmetic of the sum.

    Returns
    -------
    ndarray of float
        Infinite if ``k u >= 1``.

    References
    ----------
    Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
    """
    ku = np.asarray(terms) * unit_roundoff(dtype)
    bounds = np.full(ku.shape, np.inf)
    np.divide(ku, 1 - ku, out=bounds, where=ku < 1)
    return bounds


def encoding_error_bound(generator: ArrayLike, dtype: DTypeLike) -> Floats:
    """Return error bounds for freshly encoded shards.

    Parameters
    ----------
    generator : (N, L) array_like of float
    dtype : dtype
        Dtype of the shards, in which the code is computed.

    Returns
    -------
    (N,) ndarray of float
        Relative to the largest of the L entries of X that are combined; 0 for an uncoded part of X.

    Examples
    --------
    >>> encoding_error_bound([[1.0, 0.0], [1.0, 1.0]], np.float64)
    array([0.0000000e+00, 4.4408921e-16])
    """
    matrix = np.abs(np.asarray(generator, dtype=np.float64))
    terms = np.count_nonzero(matrix, axis=1)
    is_exact = (terms == 1) & (matrix.max(axis=1) == 1)
    errors: Floats = np.where(is_exact, 0.0, gamma(terms, dtype) * matrix.sum(axis=1))
    return errors


def answer_error_bound(
    generator: ArrayLike,
    dtype: DTypeLike,
    columns: int,
    shard_errors: ArrayLike | None = None,
) -> Floats:
    """Return a bound on the rounding errors of each machine's answers.

    Parameters
    ----------
    generator : (N, L) array_like of float
        Entries must be exactly representable in the dtype of the shards.
    dtype : dtype
        Dtype of the products; also that of the shards if `shard_errors` are not passed.
    columns : int
        Number of columns of X, r: each answer is a sum of r products.
    shard_errors : (N,) array_like of float, optional
        Error bounds for the shards; by default those of `encoding_error_bound`.

    Returns
    -------
    (N,) ndarray of float
        Relative to the scale S.

    Notes
    -----
    With d_n the shard error and ``g_n = sum_l |G[n, l]|``, a row s of shard n satisfies
    ``|s_j| <= (g_n + d_n) max_l |X_l[j]|``. The shard error contributes at most d_n S. A sum of r
    products adds at most ``gamma_r |s| |w| <= gamma_r (g_n + d_n) S``, in any order of summation.
    Rounding errors of many terms mostly cancel: if r >= 64, 8 sqrt(r) u replaces gamma_r, and the
    error exceeds it with probability at most 2 r exp(-32) (Higham and Mary, A New Approach to
    Probabilistic Rounding Error Analysis, 2019, Theorem 2.4).

    Examples
    --------
    >>> answer_error_bound([[1.0, 0.0], [1.0, 1.0]], np.float64, columns=1)
    array([1.11022302e-16, 6.66133815e-16])
    """
    matrix = np.asarray(generator, dtype=np.float64)
    if shard_errors is None:
        shard_errors = encoding_error_bound(matrix, dtype)
    errors = np.asarray(shard_errors, dtype=np.float64)
    magnitudes = np.abs(matrix).sum(axis=1) + errors
    return np.asarray(errors + summation_error_bound(columns, dtype) * magnitudes)


def summation_error_bound(terms: int, dtype: DTypeLike) -> float:
    """Return a bound on the error of a sum of products: `gamma`, or a smaller bound for many terms.

    See `answer_error_bound`.
    """
    deterministic = float(gamma(terms, dtype))
    probabilistic = _BOUND_IN_DEVIATIONS * terms**0.5 * unit_roundoff(dtype)
    return min(deterministic, probabilistic) if terms > 1 else deterministic
