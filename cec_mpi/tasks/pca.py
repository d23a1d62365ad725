"""Principal components of the rows of X."""

from __future__ import annotations

from typing import Any

from cec_mpi.tasks.common.centred import centred
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.common.options import warn_of_tolerance
from cec_mpi.tasks.common.units import in_units
from cec_mpi.tasks.svd import begun, check_options, leading_triplets


def pca(
    X: Any,
    *,
    k: int = 6,
    tol: float = 0.0,
    iterations: int | None = None,
    seed: int = 0,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """The first k principal components, with rows of X as samples.

    Parameters
    ----------
    X : operator
        Shape (q, r): q samples of r features.
    k : int
        How many components: from 1 to ``min(q, r) - 1``.
    tol : float
        Relative accuracy of the singular values, as for `svd`; 0 is the best.
    iterations : int, optional
        The most iterations, of one product with X and one with X' each, as for `svd`. One more
        product with X' before them finds the mean.
    seed : int
        Of the first vector.
    checkpoint : Checkpoint
        As for `svd`.

    Returns
    -------
    dict
        ``result``: (k, r) ndarray, the components, of unit length, that of the largest
        variance first, the entry of largest absolute value positive; ``mean``: (r,) ndarray, of
        the rows; ``explained_variance``: (k,) ndarray, of the projections on each component;
        ``singular_values``: (k,) ndarray, of X less the mean;
        ``iterations``: how many were made; ``converged``: if this is False, only the components
        that have converged are there, maybe none.

    Raises
    ------
    InputError
        As for `svd`; or the variances, squares, are too large or too small for float64.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Notes
    -----
    With the mean m of the rows, the components are the right singular vectors of ``X - 1 m'``,
    and the variance of the projections on one is ``s**2 / (q - 1)``, s its singular value:
    as in scikit-learn's PCA, signs included. ``X - 1 m'`` is never formed; where m is much
    larger than the differences between rows, digits are lost.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> samples = np.array([[1.0, 7.0, 0.0], [2.0, 9.0, 0.1], [3.0, 11.0, 0.0]])
    >>> pca(aslinearoperator(samples), k=1)["explained_variance"].round(3)
    array([5.])
    """
    check_options(X, k, tol, iterations, seed)
    warn_of_tolerance(X, "pca", tol)
    operator, of_X, state = begun(X, "pca", k, checkpoint)
    operator, mean = centred(operator)
    _, s, components, ending = leading_triplets(
        operator, of_X, k, tol, iterations, seed, state, checkpoint
    )
    return {
        "result": components,
        "mean": in_units("the mean", mean, of_X, {"X": of_X}, zero=True),
        "explained_variance": in_units(
            "the largest variance", s**2 / (X.shape[0] - 1), 2 * of_X, {"X": of_X}
        ),
        "singular_values": in_units("the largest singular value", s, of_X, {"X": of_X}),
        **ending,
    }
