"""The dominant eigenpair by power iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from cec_mpi.errors import InputError

__all__ = ["power"]


def power(
    X: Any,
    *,
    tol: float = 1e-8,
    steps: int = 1000,
    seed: int = 0,
    checkpoint: object = None,
) -> dict[str, Any]:
    """Power iteration with the Rayleigh quotient, from a random unit vector.

    Parameters
    ----------
    X : operator
        Square: shape (r, r).
    tol : float
        Converged when ``||X v - rho v|| <= tol * |rho|``, v of unit length and rho its
        Rayleigh quotient ``v' X v``.
    steps : int
        The most products with X.
    seed : int
        Of the first vector.
    checkpoint : None
        Not used.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the eigenvector; ``eigenvalue``: the Rayleigh quotient;
        ``residual``: relative, as above; ``iterations``; ``converged``.

    Raises
    ------
    InputError
        X is not square, or an option is out of range.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> found = power(aslinearoperator(np.diag([1.0, 2.0, 5.0])))
    >>> found["converged"], round(found["eigenvalue"], 6)
    (True, 5.0)
    """
    rows, columns = X.shape
    if rows != columns:
        raise InputError(f"power iteration on a {rows} x {columns} matrix: expected a square one")
    if not 0 < tol < 1:
        raise InputError(f"tol {tol}: expected a number between 0 and 1")
    if steps < 1:
        raise InputError(f"{steps} steps: expected at least 1")
    v = np.random.default_rng(seed).standard_normal(columns)
    v /= np.linalg.norm(v)
    iterations, converged = 0, False
    while not converged and iterations < steps:
        product = X.matvec(v)
        iterations += 1
        rho = float(v @ product)
        length = float(np.linalg.norm(product))
        error = float(np.linalg.norm(product - rho * v))
        converged = error <= tol * abs(rho)
        if not converged:
            v = product / length
    return {
        "result": v,
        "eigenvalue": rho,
        "residual": error / abs(rho) if rho else error,
        "iterations": iterations,
        "converged": converged,
    }
