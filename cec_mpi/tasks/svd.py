"""The largest singular values and their vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restored, start_of
from cec_mpi.tasks.common.options import fraction, warn_of_tolerance, whole
from cec_mpi.tasks.common.units import in_units, scaled

# ARPACK hands out nothing before it is done: it is asked for little first, then for more.
_LADDER = (1e-2, 1e-5)


def svd(
    X: Any,
    *,
    k: int = 6,
    tol: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """The k largest singular values of X with their vectors, by ARPACK.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    k : int
        How many: from 1 to ``min(q, r) - 1``.
    tol : float
        Relative accuracy of the singular values, as in SciPy's ``svds``; 0 is the best.
    iterations : int, optional
        The most iterations, which are restarts of ARPACK of several products each. By default
        ``10 * min(q, r)``. One product before tells how large X is.
    seed : int
        Of the first vector.
    checkpoint : Checkpoint
        Keeps ``vectors``, (min(q, r), k), singular vectors on the shorter side of X, and
        ``tol``, their tolerance. If one is wanted, tolerances 1e-2, 1e-5 and `tol` are met one
        after the other, each from the vectors of the one before, unless the first ``every``
        products are enough for `tol`: this takes more products, up to three times as many.

    Returns
    -------
    dict
        ``result``: (k,) ndarray, the singular values, the largest first; ``u``: (q, k) ndarray,
        left singular vectors; ``vt``: (k, r) ndarray, right singular vectors, in each the
        entry of largest absolute value is positive; ``converged``: where this is False, only
        the triplets that have converged are there, maybe none.

    Raises
    ------
    InputError
        An option is out of range, ARPACK fails, the checkpoint does not fit, or the singular
        values are too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Notes
    -----
    As in ``svds``, the vectors v on the shorter side of X are eigenvectors of X'X (or XX'), and
    values, and vectors on the other side, are those of ``X [v_1 ... v_k]``. Singular values
    below 1e-8 of the largest are not accurate.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> found = svd(aslinearoperator(np.diag([1.0, 2.0, 5.0, 3.0])), k=2)
    >>> found["result"].round(6)
    array([5., 3.])
    """
    check_options(X, k, tol, iterations, seed)
    warn_of_tolerance(X, "svd", tol)
    operator, of_X = scaled(X, "svd")
    u, s, vt, converged = leading_triplets(operator, k, tol, iterations, seed, checkpoint)
    s = in_units("the largest singular value", s, of_X, {"X": of_X})
    return {"result": s, "u": u, "vt": vt, "converged": converged}


def check_options(X: Any, k: int, tol: float, iterations: int | None, seed: int) -> None:
    """Refuse options that `leading_triplets` cannot use."""
    rows, columns = X.shape
    most = min(rows, columns) - 1
    if whole("k", k, 1) > most:
        raise InputError(
            f"k {k}: expected from 1 to {most}, one less than the smaller side of a "
            f"{rows} x {columns} matrix"
        )
    fraction("tol", tol, zero=True)
    whole("seed", seed, 0)
    if iterations is not None:
        whole("iterations", iterations, 1)


def leading_triplets(
    X: Any, k: int, tol: float, iterations: int | None, seed: int, checkpoint: Checkpoint
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], bool]:
    """What `svd` returns, for an operator with block products: u, s, vt and ``converged``."""
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

    size = min(X.shape)
    random = np.random.default_rng(int(seed))
    tall = X.shape[0] >= X.shape[1]
    product, adjoint = (X.matvec, X.rmatvec) if tall else (X.rmatvec, X.matvec)
    gram = LinearOperator((size, size), matvec=lambda v: adjoint(product(v)), dtype=np.float64)
    state = restored(checkpoint, vectors=(size, k), tol=())
    start = random.standard_normal(size)
    restarts = iterations or 10 * size
    attempts = [(tol, restarts)]
    if checkpoint.wanted:
        attempts = [(rung, restarts) for rung in (*_LADDER, tol) if rung >= tol]
        first = _restarts(size, k, checkpoint.every)
        if first and not state:
            attempts.insert(0, (tol, min(first, restarts)))
    if state:
        attempts = [each for each in attempts if each[0] < state["tol"]] or [(tol, restarts)]
        start = start_of("vectors", state["vectors"]) @ random.standard_normal(k)
    converged = True
    for rung, most in attempts:
        try:
            _, vectors = eigsh(gram, k=k, v0=start, tol=rung**2, maxiter=most)
        except ArpackNoConvergence as error:
            if most < restarts:
                continue  # it takes longer: up the ladder, then
            vectors, converged = error.eigenvectors, False
            break
        except ArpackError as error:
            if product(start).any():
                raise InputError(f"no singular vectors found: {error}") from None
            vectors = random.standard_normal((size, k))  # of X = 0 all are singular vectors
        if rung == tol:
            break
        checkpoint.save(vectors=vectors, tol=rung)
        checkpoint.progress(tolerance=rung)
        start = vectors @ random.standard_normal(k)
    vectors = np.linalg.qr(vectors).Q  # ARPACK's are orthonormal up to `rung` only
    block = np.empty((max(X.shape), 0))
    if vectors.size:
        block = (X.matmat if tall else X.rmatmat)(vectors)
    if not np.isfinite(block).all():  # not every version of ARPACK has complained
        raise InputError("no singular vectors found: X v holds infinite numbers or NaN")
    outer, s, turn = np.linalg.svd(block, full_matrices=False)
    inner = vectors @ turn.T
    u, vt = (outer, inner.T) if tall else (inner, outer.T)
    signs = _signs(vt)
    return u * signs, s, vt * signs[:, np.newaxis], converged


def _restarts(size: int, k: int, products: int) -> int:
    """Restarts of ARPACK that these many products with X and X' are enough for."""
    basis = min(size, max(2 * k + 1, 20))  # as eigsh chooses it
    return products // (2 * max(1, basis - k))


def _signs(vt: NDArray[Any]) -> NDArray[np.float64]:
    """Of the entry of largest absolute value in each row."""
    largest = np.abs(vt).argmax(axis=1)
    return np.where(vt[np.arange(len(vt)), largest] < 0, -1.0, 1.0)
