"""Linear least squares."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_array, restore_state
from cec_mpi.tasks.common.options import (
    check_choice,
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

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_CONVERGED_CODES = {0, 1, 2, 4, 5}  # SciPy's codes; 3 and 6 mean that X is too ill-conditioned
_LIMIT_REACHED = 7
# For X with entries of about 1; with a larger d, x is X'b / d**2 to float64 precision.
_MAX_DAMP_LOG2 = 64
_MIN_CYCLE_ITERATIONS = 50  # a restart loses the Krylov space of the previous cycle


def lstsq(
    X: Any,
    *,
    b: ArrayLike | os.PathLike[str],
    damp: float = 0.0,
    tol: float = 1e-10,
    conlim: float = 1e8,
    iterations: int = 1000,
    solver: str = "lsmr",
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Solve a linear least-squares problem, by SciPy's LSMR or LSQR.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    b : (q,) array_like or path of an .npy file
        The right-hand side.
    damp : float
        Damping d, at least 0; the matrix of the problem is ``A = [X; d I]``.
    tol : float
        SciPy's ``atol`` and ``btol``: iterations stop when
        ``||A'(c - A x)|| <= tol ||A|| ||c - A x||`` or
        ``||c - A x|| <= tol (||A|| ||x|| + ||c||)``, with an estimate of ``||A||`` and
        ``c = [b; 0]``.
    conlim : float
        Iterations stop without convergence if the estimated condition number of A is larger.
    iterations : int
        Maximum number of iterations, with one product with X and one with X' each; a resumed run
        performs at least one. Two more products measure the magnitudes of X, its rows and its
        columns, one starts the solver, and two check the result.
    solver : {"lsmr", "lsqr"}
        SciPy's solver.
    checkpoint : Checkpoint
        Saves ``x``, (r,), and ``iterations``. If checkpoints are written, the solver is restarted
        from x after ``every // 2`` iterations, but at least 50. This takes more iterations.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, x; ``residual``: ``||b - X x||``; ``iterations``: number of
        iterations; ``converged``: False if `iterations` was too small, A is too ill-conditioned, or
        x meets neither condition with ``10 max(tol, X.attainable_tol)`` instead of `tol`.

    Raises
    ------
    InputError
        An option is out of range, the checkpoint does not match, or x is too large or too small
        for float64.

    Warns
    -----
    ScaleWarning
        Rows or columns of X differ in magnitude by a factor of more than 1e100.
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.

    Notes
    -----
    The task minimises ``||b - X x||**2 + d**2 ||x||**2 = ||c - A x||**2``. In this form the minimum
    does not depend on the start; the damping of the solvers themselves is relative to the start.
    Without damping, if X has dependent columns, x is the solution of minimum norm.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> line = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> lstsq(aslinearoperator(line), b=[1, 3, 5])["result"].round(6)
    array([1., 2.])
    """
    rows, columns = X.shape
    b = read_vector("b", b, rows)
    damp = check_positive("damp", damp, allow_zero=True)
    tol = check_fraction("tol", tol)
    conlim = check_positive("conlim", conlim)
    max_iterations = check_integer("iterations", iterations, 1)
    solver = check_choice("solver", solver, ("lsmr", "lsqr"))
    warn_of_tolerance(X, "lstsq", tol)
    state = restore_state(checkpoint, x=(columns,), iterations=())
    done_iterations = int(state["iterations"]) if state else 0
    max_iterations = max(max_iterations, done_iterations + 1)
    operator, X_exponent = normalise_operator(X, "lstsq", warn_of_ratios=True)
    scaled_b, b_exponent = normalise_vector(b)
    damp_excess = max(0, binary_exponent(damp) - X_exponent - _MAX_DAMP_LOG2) if damp else 0
    # Reducing such a large damping only multiplies x by 2**(2 * damp_excess).
    damp = float(np.ldexp(damp, -X_exponent - damp_excess))
    exponent = b_exponent - X_exponent - 2 * damp_excess
    input_exponents = {"X": X_exponent, "b": b_exponent}
    x: Any = restore_array("x", state["x"], -exponent) if state else None
    system, rhs = operator, scaled_b
    if damp:
        input_exponents["damp"] = binary_exponent(damp) + X_exponent + damp_excess
        system, rhs = _stack_damping(operator, damp), np.append(scaled_b, np.zeros(columns))
    stop_code, norm_estimate = _LIMIT_REACHED, 0.0
    while stop_code == _LIMIT_REACHED and done_iterations < max_iterations:
        if x is not None:
            checkpoint.save(
                x=rescale("x", x, exponent, input_exponents), iterations=done_iterations
            )
        cycle_iterations = max_iterations - done_iterations
        if checkpoint.wanted:
            cycle_iterations = min(
                cycle_iterations, max(_MIN_CYCLE_ITERATIONS, checkpoint.every // 2)
            )
        x, stop_code, new_iterations, residual, norm_estimate = _solve(
            solver, system, rhs, tol, conlim, cycle_iterations, x
        )
        done_iterations += new_iterations
        checkpoint.progress(residual=float(np.ldexp(residual, b_exponent)))
    system_residual = rhs - system.matvec(x)
    true_residual = system_residual[:rows]
    if damp_excess:
        true_residual = scaled_b - operator.matvec(np.ldexp(x, -2 * damp_excess))
    residual_norm = np.linalg.norm(system_residual)
    gradient_norm = np.linalg.norm(system.rmatvec(system_residual))
    tolerance = 10 * max(
        tol, float(getattr(X, "attainable_tol", 0.0)), float(np.finfo(np.float64).eps)
    )
    is_solved = (
        gradient_norm <= tolerance * norm_estimate * residual_norm
        or residual_norm <= tolerance * (norm_estimate * np.linalg.norm(x) + np.linalg.norm(rhs))
    )
    return {
        "result": rescale("x", x, exponent, input_exponents),
        "residual": rescale(
            "the residual",
            np.linalg.norm(true_residual),
            b_exponent,
            input_exponents,
            may_underflow=True,
        ),
        "iterations": done_iterations,
        "converged": stop_code in _CONVERGED_CODES and bool(is_solved),
    }


def _solve(
    solver: str,
    operator: Any,
    rhs: NDArray[np.float64],
    tol: float,
    conlim: float,
    cycle_iterations: int,
    x0: NDArray[Any] | None,
) -> tuple[NDArray[np.float64], int, int, float, float]:
    """Return the solution, SciPy's stop code, iterations, the residual, and ||A||."""
    from scipy.sparse.linalg import lsmr, lsqr

    if solver == "lsmr":
        result = lsmr(
            operator, rhs, atol=tol, btol=tol, conlim=conlim, maxiter=cycle_iterations, x0=x0
        )
    else:
        result = lsqr(
            operator, rhs, atol=tol, btol=tol, conlim=conlim, iter_lim=cycle_iterations, x0=x0
        )
    # The estimate of ||A|| grows with the iterations beyond the smaller dimension of A.
    norm_estimate = float(result[5]) / math.sqrt(max(1.0, result[2] / min(operator.shape)))
    return result[0], int(result[1]), int(result[2]), float(result[3]), norm_estimate


def _stack_damping(X: Any, damp: float) -> LinearOperator:
    """Return the operator [X; damp I]."""
    from scipy.sparse.linalg import LinearOperator

    rows, columns = X.shape
    return LinearOperator(
        (rows + columns, columns),
        matvec=lambda x: np.append(X.matvec(x), damp * x),
        rmatvec=lambda u: X.rmatvec(u[:rows]) + damp * u[rows:],
        dtype=np.dtype(np.float64),
    )
