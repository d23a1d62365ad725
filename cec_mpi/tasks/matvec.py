"""Products with a sequence of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

__all__ = ["matvec"]


def matvec(
    X: Any,
    *,
    vectors: NDArray[Any],
    out: NDArray[np.float64] | None = None,
    checkpoint: object = None,
) -> dict[str, Any]:
    """Multiply X with each of T vectors: one step each.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    vectors : (T, r) ndarray
    out : (T, q) ndarray of float64, optional
        Receives the products as they come.
    checkpoint : None
        Not used.

    Returns
    -------
    dict
        ``result``: (T, q) ndarray of float64.

    Raises
    ------
    InputError
        `vectors` has another shape.
    """
    if vectors.ndim != 2 or vectors.shape[1] != X.shape[1]:
        raise InputError(f"vectors have shape {vectors.shape}: expected (T, {X.shape[1]})")
    if out is None:
        out = np.empty((len(vectors), X.shape[0]))
    for w, y in zip(vectors, out, strict=True):
        y[:] = X.matvec(w)
    return {"result": out}
