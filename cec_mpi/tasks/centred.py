"""X less the mean of its rows, without forming it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["centred"]


def centred(X: Any) -> tuple[LinearOperator, NDArray[np.float64]]:
    """The operator ``X - 1 mean'``, and the mean of the rows of X, ``X' 1 / q``.

    Costs one product with X'. Where the mean is much larger than the differences between rows,
    digits are lost: shift such data beforehand.

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

    def product(w: NDArray[Any]) -> NDArray[Any]:
        return X.matvec(w) - mean @ w  # type: ignore[no-any-return]

    def adjoint(u: NDArray[Any]) -> NDArray[Any]:
        return X.rmatvec(u) - np.multiply.outer(mean, u.sum(axis=0))  # type: ignore[no-any-return]

    def products(w: NDArray[Any]) -> NDArray[Any]:
        return X.matmat(w) - mean @ w  # type: ignore[no-any-return]

    def adjoints(u: NDArray[Any]) -> NDArray[Any]:
        return X.rmatmat(u) - np.multiply.outer(mean, u.sum(axis=0))  # type: ignore[no-any-return]

    operator = LinearOperator(
        X.shape,
        matvec=product,
        rmatvec=adjoint,
        matmat=products,
        rmatmat=adjoints,
        dtype=np.dtype(np.float64),
    )
    return operator, mean
