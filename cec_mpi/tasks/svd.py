"""Truncated singular value decomposition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError, ToleranceWarning
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.common.lanczos import Lanczos, restore_lanczos
from cec_mpi.tasks.common.options import check_fraction, check_integer, warn_of_tolerance
from cec_mpi.tasks.common.scaling import divide_operator, normalise_operator, rescale
from cec_mpi.text import warn_caller

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_NEARLY_LARGEST = 1 - 1e-6  # relative to the largest entry
# A singular value has two correct digits if its square is this multiple of the errors of products.
_MIN_SQUARE_RATIO = 50.0


def svd(
    X: Any,
    *,
    k: int = 6,
    tol: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Compute the k largest singular triplets of X by a restarted Lanczos method.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    k : int
        Number of singular values, from 1 to ``min(q, r)``.
    tol : float
        Relative accuracy of the singular values, as in SciPy's ``svds``; 0 requests the best
        possible.
    iterations : int, optional
        Maximum number of iterations, with one product with X and one with X' each; a resumed run
        makes at least one. By default ``100 * min(q, r)``. One more product measures the
        magnitude of X, and another multiplies a block of k vectors at the end.
    seed : int
        Seed of the random first vector.
    checkpoint : Checkpoint
        Saves at most ``2 k + 20`` vectors on the shorter side of X, ``basis``, and the projection
        of X'X (or XX') on them, ``projected``. A later run makes the same iterations as an
        uninterrupted one.

    Returns
    -------
    dict
        ``result``: (k,) ndarray, the singular values, descending; ``u``: (q, k) ndarray, left
        singular vectors; ``vt``: (k, r) ndarray, right singular vectors, each with a positive entry
        of largest absolute value; ``iterations``: number of iterations; ``converged``: if False,
        the results have only the converged triplets, possibly none.

    Raises
    ------
    InputError
        An option is out of range, a product is not finite, the checkpoint does not match, or the
        singular values are too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``, or singular values are too small to be accurate.

    Notes
    -----
    As in ``svds``, the vectors v on the shorter side of X are eigenvectors of X'X (or XX'). The
    singular values and the vectors on the other side come from ``X [v_1 ... v_k]``. Singular values
    below 1e-7 of the largest are inaccurate and cause a warning. Iterations stop when the residual
    of each eigenvector is below ``max(tol, 1.5e-8)**2`` times its eigenvalue, or as small as the
    observed errors of products.

    From one start vector, the method finds one singular vector for each distinct singular value. A
    few more iterations from another random vector find repeated singular values.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> results = svd(aslinearoperator(np.diag([1.0, 2.0, 5.0, 3.0])), k=2)
    >>> results["result"].round(6)
    array([5., 3.])
    """
    check_svd_options(X, k, tol, iterations, seed)
    warn_of_tolerance(X, "svd", tol)
    operator, X_exponent, state = prepare_lanczos(X, "svd", k, checkpoint)
    u, s, vt, status = compute_triplets(
        operator, X_exponent, k, tol, iterations, seed, state, checkpoint
    )
    s = rescale("the largest singular value", s, X_exponent, {"X": X_exponent})
    return {"result": s, "u": u, "vt": vt, **status}


def check_svd_options(X: Any, k: int, tol: float, iterations: int | None, seed: int) -> None:
    """Raise if `compute_triplets` cannot use these options."""
    rows, columns = X.shape
    limit = min(rows, columns)
    if check_integer("k", k, 1) > limit:
        raise InputError(
            f"k {k}: expected 1 to {limit} for a {rows} x {columns} matrix (its smaller side)"
        )
    check_fraction("tol", tol, allow_zero=True)
    check_integer("seed", seed, 0)
    if iterations is not None:
        check_integer("iterations", iterations, 1)


def prepare_lanczos(
    X: Any, task: str, k: int, checkpoint: Checkpoint
) -> tuple[LinearOperator, int, dict[str, NDArray[Any]] | None]:
    """Return X divided by a power of two, the exponent, and the state of an earlier run.

    The state is that of the divided X, so it determines the exponent.
    """
    state = restore_lanczos(checkpoint, min(X.shape), k)
    if state is None:
        return *normalise_operator(X, task), None
    exponent = int(state["exponent"][0])
    return divide_operator(X, exponent), exponent, state


def compute_triplets(
    X: Any,
    exponent: int,
    k: int,
    tol: float,
    iterations: int | None,
    seed: int,
    state: dict[str, NDArray[Any]] | None,
    checkpoint: Checkpoint,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    """Return u, the singular values, vt, and a dict of the other results of `svd`.

    The operator and the state are those of `prepare_lanczos`; the operator may be centred.
    """
    is_tall = X.shape[0] >= X.shape[1]
    forward, adjoint = (X.matvec, X.rmatvec) if is_tall else (X.rmatvec, X.matvec)
    lanczos = Lanczos(min(X.shape), k, tol, seed, state)
    max_iterations = max(iterations or 100 * min(X.shape), lanczos.iterations + 1)
    while not lanczos.converged and lanczos.iterations < max_iterations:
        lanczos.advance(_check_product(adjoint(forward(lanczos.vector))))
        if not lanczos.converged:
            checkpoint.save(exponent=np.array([float(exponent)]), **lanczos.state())
        checkpoint.progress(residual=lanczos.residual)
    vectors = np.linalg.qr(lanczos.converged_vectors()).Q
    products = np.empty((max(X.shape), 0))
    if vectors.size:
        products = _check_product((X.matmat if is_tall else X.rmatmat)(vectors))
    long_vectors, s, rotation = np.linalg.svd(products, full_matrices=False)
    short_vectors = vectors @ rotation.T
    u, vt = (long_vectors, short_vectors.T) if is_tall else (short_vectors, long_vectors.T)
    signs = _largest_entry_signs(vt)
    _warn_of_noise(s, lanczos.noise)
    status = {"iterations": lanczos.iterations, "converged": lanczos.converged}
    return u * signs, s, vt * signs[:, np.newaxis], status


def _warn_of_noise(s: NDArray[Any], noise: float) -> None:
    """Warn of singular values whose squares are not much larger than the errors of X' (X v).

    The errors are at least rounding errors, although a few products may not show them.
    """
    if not s.size:
        return
    limit = math.sqrt(_MIN_SQUARE_RATIO * max(noise, np.finfo(np.float64).eps * s[0] ** 2))
    if s[-1] < limit:
        warn_caller(
            f"{int((s < limit).sum())} of {s.size} singular values are below {limit / s[0]:.0e} "
            "times the largest one, and may have errors of more than 1 %, because products with X "
            "are not accurate enough (use a smaller k to leave them out)",
            ToleranceWarning,
        )


def _check_product(product: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(product).all():
        raise InputError("no singular vectors found: a product contains infinity or NaN")
    return product


def _largest_entry_signs(vt: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sign of the first entry of each row that is nearly the largest in absolute value.

    If entries of opposite signs are equally large, rounding errors must not decide between them.
    """
    magnitudes = np.abs(vt)
    largest = (magnitudes >= _NEARLY_LARGEST * magnitudes.max(axis=1, keepdims=True)).argmax(axis=1)
    return np.where(vt[np.arange(len(vt)), largest] < 0, -1.0, 1.0)
