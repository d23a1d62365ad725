"""Power iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_state
from cec_mpi.tasks.common.options import (
    check_fraction,
    check_integer,
    check_square,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.scaling import check_range, normalise_vector, rescale


def power(
    X: Any,
    *,
    tol: float = 1e-8,
    iterations: int = 1000,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Compute the dominant eigenvalue and eigenvector by power iteration.

    Parameters
    ----------
    X : operator
        Shape (r, r).
    tol : float
        Iterations stop when ``||X v - rho v|| <= tol * |rho|``, with v of unit length and its
        Rayleigh quotient ``rho = v' X v``.
    iterations : int
        Maximum number of products with X; a resumed run makes at least one.
    seed : int
        Seed of the random first vector.
    checkpoint : Checkpoint
        Saves the last product ``vector``, (r,), and ``iterations``. A later run makes the same
        iterations as an uninterrupted one.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the eigenvector; ``eigenvalue``: the Rayleigh quotient rho;
        ``residual``: ``||X v - rho v|| / |rho|``, or ``||X v||`` if rho is 0; ``iterations``:
        number of iterations; ``converged``: whether `tol` was reached.

    Raises
    ------
    InputError
        X is not square, an option is out of range, the checkpoint does not match, or products are
        too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> results = power(aslinearoperator(np.diag([1.0, 2.0, 5.0])))
    >>> results["converged"], round(results["eigenvalue"], 6)
    (True, 5.0)
    """
    size = check_square("power iteration", X)
    tol = check_fraction("tol", tol)
    max_iterations = check_integer("iterations", iterations, 1)
    seed = check_integer("seed", seed, 0)
    warn_of_tolerance(X, "power", tol)
    state = restore_state(checkpoint, vector=(size,), iterations=())
    if state:
        product, done_iterations = state["vector"], int(state["iterations"])
    else:
        product, done_iterations = np.random.default_rng(seed).standard_normal(size), 0
    converged = False
    max_iterations = max(max_iterations, done_iterations + 1)
    while not converged and done_iterations < max_iterations:
        checkpoint.save(vector=product, iterations=done_iterations)
        v, _ = normalise_vector(product)
        v /= np.linalg.norm(v)
        with np.errstate(over="ignore", invalid="ignore"):
            product = X.matvec(v)
        check_range("X v, v of unit length,", product)
        done_iterations += 1
        image, exponent = normalise_vector(product)
        rho = float(v @ image)
        error = float(np.linalg.norm(image - rho * v))
        residual = error / abs(rho) if rho else float(np.ldexp(error, exponent))
        eigenvalue = rescale("the eigenvalue", rho, exponent, {"X": exponent}, may_underflow=True)
        checkpoint.progress(residual=residual, eigenvalue=eigenvalue)
        converged = error <= tol * abs(rho)
    return {
        "result": v,
        "eigenvalue": eigenvalue,
        "residual": residual,
        "iterations": done_iterations,
        "converged": converged,
    }
