"""Ridge regression."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.tasks.cg import conjugate_gradients
from cec_mpi.tasks.common.centred import centred
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_state
from cec_mpi.tasks.common.options import flag, fraction, positive, vector, warn_of_tolerance, whole
from cec_mpi.tasks.common.units import binary_exponent, normalise, rescale, scaled

_LARGEST_ALPHA = 128  # log2, for X of about 1: above it w is X'y / alpha to the last digit


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
    """Compute ridge regression, like scikit-learn's ``Ridge``, by conjugate gradients.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    y : (q,) array_like or path of an .npy file
        Targets.
    alpha : float
        Weight of the penalty, at least 0.
    fit_intercept : bool
        Whether to fit a constant c, which is not penalised.
    tol : float
        Tolerance: iterations stop when the residual of the normal equations is at most `tol` times
        their right-hand side, in norm.
    iterations : int
        Largest number of iterations, of one product with X and one with X' each. One more pair
        checks the result, and four products (three without intercept) come before.
    checkpoint : Checkpoint
        Keeps the iterate ``x``, (r,), and ``iterations``. A later run continues from the iterate to
        the same `tol`, with new search directions.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the coefficients w; ``intercept``: c; ``residual``: that of the
        normal equations, relative as above; ``iterations``: their number; ``converged``: whether
        `tol` was reached, as in `cg`.

    Raises
    ------
    InputError
        An option is out of range, the checkpoint does not fit, `alpha` is 0 and the normal
        equations are singular, w or c is too large for float64, or w is too small.

    Warns
    -----
    ScaleWarning
        Rows or columns of X differ in size by more than 1e100.
    ToleranceWarning
        `tol` is below ``X.attainable``, or the normal equations are too ill-conditioned for the
        accuracy of products of X, as in `cg`.

    Notes
    -----
    The task minimises ``||y - X w - c 1||**2 + alpha ||w||**2``. With the means m of the rows of X
    and n of y, the normal equations are ::

        (X - 1 m')' (X - 1 m') w + alpha w = (X - 1 m')' (y - n 1),    c = n - m' w

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[1.0], [2.0], [3.0]])
    >>> found = ridge(aslinearoperator(samples), y=[3, 5, 7], alpha=2)
    >>> found["result"].round(6), round(found["intercept"], 6)
    (array([1.]), 3.0)
    """
    rows, columns = X.shape
    targets = vector("y", y, rows)
    alpha = positive("alpha", alpha, zero=True)
    fit_intercept = flag("fit_intercept", fit_intercept)
    tol = fraction("tol", tol)
    most = whole("iterations", iterations, 1)
    warn_of_tolerance(X, "ridge", tol)
    state = restore_state(checkpoint, x=(columns,), iterations=())
    operator, of_X = scaled(X, "ridge", spans=True)
    targets, of_y = normalise(targets)
    mean, level = np.zeros(columns), 0.0
    if fit_intercept:
        operator, mean = centred(operator)
        level = float(targets.mean())
    right = operator.rmatvec(targets - level)
    of_alpha = binary_exponent(alpha)
    excess = max(0, of_alpha - 2 * of_X - _LARGEST_ALPHA) if alpha else 0
    penalty = float(np.ldexp(alpha, -2 * of_X - excess))
    exponent, sizes = of_y - of_X - excess, {"X": of_X, "y": of_y}
    if alpha:
        sizes["alpha"] = of_alpha

    def normal(w: NDArray[Any]) -> NDArray[Any]:
        return operator.rmatvec(operator.matvec(w)) + penalty * w  # type: ignore[no-any-return]

    attainable = float(getattr(X, "attainable", 0.0))
    found = conjugate_gradients(
        normal, right, tol, most, state, checkpoint, exponent, sizes, attainable
    )
    intercept = level - float(mean @ np.ldexp(found["result"], of_X - of_y))
    return {**found, "intercept": rescale("the intercept", intercept, of_y, sizes, zero=True)}
