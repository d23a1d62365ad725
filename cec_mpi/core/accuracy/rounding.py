"""Error bounds from rounding: of shards, of answers, and of decoded numbers.

Errors of shards are relative to the largest of the L entries of X that a number of a shard
depends on. Errors of answers are relative to the scale S of a row, which is
``S = sum_j max_l |X_l[j]| |w_j|`` or a bound of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Floats = NDArray[np.float64]

_DEVIATIONS = 8.0  # standard deviations of a sum's rounding that count as a bound


def unit_roundoff(dtype: DTypeLike) -> float:
    """Return u, the largest relative error of rounding a number to this dtype."""
    return float(np.finfo(dtype).eps) / 2


def is_exact(given: DTypeLike, kept: DTypeLike) -> bool:
    """Whether a floating-point dtype has all numbers of another dtype.

    Examples
    --------
    >>> is_exact("int16", "float32"), is_exact("int64", "float64"), is_exact("float64", "float32")
    (True, False, False)
    """
    dtype, info = np.dtype(given), np.finfo(kept)
    if dtype.kind in "iu":
        most: int = np.iinfo(dtype).max
        return most <= 1 << (int(info.nmant) + 1)
    return bool(np.can_cast(dtype, kept))


def gamma(terms: ArrayLike, dtype: DTypeLike) -> Floats:
    """Bound the relative error of a sum of products: ``gamma_k = k u / (1 - k u)``.

    Parameters
    ----------
    terms : array_like of int
        k, the number of products of each sum.
    dtype : dtype
        Arithmetic of the sum.

    Returns
    -------
    ndarray of float
        Higham, Accuracy and Stability of Numerical Algorithms, section 3.1; infinite from
        ``k u = 1`` on.
    """
    roundings = np.asarray(terms) * unit_roundoff(dtype)
    growth = np.full(roundings.shape, np.inf)
    np.divide(roundings, 1 - roundings, out=growth, where=roundings < 1)
    return growth


def encoding_error_bound(generator: ArrayLike, dtype: DTypeLike) -> Floats:
    """Bound the error of shards as `encode` computes them, in the dtype of the store.

    Parameters
    ----------
    generator : (N, L) array_like of float
    dtype : dtype
        Of the shards.

    Returns
    -------
    (N,) ndarray of float
        Relative to the largest entry of X at the same place; 0 where a shard is a plain
        part of X.

    Examples
    --------
    >>> encoding_error_bound([[1.0, 0.0], [1.0, 1.0]], np.float64)
    array([0.0000000e+00, 4.4408921e-16])
    """
    matrix = np.abs(np.asarray(generator, dtype=np.float64))
    terms = np.count_nonzero(matrix, axis=1)
    plain = (terms == 1) & (matrix.max(axis=1) == 1)
    errors: Floats = np.where(plain, 0.0, gamma(terms, dtype) * matrix.sum(axis=1))
    return errors


def answer_error(
    generator: ArrayLike,
    dtype: DTypeLike,
    arithmetic: DTypeLike,
    columns: int,
    shard_errors: ArrayLike | None = None,
) -> Floats:
    """Bound the error of each machine's answers: rounding of its shard, and of the product.

    Parameters
    ----------
    generator : (N, L) array_like of float
        Its entries are numbers of `dtype`.
    dtype : dtype
        Of the shards.
    arithmetic : dtype
        Arithmetic of products.
    columns : int
        Number of terms of each sum, r.
    shard_errors : (N,) array_like of float, optional
        Error bounds of the shards; by default those of `encoding_error_bound`.

    Returns
    -------
    (N,) ndarray of float
        Relative to the scale S.

    Notes
    -----
    With d_n the shard error and ``g_n = sum_l |G[n, l]|``, the row s of shard n has ``|s_j| <= (g_n
    + d_n) max_l |X_l[j]|``. Its error alone gives at most d_n S. A sum of r products adds at most
    ``gamma_r |s| |w| <= gamma_r (g_n + d_n) S``, in any order of summation. Rounding errors of many
    terms mostly cancel: if r > 64, 8 sqrt(r) u replaces gamma_r, which is exceeded with probability
    2 r exp(-32) (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019,
    Theorem 2.4).

    Examples
    --------
    >>> answer_error([[1.0, 0.0], [1.0, 1.0]], np.float64, np.float64, columns=1)
    array([1.11022302e-16, 6.66133815e-16])
    """
    matrix = np.asarray(generator, dtype=np.float64)
    given = (
        encoding_error_bound(matrix, dtype) if shard_errors is None else np.asarray(shard_errors)
    )
    sizes = np.abs(matrix).sum(axis=1) + given
    return np.asarray(given + summation_error(columns, arithmetic) * sizes, dtype=np.float64)


def summation_error(terms: int, dtype: DTypeLike) -> float:
    """Return the relative error of a sum of this number of products: see `answer_error`."""
    worst = float(gamma(terms, dtype))
    likely = _DEVIATIONS * terms**0.5 * unit_roundoff(dtype)
    return min(worst, likely) if terms > 1 else worst
