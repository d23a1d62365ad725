"""The dominant eigenpair by power iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from cec_mpi.tasks._options import fraction, square, whole
from cec_mpi.tasks.checkpoint import NO_CHECKPOINT, Checkpoint, restored

__all__ = ["power"]


def power(
    X: Any,
    *,
    tol: float = 1e-8,
    steps: int = 1000,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
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
        The most products with X; after an earlier run at least one more.
    seed : int
        Of the first vector.
    checkpoint : Checkpoint
        Keeps the last product ``vector``, (r,), and ``iterations``: the same iterates follow
        as without a break.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the eigenvector; ``eigenvalue``: the Rayleigh quotient;
        ``residual``: relative, as above; ``iterations``; ``converged``.

    Raises
    ------
    InputError
        X is not square, an option is out of range, or the checkpoint does not fit.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> found = power(aslinearoperator(np.diag([1.0, 2.0, 5.0])))
    >>> found["converged"], round(found["eigenvalue"], 6)
    (True, 5.0)
    """
    from scipy.linalg import norm  # which neither overflows nor underflows on the way

    size = square("power iteration", X)
    tol = fraction("tol", tol)
    steps = whole("steps", steps, 1)
    seed = whole("seed", seed, 0)
    state = restored(checkpoint, vector=(size,), iterations=())
    if state:
        product, iterations = state["vector"], int(state["iterations"])
    else:
        product, iterations = np.random.default_rng(seed).standard_normal(size), 0
    converged = False
    steps = max(steps, iterations + 1)
    while not converged and iterations < steps:
        checkpoint.save(vector=product, iterations=iterations)
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
