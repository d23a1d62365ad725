"""The operator of X with the mean of each column subtracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

LinearMap = Callable[[NDArray[Any]], NDArray[Any]]


def centre_columns(X: Any) -> tuple[LinearOperator, NDArray[np.float64]]:
    """Return the operator ``X - 1 mean'`` and the mean of the rows of X, ``X' 1 / q``.

    This makes one product with X'. If the mean is much larger than the differences between rows,
    digits are lost; such data should be shifted before encoding.

    Parameters
    ----------
    X : operator
        Shape (q, r).

    Returns
    -------
    operator : LinearOperator
        Shape (q, r).
    mean : (r,) ndarray
    """
    from scipy.sparse.linalg import LinearOperator

    mean = X.rmatvec(np.ones(X.shape[0])) / X.shape[0]

    def subtract_mean(multiply: LinearMap) -> LinearMap:
        return lambda w: multiply(w) - mean @ w

    def subtract_mean_transposed(multiply: LinearMap) -> LinearMap:
        return lambda u: multiply(u) - np.multiply.outer(mean, u.sum(axis=0))

    operator = LinearOperator(
        X.shape,
        matvec=subtract_mean(X.matvec),
        rmatvec=subtract_mean_transposed(X.rmatvec),
        matmat=subtract_mean(X.matmat),
        rmatmat=subtract_mean_transposed(X.rmatmat),
        dtype=np.dtype(np.float64),
    )
    return operator, mean
