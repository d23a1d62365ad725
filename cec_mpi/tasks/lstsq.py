"""Linear least squares."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, initial_vector, restore_state
from cec_mpi.tasks.common.options import (
    check_choice,
    fraction,
    positive,
    vector,
    warn_of_tolerance,
    whole,
)
from cec_mpi.tasks.common.units import binary_exponent, normalise, rescale, scaled

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_CONVERGED = {0, 1, 2, 4, 5}  # SciPy's codes of success; 3 and 6: X is too ill-conditioned
_LIMIT_REACHED = 7
_LARGEST_DAMP = 64  # log2, for X of about 1: above it x is X'b / d**2 to the last digit
_SHORTEST_ROUND = 50  # iterations: each round starts without the knowledge of X from the last one


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
    """Least squares, by SciPy's LSMR or LSQR.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    b : (q,) array_like or path of an .npy file
        The right-hand side.
    damp : float
        Damping d, at least 0.
    tol : float
        SciPy's ``atol`` and ``btol``: iterations stop when ``||A'(c - A x)|| <= tol ||A|| ||c - A
        x||`` or ``||c - A x|| <= tol (||A|| ||x|| + ||c||)``, with A and c as below and an estimate
        of ``||A||``.
    conlim : float
        Iterations stop without convergence if the estimated condition number of A is larger.
    iterations : int
        Largest number of iterations, of one product with X and one with X' each; a resumed run
        makes at least one. Two products before them measure the size of X, of its rows and of its
        columns, and a pair after them checks the result.
    solver : {"lsmr", "lsqr"}
        Solver of SciPy.
    checkpoint : Checkpoint
        Keeps ``x``, (r,), and ``iterations``. If checkpoints are written, the solver is restarted
        from its x after ``every // 2`` iterations, but at least 50. This takes more iterations.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, x; ``residual``: ``||b - X x||``; ``iterations``: their number;
        ``converged``: False if `iterations` were too few, A is too ill-conditioned, or x meets
        neither condition with ``10 tol`` (or what products of X attain) in the place of `tol`.

    Raises
    ------
    InputError
        An option is out of range, the checkpoint does not fit, or x is too large or too small
        for float64.

    Warns
    -----
    ScaleWarning
        Rows or columns of X differ in size by more than 1e100.
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Notes
    -----
    The task minimises ``||b - X x||**2 + d**2 ||x||**2``, which is ``||c - A x||**2`` with A = [X;
    d I] and c = [b; 0]. So a start from another x than 0 does not change the minimum, as it would
    with the solvers' own damping. Without damping, if X has dependent columns, x is the shortest of
    the solutions.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> line = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> lstsq(aslinearoperator(line), b=[1, 3, 5])["result"].round(6)
    array([1., 2.])
    """
    rows, columns = X.shape
    b = vector("b", b, rows)
    damp = positive("damp", damp, zero=True)
    tol = fraction("tol", tol)
    conlim = positive("conlim", conlim)
    most = whole("iterations", iterations, 1)
    solver = check_choice("solver", solver, ("lsmr", "lsqr"))
    warn_of_tolerance(X, "lstsq", tol)
    state = restore_state(checkpoint, x=(columns,), iterations=())
    made = int(state["iterations"]) if state else 0
    most = max(most, made + 1)
    operator, of_X = scaled(X, "lstsq", spans=True)
    target, of_b = normalise(b)
    excess = max(0, binary_exponent(damp) - of_X - _LARGEST_DAMP) if damp else 0
    damp = float(np.ldexp(damp, -of_X - excess))
    exponent, sizes = of_b - of_X - 2 * excess, {"X": of_X, "b": of_b}
    x: Any = initial_vector("x", state["x"], -exponent) if state else None
    system, right = operator, target
    if damp:
        sizes["damp"] = binary_exponent(damp) + of_X + excess
        system, right = _stack_damping(operator, damp), np.append(target, np.zeros(columns))
    reason, size = _LIMIT_REACHED, 0.0
    while reason == _LIMIT_REACHED and made < most:
        if x is not None:
            checkpoint.save(x=rescale("x", x, exponent, sizes), iterations=made)
        limit = most - made
        if checkpoint.wanted:
            limit = min(limit, max(_SHORTEST_ROUND, checkpoint.every // 2))
        x, reason, done, residual, size = _solve(solver, system, right, tol, conlim, limit, x)
        made += done
        checkpoint.progress(residual=float(np.ldexp(residual, of_b)))
    rest = right - system.matvec(x)
    left = np.linalg.norm(
        target - operator.matvec(np.ldexp(x, -2 * excess)) if excess else rest[:rows]
    )
    length, gradient = np.linalg.norm(rest), np.linalg.norm(system.rmatvec(rest))
    near = 10 * max(tol, float(getattr(X, "attainable", 0.0)), float(np.finfo(np.float64).eps))
    is_near = gradient <= near * size * length or length <= near * (
        size * np.linalg.norm(x) + np.linalg.norm(right)
    )
    return {
        "result": rescale("x", x, exponent, sizes),
        "residual": rescale("the residual", left, of_b, sizes, zero=True),
        "iterations": made,
        "converged": reason in _CONVERGED and bool(is_near),
    }


def _solve(
    solver: str,
    operator: Any,
    right: NDArray[np.float64],
    tol: float,
    conlim: float,
    limit: int,
    start: NDArray[Any] | None,
) -> tuple[NDArray[np.float64], int, int, float, float]:
    """Return the solution, SciPy's code for the end, iterations, the residual, and ||A||."""
    from scipy.sparse.linalg import lsmr, lsqr

    if solver == "lsmr":
        found = lsmr(operator, right, atol=tol, btol=tol, conlim=conlim, maxiter=limit, x0=start)
    else:
        found = lsqr(operator, right, atol=tol, btol=tol, conlim=conlim, iter_lim=limit, x0=start)
    # The estimate of ||A|| is a sum over iterations, which should be no more than A has columns.
    size = float(found[5]) / math.sqrt(max(1.0, found[2] / min(operator.shape)))
    return found[0], int(found[1]), int(found[2]), float(found[3]), size


def _stack_damping(X: Any, damp: float) -> LinearOperator:
    """[X; damp I]."""
    from scipy.sparse.linalg import LinearOperator

    rows, columns = X.shape
    return LinearOperator(
        (rows + columns, columns),
        matvec=lambda x: np.append(X.matvec(x), damp * x),
        rmatvec=lambda u: X.rmatvec(u[:rows]) + damp * u[rows:],
        dtype=np.dtype(np.float64),
    )
