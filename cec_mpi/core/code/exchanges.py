"""What the exchange of one row for another makes of the inverse of some rows of a generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def norms_after(generator: Floats, sets: NDArray[np.int64], untold: float) -> tuple[Floats, Floats]:
    """Squared Frobenius norms of inverses, after each exchange of one row and before it.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    sets : (K, L) ndarray of int
        Rows of G, from 0.
    untold : float
        What stands for a set's own rows, and where the inverse cannot tell.

    Returns
    -------
    after : (K, N, L) ndarray of float
        With row n of G in the place j of the set.
    before : (K,) ndarray of float

    Raises
    ------
    numpy.linalg.LinAlgError
        The rows of one of the sets are singular.

    Notes
    -----
    With B = inv(G_P) and c = g B, putting g in the place of row j makes column k of B into
    ``b_k - b_j c_k / c_j``, and column j into ``b_j / c_j`` (Sherman and Morrison).

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> after, before = norms_after(generator, np.array([[0, 1]]), np.inf)
    >>> before.tolist(), after[0, 2].tolist()
    ([2.0], [inf, 1.25])
    """
    inverse = np.linalg.inv(generator[sets])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gram = inverse.mT @ inverse
        sizes = np.einsum("kjj->kj", gram)[:, np.newaxis]
        before = sizes.sum(axis=2)
        c = generator @ inverse
        squares = c**2
        after = before[:, np.newaxis] - sizes - 2 * (c @ gram - c * sizes) / c
        after += (squares.sum(axis=2, keepdims=True) - squares + 1) * (sizes / squares)
    after[~np.isfinite(after)] = untold
    np.put_along_axis(after, sets[:, :, np.newaxis], untold, axis=1)
    return after, before[:, 0]
