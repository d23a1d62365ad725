"""Logistic regression with two classes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restored
from cec_mpi.tasks.common.options import flag, fraction, positive, vector, whole
from cec_mpi.tasks.common.scales import warn_of_scales
from cec_mpi.tasks.common.tolerances import warn_of_tolerance
from cec_mpi.text import plural

_LINE_SEARCH = 50  # evaluations at most: scikit-learn's choice


def logistic(
    X: Any,
    *,
    y: ArrayLike | os.PathLike[str],
    C: float = 1.0,
    fit_intercept: bool = True,
    tol: float = 1e-4,
    iterations: int = 1000,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Logistic regression, as scikit-learn's ``LogisticRegression``, by L-BFGS.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    y : (q,) array_like or path of an .npy file
        The class of each sample: two different numbers.
    C : float
        The weight of the loss against the penalty, above 0.
    fit_intercept : bool
        Whether there is a constant c; it is not penalised.
    tol : float
        Converged when no derivative of the objective, divided by ``C q``, is larger. Also where
        the objective no longer decreases, up to rounding errors.
    iterations : int
        The most iterations, after an earlier run at least one more. Each takes one product with
        X and one with X', now and then more. Before the first one, a product of X' with eight
        vectors sees how columns are scaled.
    checkpoint : Checkpoint
        Keeps the iterate ``x``, the coefficients and, with an intercept, c after them, and
        ``iterations``: a later run goes on from the iterate, to the same `tol`.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the coefficients w; ``intercept``: c; ``classes``: (2,)
        ndarray, ascending, and the second is the more probable the larger ``x'w + c``;
        ``iterations``: how many were made; ``converged``: whether `tol` was met, or the objective
        no longer decreased.

    Raises
    ------
    InputError
        `y` has not two classes, an option is out of range, or the checkpoint does not fit.

    Warns
    -----
    ScaleWarning
        Columns of X differ in scale by a factor of 300 and more: it is slow, and may end where
        the small ones have hardly been fitted.
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Notes
    -----
    With s_i = -1 for the first class and 1 for the second, minimises ::

        C * sum_i log(1 + exp(-s_i (x_i' w + c))) + ||w||**2 / 2

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> found = logistic(aslinearoperator(samples), y=[0, 0, 1, 1])
    >>> bool(np.isclose(-found["intercept"] / found["result"], 1.5, atol=1e-3).all())
    True
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows, columns = X.shape
    labels = vector("y", y, rows)
    C = positive("C", C)
    fit_intercept = flag("fit_intercept", fit_intercept)
    tol = fraction("tol", tol)
    most = whole("iterations", iterations, 1)
    classes = np.unique(labels)
    if len(classes) != 2:
        raise InputError(f"y has {plural(len(classes), 'different value')}: expected two classes")
    signs = np.where(labels == classes[1], 1.0, -1.0)
    size = columns + fit_intercept
    state = restored(checkpoint, x=(size,), iterations=())
    start = state["x"] if state else np.zeros(size)
    made = int(state["iterations"]) if state else 0
    limit = max(most - made, 1)
    warn_of_tolerance(X, "logistic", tol)
    if not state:
        warn_of_scales(X, "logistic", centred=fit_intercept)

    def objective(x: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """The objective and its gradient, divided by ``C q``: one product with X, one with X'."""
        w, c = x[:columns], x[columns:].sum()
        margins = signs * (X.matvec(w) + c)
        slopes = -signs * expit(-margins) / rows
        value = float(np.logaddexp(0.0, -margins).mean() + w @ w / (2 * C * rows))
        gradient = X.rmatvec(slopes) + w / (C * rows)
        if fit_intercept:
            gradient = np.append(gradient, slopes.sum())
        checkpoint.progress(objective=value, gradient=float(np.abs(gradient).max()))
        return value, gradient

    def keep(x: NDArray[Any]) -> None:
        nonlocal made
        made += 1
        checkpoint.save(x=x, iterations=made)

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=keep,
        options={
            "maxiter": limit,
            "maxfun": (_LINE_SEARCH + 1) * (limit + 1),
            "maxls": _LINE_SEARCH,
            "gtol": tol,
            "ftol": 64 * np.finfo(np.float64).eps,  # scikit-learn's choice
        },
    )
    return {
        "result": found.x[:columns],
        "intercept": float(found.x[columns:].sum()),
        "classes": classes,
        "iterations": made,
        "converged": found.status == 0,
    }
