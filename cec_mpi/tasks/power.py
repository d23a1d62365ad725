"""Power iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_state
from cec_mpi.tasks.common.options import fraction, square, warn_of_tolerance, whole
from cec_mpi.tasks.common.units import normalise, rescale


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
        Square: shape (r, r).
    tol : float
        Tolerance: iterations stop when ``||X v - rho v|| <= tol * |rho|``, with v of unit length
        and its Rayleigh quotient rho, ``v' X v``.
    iterations : int
        Largest number of products with X; a resumed run makes at least one.
    seed : int
        Seed of the first vector, which is random.
    checkpoint : Checkpoint
        Keeps the last product ``vector``, (r,), and ``iterations``. A later run makes the same
        iterations as an uninterrupted one.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the eigenvector; ``eigenvalue``: the Rayleigh quotient;
        ``residual``: relative, as above; ``iterations``: their number; ``converged``: whether `tol`
        was reached.

    Raises
    ------
    InputError
        X is not square, an option is out of range, the checkpoint does not fit, or X is too
        large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> found = power(aslinearoperator(np.diag([1.0, 2.0, 5.0])))
    >>> found["converged"], round(found["eigenvalue"], 6)
    (True, 5.0)
    """
    size = square("power iteration", X)
    tol = fraction("tol", tol)
    most = whole("iterations", iterations, 1)
    seed = whole("seed", seed, 0)
    warn_of_tolerance(X, "power", tol)
    state = restore_state(checkpoint, vector=(size,), iterations=())
    if state:
        product, made = state["vector"], int(state["iterations"])
    else:
        product, made = np.random.default_rng(seed).standard_normal(size), 0
    converged = False
    most = max(most, made + 1)
    while not converged and made < most:
        checkpoint.save(vector=product, iterations=made)
        v, _ = normalise(product)
        v /= np.linalg.norm(v)
        with np.errstate(over="ignore", invalid="ignore"):
            product = X.matvec(v)
        rescale("X v, v of unit length,", product, 0, {})
        made += 1
        image, size = normalise(product)
        rho = float(v @ image)
        error = float(np.linalg.norm(image - rho * v))
        residual = error / abs(rho) if rho else float(np.ldexp(error, size))
        eigenvalue = rescale("the eigenvalue", rho, size, {"X": size}, zero=True)
        checkpoint.progress(residual=residual, eigenvalue=eigenvalue)
        converged = error <= tol * abs(rho)
    return {
        "result": v,
        "eigenvalue": eigenvalue,
        "residual": residual,
        "iterations": made,
        "converged": converged,
    }
