"""Of more than L machines, those L whose answers are decoded best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GAIN = 1 - 1e-6  # by which an exchange makes the norm smaller, or no set near it is better


def choose_machines(generator: Floats, machines: Sequence[int]) -> tuple[int, ...]:
    """L of these machines with a small norm of the inverse, and so a small condition number.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machines : sequence of int
        At least L different machines, from 1.

    Returns
    -------
    (L,) tuple of int
        Ascending. With one machine to spare none is better, by the Frobenius norm; with more,
        none that has one other machine.

    Notes
    -----
    One by one the row is taken whose part at right angles to those before is longest; from
    this set the best exchange of one machine for another is made as long as there is one.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    >>> choose_machines(generator, (1, 2, 3))
    (1, 3)
    """
    numbers = np.array(sorted(machines))
    rows = generator[numbers - 1]
    count, recovery = rows.shape
    if count == recovery:
        return tuple(numbers.tolist())
    chosen = _pivots(rows)
    for _ in range(count * recovery):
        try:
            after, before = norms_after(rows, chosen[np.newaxis], np.inf)
        except np.linalg.LinAlgError:
            break  # all sets are singular, or the pivots were others
        best = int(after.argmin())
        if not after.flat[best] < before[0] * _GAIN:
            break
        row, place = divmod(best, recovery)
        chosen[place] = row
    return tuple(np.sort(numbers[chosen]).tolist())


def _pivots(rows: Floats) -> NDArray[np.int64]:
    """L rows, one after the other: as a QR factorisation of the transpose takes pivots."""
    left = rows.copy()
    chosen: list[int] = []
    for _ in range(rows.shape[1]):
        lengths = np.linalg.norm(left, axis=1)
        lengths[chosen] = -1.0
        chosen.append(int(lengths.argmax()))
        if lengths.max() > 0:
            unit = left[chosen[-1]] / lengths.max()
            left = left - np.outer(left @ unit, unit)
    return np.array(chosen)


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
