"""Truncated singular value decomposition."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError, ToleranceWarning
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.common.lanczos import Lanczos, lanczos_state
from cec_mpi.tasks.common.options import fraction, warn_of_tolerance, whole
from cec_mpi.tasks.common.units import divided, rescale, scaled

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_NEARLY = 1 - 1e-6  # of the largest entry
_DETECTABLE = (
    50.0  # times the error of products: squares of singular values above it have two correct digits
)


def svd(
    X: Any,
    *,
    k: int = 6,
    tol: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Compute the k largest singular values of X and their vectors by a restarted Lanczos method.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    k : int
        Number of singular values, from 1 to ``min(q, r)``.
    tol : float
        Relative accuracy of the singular values, as in SciPy's ``svds``; 0 stands for the best
        possible.
    iterations : int, optional
        Largest number of iterations, of one product with X and one with X' each; a resumed run
        makes at least one. By default ``100 * min(q, r)``. One product before them measures the
        size of X, and one with a block of k vectors follows them.
    seed : int
        Seed of the first vector, which is random.
    checkpoint : Checkpoint
        Keeps at most ``2 k + 20`` vectors on the shorter side of X, ``basis``, and X'X (or XX')
        projected on them, ``projected``. A later run makes the same iterations as an uninterrupted
        one.

    Returns
    -------
    dict
        ``result``: (k,) ndarray, the singular values in decreasing order; ``u``: (q, k) ndarray,
        left singular vectors; ``vt``: (k, r) ndarray, right singular vectors, each with a positive
        entry of largest absolute value; ``iterations``: their number; ``converged``: if this is
        False, the results hold only the triplets that have converged, possibly none.

    Raises
    ------
    InputError
        An option is out of range, a product is not finite, the checkpoint does not fit, or the
        singular values are too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``, or singular values are too small to be accurate.

    Notes
    -----
    As in ``svds``, the vectors v on the shorter side of X are eigenvectors of X'X (or XX'), and
    values, and vectors on the other side, are those of ``X [v_1 ... v_k]``. Singular values
    below 1e-7 of the largest are not accurate, and a warning says so. Iterations end when the
    residual of each eigenvector is below ``max(tol, 1.5e-8)**2`` times its eigenvalue, or as
    small as the errors of products, which are measured on the way.

    From one start vector, the method finds one singular vector for each singular value. To find
    singular values that X has more than once, a few more iterations start from another random
    vector.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> found = svd(aslinearoperator(np.diag([1.0, 2.0, 5.0, 3.0])), k=2)
    >>> found["result"].round(6)
    array([5., 3.])
    """
    check_options(X, k, tol, iterations, seed)
    warn_of_tolerance(X, "svd", tol)
    operator, of_X, state = prepare(X, "svd", k, checkpoint)
    u, s, vt, ending = leading_triplets(operator, of_X, k, tol, iterations, seed, state, checkpoint)
    s = rescale("the largest singular value", s, of_X, {"X": of_X})
    return {"result": s, "u": u, "vt": vt, **ending}


def check_options(X: Any, k: int, tol: float, iterations: int | None, seed: int) -> None:
    """Raise if `leading_triplets` cannot use these options."""
    rows, columns = X.shape
    most = min(rows, columns)
    if whole("k", k, 1) > most:
        raise InputError(
            f"k {k}: expected 1 to {most} for a {rows} x {columns} matrix (its smaller side)"
        )
    fraction("tol", tol, zero=True)
    whole("seed", seed, 0)
    if iterations is not None:
        whole("iterations", iterations, 1)


def prepare(
    X: Any, task: str, k: int, checkpoint: Checkpoint
) -> tuple[LinearOperator, int, dict[str, NDArray[Any]] | None]:
    """Return X divided by a power of two, its exponent, and the state of an earlier run.

    The exponent is part of the state, which belongs to the divided X.
    """
    state = lanczos_state(checkpoint, min(X.shape), k)
    if state is None:
        return *scaled(X, task), None
    exponent = int(state["exponent"][0])
    return divided(X, exponent), exponent, state


def leading_triplets(
    X: Any,
    exponent: int,
    k: int,
    tol: float,
    iterations: int | None,
    seed: int,
    state: dict[str, NDArray[Any]] | None,
    checkpoint: Checkpoint,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    """Return the results of `svd` for an operator and a state from `prepare`."""
    tall = X.shape[0] >= X.shape[1]
    product, adjoint = (X.matvec, X.rmatvec) if tall else (X.rmatvec, X.matvec)
    lanczos = Lanczos(min(X.shape), k, tol, seed, state)
    most = max(iterations or 100 * min(X.shape), lanczos.iterations + 1)
    while not lanczos.converged and lanczos.iterations < most:
        lanczos.advance(_check_product(adjoint(product(lanczos.vector))))
        if not lanczos.converged:
            checkpoint.save(exponent=np.array([float(exponent)]), **lanczos.state())
        checkpoint.progress(residual=lanczos.residual)
    vectors = np.linalg.qr(lanczos.found()).Q
    block = np.empty((max(X.shape), 0))
    if vectors.size:
        block = _check_product((X.matmat if tall else X.rmatmat)(vectors))
    outer, s, turn = np.linalg.svd(block, full_matrices=False)
    inner = vectors @ turn.T
    u, vt = (outer, inner.T) if tall else (inner, outer.T)
    signs = _largest_entry_signs(vt)
    _warn_of_noise(s, lanczos.noise)
    ending = {"iterations": lanczos.iterations, "converged": lanczos.converged}
    return u * signs, s, vt * signs[:, np.newaxis], ending


def _warn_of_noise(s: NDArray[Any], noise: float) -> None:
    """Warn of singular values whose squares are not much larger than the errors of X' (X v).

    A few products may show no error, but rounding errors exist nevertheless.
    """
    if not s.size:
        return
    least = math.sqrt(_DETECTABLE * max(noise, np.finfo(np.float64).eps * s[0] ** 2))
    if s[-1] < least:
        warnings.warn(
            f"{int((s < least).sum())} of {s.size} singular values are below {least / s[0]:.0e} "
            "times the largest one, and may have errors of more than 1 %, because products with X "
            "are not accurate enough (use a smaller k to leave them out)",
            ToleranceWarning,
            stacklevel=3,
        )


def _check_product(product: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(product).all():
        raise InputError("no singular vectors found: a product holds infinity or NaN")
    return product


def _largest_entry_signs(vt: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sign of the first entry of each row that is nearly the largest one.

    Rounding errors must not decide between entries that differ in sign alone, as of waves.
    """
    sizes = np.abs(vt)
    largest = (sizes >= _NEARLY * sizes.max(axis=1, keepdims=True)).argmax(axis=1)
    return np.where(vt[np.arange(len(vt)), largest] < 0, -1.0, 1.0)
