"""Logistic regression with two classes."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_array, restore_state
from cec_mpi.tasks.common.options import (
    check_bool,
    check_fraction,
    check_integer,
    check_positive,
    read_vector,
    warn_of_scales,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.scaling import binary_exponent, normalise_operator, rescale
from cec_mpi.text import plural

# For X with entries of about 1; with a larger penalty the loss is linear in w to float64 precision.
_MAX_PENALTY_LOG2 = 60
_MAX_LINE_SEARCH = 50  # evaluations, as in scikit-learn


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
    """Fit logistic regression, like `sklearn.linear_model.LogisticRegression`, by L-BFGS.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    y : (q,) array_like or path of an .npy file
        Class of each sample: two distinct numbers.
    C : float
        Weight of the loss relative to the penalty, above 0.
    fit_intercept : bool
        Whether to fit an intercept c, which is not penalised.
    tol : float
        Iterations stop when all derivatives of the objective, divided by ``C q``, are below `tol`
        (for X of a magnitude below 1, also divided by this magnitude), or when the objective no
        longer decreases, up to rounding errors.
    iterations : int
        Maximum number of iterations; a resumed run makes at least one. Each makes one product with
        X and one with X', sometimes more. Before the first iteration, a product of X' with eight
        vectors measures the scales of columns, and one with X measures its magnitude.
    checkpoint : Checkpoint
        Saves the iterate ``x`` (the coefficients, then c if it is fitted) and ``iterations``. A
        later run continues from the iterate to the same `tol`.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, the coefficients w; ``intercept``: c; ``classes``: (2,) ndarray,
        ascending (the probability of the second class grows with ``x'w + c``); ``iterations``:
        number of iterations; ``converged``: whether `tol` was reached, or the objective no longer
        decreased.

    Raises
    ------
    InputError
        `y` does not have two classes, an option is out of range, the checkpoint does not match, or
        the coefficients are too large or too small for float64.

    Warns
    -----
    ScaleWarning
        Columns of X differ in scale by a factor of 300 or more. The solver is slow then, and may
        stop before it has fitted the coefficients of small columns.
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.

    Notes
    -----
    With s_i = -1 for the first class and 1 for the second, the task minimises ::

        C * sum_i log(1 + exp(-s_i (x_i' w + c))) + ||w||**2 / 2

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> results = logistic(aslinearoperator(samples), y=[0, 0, 1, 1])
    >>> bool(np.isclose(-results["intercept"] / results["result"], 1.5, atol=1e-3).all())
    True
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows, columns = X.shape
    labels = read_vector("y", y, rows)
    C = check_positive("C", C)
    fit_intercept = check_bool("fit_intercept", fit_intercept)
    tol = check_fraction("tol", tol)
    max_iterations = check_integer("iterations", iterations, 1)
    classes = np.unique(labels)
    if len(classes) != 2:
        raise InputError(f"y has {plural(len(classes), 'different value')}, expected two classes")
    signs = np.where(labels == classes[1], 1.0, -1.0)
    size = columns + fit_intercept
    state = restore_state(checkpoint, x=(size,), iterations=())
    done_iterations = int(state["iterations"]) if state else 0
    iterations_left = max(max_iterations - done_iterations, 1)
    warn_of_tolerance(X, "logistic", tol)
    operator, X_exponent = normalise_operator(X, "logistic")
    if not state:
        warn_of_scales(X, "logistic", has_intercept=fit_intercept, exponent=X_exponent)
    # The variable is v = 2**exponent w. If the penalty dominates the loss, v is enlarged by
    # 2**penalty_excess and the objective by `factor`, so that both stay near 1. The loss of the
    # intercept alone (base) is subtracted.
    mantissa, C_exponent = math.frexp(C)
    penalty_exponent = binary_exponent(1 / (mantissa * rows)) - C_exponent - 2 * X_exponent
    penalty_excess = max(0, penalty_exponent + penalty_exponent % 2)
    exponent = X_exponent + penalty_excess
    input_exponents = {"X": X_exponent, "C": C_exponent}
    penalty = float(np.ldexp(1 / (mantissa * rows), -C_exponent - 2 * X_exponent - penalty_excess))
    factor = 2.0 ** min(penalty_excess, _MAX_PENALTY_LOG2)
    c_factor = math.sqrt(factor)  # of the intercept in x
    base_intercept = math.log((signs > 0).sum() / (signs < 0).sum()) if fit_intercept else 0.0
    base_logits = -signs * base_intercept
    base_losses, base_errors = np.logaddexp(0.0, base_logits), expit(base_logits)
    start = np.zeros(size)
    if state:
        start[:columns] = restore_array("x", state["x"][:columns], exponent)
        start[columns:] = restore_array("x", state["x"][columns:] - base_intercept) * c_factor

    def objective(x: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return `factor` times the objective and its gradient; one product with X, one with X'."""
        v, c = x[:columns], x[columns:].sum() / c_factor
        logit_changes = -signs * (operator.matvec(v) / factor + c)
        loss_changes = np.where(
            np.abs(logit_changes) < 1,
            np.log1p(base_errors * np.expm1(np.clip(logit_changes, -1, 1))),
            np.logaddexp(0.0, base_logits + logit_changes) - base_losses,
        )
        slopes = -signs * expit(base_logits + logit_changes) / rows
        value = float(factor * loss_changes.mean() + penalty / 2 * (v @ v))
        gradient = operator.rmatvec(slopes) + penalty * v
        largest = rescale(
            "the gradient", np.abs(gradient).max(), X_exponent, input_exponents, may_underflow=True
        )
        checkpoint.progress(
            objective=float(base_losses.mean()) + value / factor,
            gradient=max(largest, abs(slopes.sum()) * fit_intercept),
        )
        if fit_intercept:
            gradient = np.append(gradient, slopes.sum() * c_factor)
        return value, gradient

    def unscale(x: NDArray[Any]) -> NDArray[Any]:
        w = rescale("the coefficients", x[:columns], -exponent, input_exponents)
        return np.append(w, base_intercept + x[columns:] / c_factor)

    def save_iterate(x: NDArray[Any]) -> None:
        nonlocal done_iterations
        done_iterations += 1
        checkpoint.save(x=unscale(x), iterations=done_iterations)

    optimum = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=save_iterate,
        options={
            "maxiter": iterations_left,
            "maxfun": (_MAX_LINE_SEARCH + 1) * (iterations_left + 1),
            "maxls": _MAX_LINE_SEARCH,
            "gtol": tol * min(1.0, float(np.ldexp(1.0, -X_exponent))),
            "ftol": 64 * np.finfo(np.float64).eps,  # scikit-learn's choice
        },
    )
    x = unscale(optimum.x)
    return {
        "result": x[:columns],
        "intercept": float(x[columns:].sum()),
        "classes": classes,
        "iterations": done_iterations,
        "converged": optimum.status == 0,
    }
