"""The dominant eigenpair by power iteration."""

from __future__ import annotations

from numbers import Integral, Real
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
    from scipy.linalg import norm  # which neither overflows nor underflows on the way

    rows, columns = X.shape
    if rows != columns:
        raise InputError(f"power iteration on a {rows} x {columns} matrix: expected a square one")
    if not isinstance(tol, Real) or not 0 < tol < 1:
        raise InputError(f"tol {tol}: expected a number between 0 and 1")
    if not isinstance(steps, Integral) or steps < 1:
        raise InputError(f"steps {steps}: expected a whole number of at least 1")
    if not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed {seed}: expected a whole number of at least 0")
    product = np.random.default_rng(int(seed)).standard_normal(columns)
    iterations, converged = 0, False
    while not converged and iterations < steps:
        v = product / norm(product)
        product = X.matvec(v)
        iterations += 1
        rho = float(v @ product)
        error = float(norm(product - rho * v))
        converged = error <= tol * abs(rho)
    return {
        "result": v,
        "eigenvalue": rho,
        "residual": error / abs(rho) if rho else error,
        "iterations": iterations,
        "converged": converged,
    }
