"""Linear systems with a symmetric positive definite matrix."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, ToleranceWarning
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_array, restore_state
from cec_mpi.tasks.common.options import (
    check_fraction,
    check_integer,
    check_square,
    read_vector,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.scaling import normalise_operator, normalise_vector, rescale
from cec_mpi.text import warn_caller


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
        Maximum number of iterations, with one product each. One more product measures the magnitude
        of X, and another checks the result. A resumed run makes one more product, and at least one
        iteration.
    checkpoint : Checkpoint
        Saves the iterate ``x``, (n,), and ``iterations``. A later run continues from the iterate to
        the same `tol`, with new search directions.

    Returns
    -------
    dict
        ``result``: (n,) ndarray, x; ``residual``: ``||X x - b|| / ||b||``; ``iterations``: number
        of iterations; ``converged``: whether `tol` was reached by ``residual``, or by the updated
        residual of the iteration while ``residual`` is at most ``10 tol``. It is False if products
        of X are not accurate enough to decide this.

    Raises
    ------
    InputError
        X is not square or not positive definite, an option is out of range, the checkpoint does
        not match, or x is too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``, or X is too ill-conditioned for the accuracy of its
        products: their error may be ``X.attainable_tol ||X|| ||x||``, which exceeds
        ``10 tol ||b||``.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> cg(aslinearoperator(np.diag([1.0, 2.0, 5.0])), b=[1, 1, 1])["result"].round(6)
    array([1. , 0.5, 0.2])
    """
    size = check_square("cg", X)
    b = read_vector("b", b, size)
    tol = check_fraction("tol", tol)
    max_iterations = check_integer("iterations", iterations, 1)
    warn_of_tolerance(X, "cg", tol)
    state = restore_state(checkpoint, x=(size,), iterations=())
    operator, X_exponent = normalise_operator(X, "cg")
    rhs, b_exponent = normalise_vector(b)
    return conjugate_gradients(
        operator.matvec,
        rhs,
        tol,
        max_iterations,
        state,
        checkpoint,
        matrix_name="X",
        exponent=b_exponent - X_exponent,
        input_exponents={"X": X_exponent, "b": b_exponent},
        attainable_tol=float(getattr(X, "attainable_tol", 0.0)),
    )


def conjugate_gradients(
    multiply: Callable[[NDArray[Any]], NDArray[Any]],
    b: NDArray[np.float64],
    tol: float,
    max_iterations: int,
    state: dict[str, NDArray[Any]] | None,
    checkpoint: Checkpoint,
    *,
    matrix_name: str,
    exponent: int,
    input_exponents: dict[str, int],
    attainable_tol: float,
) -> dict[str, Any]:
    """Solve ``X x = b`` for a matrix given by its product with a vector; see `cg`.

    Results and checkpoints hold ``2**exponent`` times the solution of this system. For
    `input_exponents` see `rescale`; `matrix_name` is for messages. A product may have
    the error ``attainable_tol ||X|| ||x||``.
    """
    from scipy.sparse.linalg import LinearOperator
    from scipy.sparse.linalg import cg as scipy_cg

    x0 = restore_array("x", state["x"], -exponent) if state else None
    done_iterations = int(state["iterations"]) if state else 0
    iterations_left = max(max_iterations - done_iterations, 1)
    rhs_norm = float(np.linalg.norm(b))
    updated_residual = b.copy()  # b - X x, as updated by the iteration
    last_product: tuple[NDArray[Any], float] | None = None  # X p and p'Xp of the last product
    norm_bound = 0.0  # lower bound on ||X|| from products

    def multiply_and_check(p: NDArray[Any]) -> NDArray[Any]:
        nonlocal last_product, norm_bound
        image = multiply(p)
        if p.any():
            norm_bound = max(norm_bound, float(np.linalg.norm(image) / np.linalg.norm(p)))
        curvature = float(p @ image)
        if not curvature > 0:  # SciPy divides by the curvature
            raise InputError(
                f"{matrix_name} is not positive definite: its curvature along a search direction "
                "is not positive"
            )
        if last_product is None and x0 is not None and x0.any():
            updated_residual[:] -= image  # the first product is X x0
        last_product = image, curvature
        return image

    def save_iterate(x: NDArray[Any]) -> None:
        nonlocal done_iterations
        done_iterations += 1
        checkpoint.save(x=rescale("x", x, exponent, input_exponents), iterations=done_iterations)
        if last_product is not None and rhs_norm:
            image, curvature = last_product
            step = (updated_residual @ updated_residual) / curvature
            updated_residual[:] -= step * image
            checkpoint.progress(residual=float(np.linalg.norm(updated_residual)) / rhs_norm)

    operator = LinearOperator((len(b), len(b)), matvec=multiply_and_check, dtype=np.float64)
    x, info = scipy_cg(operator, b, x0=x0, rtol=tol, maxiter=iterations_left, callback=save_iterate)
    residual = float(np.linalg.norm(multiply(x) - b)) / rhs_norm if rhs_norm else 0.0
    # If SciPy has converged, rounding may still keep the residual above `tol`.
    converged = residual <= (tol if info else 10 * tol)
    error = attainable_tol * norm_bound * float(np.linalg.norm(x)) / rhs_norm if rhs_norm else 0.0
    if converged and error > 10 * max(tol, attainable_tol):
        converged = False
        warn_caller(
            f"the residual {residual:.0e} may have an error of {error:.0e}, because products of X "
            f"with different machines differ by {attainable_tol:.0e} and X is ill-conditioned (a "
            "store of float64 is more accurate)",
            ToleranceWarning,
        )
    return {
        "result": rescale("x", x, exponent, input_exponents),
        "residual": residual,
        "iterations": done_iterations,
        "converged": converged,
    }
