"""Principal component analysis."""

from __future__ import annotations

from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.centring import centre_columns
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.common.options import warn_of_tolerance
from cec_mpi.tasks.common.scaling import rescale
from cec_mpi.tasks.svd import check_svd_options, compute_triplets, prepare_lanczos


def pca(
    X: Any,
    *,
    k: int = 6,
    tol: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Compute the first k principal components; rows of X are samples.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    k : int
        Number of components, from 1 to ``min(q, r)``.
    tol : float
        Relative accuracy of the singular values, see `svd`; 0 requests the best possible.
    iterations : int, optional
        Maximum number of iterations, see `svd`. One more product with X' computes the mean.
    seed : int
        Seed of the random first vector.
    checkpoint : Checkpoint
        See `svd`.

    Returns
    -------
    dict
        ``result``: (k, r) ndarray, the components, of unit length, by decreasing variance, with a
        positive entry of largest absolute value; ``mean``: (r,) ndarray, mean of the rows;
        ``explained_variance``: (k,) ndarray, variances of the projections onto each component;
        ``singular_values``: (k,) ndarray, of X minus the mean; ``iterations``: number of
        iterations; ``converged``: if False, the results have only the converged components,
        possibly none.

    Raises
    ------
    InputError
        See `svd`; or the variances are too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.

    Notes
    -----
    With the mean m of the rows, the components are the right singular vectors of ``X - 1 m'``, and
    the variance of the projections on a component with singular value s is ``s**2 / (q - 1)``.
    Results agree with `sklearn.decomposition.PCA`, including signs. ``X - 1 m'`` is never formed.
    If m is much larger than the differences between rows, digits are lost.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[1.0, 7.0, 0.0], [2.0, 9.0, 0.1], [3.0, 11.0, 0.0]])
    >>> pca(aslinearoperator(samples), k=1)["explained_variance"].round(3)
    array([5.])
    """
    check_svd_options(X, k, tol, iterations, seed)
    if X.shape[0] < 2:
        raise InputError("pca needs at least 2 rows, found 1")
    warn_of_tolerance(X, "pca", tol)
    operator, X_exponent, state = prepare_lanczos(X, "pca", k, checkpoint)
    operator, mean = centre_columns(operator)
    _, s, components, status = compute_triplets(
        operator, X_exponent, k, tol, iterations, seed, state, checkpoint
    )
    return {
        "result": components,
        "mean": rescale("the mean", mean, X_exponent, {"X": X_exponent}, may_underflow=True),
        "explained_variance": rescale(
            "the largest variance", s**2 / (X.shape[0] - 1), 2 * X_exponent, {"X": X_exponent}
        ),
        "singular_values": rescale("the largest singular value", s, X_exponent, {"X": X_exponent}),
        **status,
    }
