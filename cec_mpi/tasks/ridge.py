"""Ridge regression."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.tasks.cg import conjugate_gradients
from cec_mpi.tasks.common.centring import centre_columns
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_state
from cec_mpi.tasks.common.options import (
    check_bool,
    check_fraction,
    check_integer,
    check_positive,
    read_vector,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.scaling import (
    binary_exponent,
    normalise_operator,
    normalise_vector,
    rescale,
)

# For X with entries of about 1; with a larger alpha, w is X'y / alpha to float64 precision.
_MAX_ALPHA_LOG2 = 128


def ridge(
    X: Any,
    *,
    y: ArrayLike | os.PathLike[str],
    alpha: float = 1.0,
    fit_intercept: bool = True,
    tol: float = 1e-8,
    iterations: int = 1000,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Fit ridge regression, like `sklearn.linear_model.Ridge`, by conjugate gradients.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    y : (q,) array_like or path of an .npy file
        Targets.
    alpha : float
        Weight of the penalty, at least 0.
    fit_intercept : bool
        Whether to fit an intercept c, which is not penalised.
    tol : float
        Iterations stop when the norm of the residual of the normal equations is at most `tol` times
        that of their right-hand side.
    iterations : int
        Maximum number of iterations, with one product with X and one with X' each. Two more
        products check the result, and four (three without intercept) precede the iterations.
    checkpoint : Checkpoint
        Saves the iterate ``x``, (r,), and ``iterations``. A later run continues from the iterate to
        the same `tol`, with new search directions.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the coefficients w; ``intercept``: c; ``residual``: relative
        residual of the normal equations; ``iterations``: number of iterations; ``converged``:
        whether `tol` was reached, see `cg`.

    Raises
    ------
    InputError
        An option is out of range, the checkpoint does not match, `alpha` is 0 and the normal
        equations are singular, w or c is too large for float64, or w is too small.

    Warns
    -----
    ScaleWarning
        Rows or columns of X differ in magnitude by a factor of more than 1e100.
    ToleranceWarning
        `tol` is below ``X.attainable_tol``, or the normal equations are too ill-conditioned for the
        accuracy of products of X, see `cg`.

    Notes
    -----
    The task minimises ``||y - X w - c 1||**2 + alpha ||w||**2``. With the means m of the rows of X
    and n of y, the normal equations are ::

        (X - 1 m')' (X - 1 m') w + alpha w = (X - 1 m')' (y - n 1),    c = n - m' w

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[1.0], [2.0], [3.0]])
    >>> results = ridge(aslinearoperator(samples), y=[3, 5, 7], alpha=2)
    >>> results["result"].round(6), round(results["intercept"], 6)
    (array([1.]), 3.0)
    """
    rows, columns = X.shape
    targets = read_vector("y", y, rows)
    alpha = check_positive("alpha", alpha, allow_zero=True)
    fit_intercept = check_bool("fit_intercept", fit_intercept)
    tol = check_fraction("tol", tol)
    max_iterations = check_integer("iterations", iterations, 1)
    warn_of_tolerance(X, "ridge", tol)
    state = restore_state(checkpoint, x=(columns,), iterations=())
    operator, X_exponent = normalise_operator(X, "ridge", warn_of_ratios=True)
    targets, y_exponent = normalise_vector(targets)
    mean, y_mean = np.zeros(columns), 0.0
    if fit_intercept:
        operator, mean = centre_columns(operator)
        y_mean = float(targets.mean())
    rhs = operator.rmatvec(targets - y_mean)
    alpha_exponent = binary_exponent(alpha)
    alpha_excess = max(0, alpha_exponent - 2 * X_exponent - _MAX_ALPHA_LOG2) if alpha else 0
    # Reducing such a large penalty only multiplies w by 2**alpha_excess.
    penalty = float(np.ldexp(alpha, -2 * X_exponent - alpha_excess))
    exponent = y_exponent - X_exponent - alpha_excess
    input_exponents = {"X": X_exponent, "y": y_exponent}
    if alpha:
        input_exponents["alpha"] = alpha_exponent

    def multiply_normal_matrix(w: NDArray[Any]) -> NDArray[Any]:
        return operator.rmatvec(operator.matvec(w)) + penalty * w  # type: ignore[no-any-return]

    solution = conjugate_gradients(
        multiply_normal_matrix,
        rhs,
        tol,
        max_iterations,
        state,
        checkpoint,
        matrix_name="the matrix of the normal equations",
        exponent=exponent,
        input_exponents=input_exponents,
        attainable_tol=float(getattr(X, "attainable_tol", 0.0)),
    )
    intercept = y_mean - float(mean @ np.ldexp(solution["result"], X_exponent - y_exponent))
    return {
        **solution,
        "intercept": rescale(
            "the intercept", intercept, y_exponent, input_exponents, may_underflow=True
        ),
    }
