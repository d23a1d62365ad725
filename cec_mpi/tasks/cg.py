"""Linear systems with a symmetric positive definite matrix."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, ToleranceWarning
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, initial_vector, restore_state
from cec_mpi.tasks.common.options import fraction, square, vector, warn_of_tolerance, whole
from cec_mpi.tasks.common.units import normalise, rescale, scaled


def cg(
    X: Any,
    *,
    b: ArrayLike | os.PathLike[str],
    tol: float = 1e-8,
    iterations: int = 1000,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Solve ``X x = b`` by SciPy's conjugate gradients.

    Parameters
    ----------
    X : operator
        Symmetric positive definite: shape (n, n).
    b : (n,) array_like or path of an .npy file
        The right-hand side.
    tol : float
        Converged when ``||X x - b|| <= tol * ||b||``.
    iterations : int
        Largest number of iterations, of one product each. One product before them measures the size
        of X, and one after them checks the result. A resumed run needs one more product, and makes
        at least one iteration.
    checkpoint : Checkpoint
        Keeps the iterate ``x``, (n,), and ``iterations``. A later run continues from the iterate to
        the same `tol`, with new search directions.

    Returns
    -------
    dict
        ``result``: (n,) ndarray, x; ``residual``: ``||X x - b|| / ||b||``; ``iterations``: their
        number; ``converged``: whether `tol` was reached by the residual that the iteration
        updates, and ``residual`` is at most ``10 tol``, or by ``residual`` itself. It is False if
        products of X are not accurate enough to know that.

    Raises
    ------
    InputError
        X is not square or not positive definite, an option is out of range, the checkpoint does
        not fit, or x is too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``, or X is too ill-conditioned for the accuracy of its
        products: they may be wrong by ``X.attainable ||X|| ||x||``, which exceeds ``10 tol ||b||``.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> cg(aslinearoperator(np.diag([1.0, 2.0, 5.0])), b=[1, 1, 1])["result"].round(6)
    array([1. , 0.5, 0.2])
    """
    size = square("cg", X)
    b = vector("b", b, size)
    tol = fraction("tol", tol)
    most = whole("iterations", iterations, 1)
    warn_of_tolerance(X, "cg", tol)
    state = restore_state(checkpoint, x=(size,), iterations=())
    operator, of_X = scaled(X, "cg")
    right, of_b = normalise(b)
    sizes = {"X": of_X, "b": of_b}
    attainable = float(getattr(X, "attainable", 0.0))
    return conjugate_gradients(
        operator.matvec, right, tol, most, state, checkpoint, of_b - of_X, sizes, attainable
    )


def conjugate_gradients(
    product: Callable[[NDArray[Any]], NDArray[Any]],
    b: NDArray[np.float64],
    tol: float,
    most: int,
    state: dict[str, NDArray[Any]] | None,
    checkpoint: Checkpoint,
    exponent: int,
    sizes: dict[str, int],
    attainable: float,
) -> dict[str, Any]:
    """Return what `cg` returns, for a matrix given by its product with a vector.

    `most` is the option ``iterations``. The solution, and the state in checkpoints, is
    ``2**exponent`` times that of this system. `sizes` are for messages, as in `rescale`.
    Products may be wrong by `attainable` times ``||X|| ||x||``.
    """
    from scipy.sparse.linalg import LinearOperator
    from scipy.sparse.linalg import cg as scipy_cg

    start = initial_vector("x", state["x"], -exponent) if state else None
    made = int(state["iterations"]) if state else 0
    limit = max(most - made, 1)
    scale = float(np.linalg.norm(b))
    left = b.copy()  # b - X x, as the iteration updates it
    last: tuple[NDArray[Any], float] | None = None  # X p and p'Xp of its last product
    size = 0.0  # ||X||, as products show it

    def product_with_curvature(p: NDArray[Any]) -> NDArray[Any]:
        nonlocal last, size
        image = product(p)
        size = max(size, float(np.linalg.norm(image) / np.linalg.norm(p))) if p.any() else size
        curvature = float(p @ image)
        if not curvature > 0:  # SciPy would divide by it
            raise InputError(
                "X is not positive definite: p'Xp is not positive for a search direction p"
            )
        if last is None and start is not None and start.any():
            left[:] -= image  # the first product is that with the start
        last = image, curvature
        return image

    def keep(x: NDArray[Any]) -> None:
        nonlocal made
        made += 1
        checkpoint.save(x=rescale("x", x, exponent, sizes), iterations=made)
        if last is not None and scale:
            image, curvature = last
            left[:] -= (left @ left) / curvature * image
            checkpoint.progress(residual=float(np.linalg.norm(left)) / scale)

    operator = LinearOperator((len(b), len(b)), matvec=product_with_curvature, dtype=np.float64)
    x, info = scipy_cg(operator, b, x0=start, rtol=tol, maxiter=limit, callback=keep)
    residual = float(np.linalg.norm(product(x) - b)) / scale if scale else 0.0
    converged = residual <= (tol if info else 10 * tol)  # rounding makes them differ
    error = attainable * size * float(np.linalg.norm(x)) / scale if scale else 0.0
    if converged and error > 10 * max(tol, attainable):
        converged = False
        warnings.warn(
            f"the residual {residual:.0e} may be wrong by {error:.0e}, because products of X with "
            f"different machines differ by {attainable:.0e} and X is ill-conditioned (a store of "
            "float64 is more accurate)",
            ToleranceWarning,
            stacklevel=3,
        )
    return {
        "result": rescale("x", x, exponent, sizes),
        "residual": residual,
        "iterations": made,
        "converged": converged,
    }
