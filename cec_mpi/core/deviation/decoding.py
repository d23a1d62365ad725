"""How exact a decoder is: bounds of the inverse of its matrix, and of its own rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import gamma, unit_roundoff
from cec_mpi.core.code.decoder import Decoder

Floats = NDArray[np.float64]

_DOUBTFUL = 0.1  # from here on the error of an inverse is computed in a wider type


class DecodingErrors(NamedTuple):
    """Certified bounds of K decoders.

    Attributes
    ----------
    sizes : (K, L, L) ndarray of float
        No entry of inv(G_P) is larger; a column for each answer, in the order of
        `Decoder.order`. Infinite where the matrix cannot be told from a singular one.
    decoding : (K,) ndarray of float
        The error that decoding adds to any of the L numbers, over the largest of them.
    given, coded : (K,) ndarray of float
        Of the transposed decoder: with v given and u its coefficients, ``norm1(G_P' u - v)``
        is at most ``given * norm1(v) + coded * norm1(u)``.
    """

    sizes: Floats
    decoding: Floats
    given: Floats
    coded: Floats


def decoding_errors(decoders: Sequence[Decoder], matrices: Floats) -> DecodingErrors:
    """Bound the errors of decoders.

    Parameters
    ----------
    decoders : (K,) sequence of Decoder
    matrices : (K, L, L) ndarray of float
        The rows of G that each is of, in the order of its `Decoder.order`.

    Returns
    -------
    DecodingErrors

    Notes
    -----
    With Z the computed inverse, and R a bound of ``|I - Z G_P|``, of which the product is
    computed in float64 and its rounding added: ``|inv(G_P)| <= |Z| + R |Z| + R**2 |Z| + ..``,
    where no term ``R**k |Z|`` is above ``rho**k`` times the largest entry of |Z| in its column,
    rho being the largest row sum of R.

    A product with Z is at most ``B = R + gamma_L |Z| |G_P|`` from exact, relative to the
    exact numbers; solves with triangular factors ``|inv(G_P)| gamma_3L |L| |U|``, relative to
    the computed ones (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5 and
    theorem 9.4).

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> found = decoding_errors([Decoder(generator, (1, 2))], generator[np.newaxis])
    >>> found.sizes.round(6).tolist(), (found.decoding < 1e-14).tolist()
    ([[[1.0, 0.0], [1.0, 1.0]]], [True])
    """
    recovery = matrices.shape[-1]
    inverses = np.array([decoder.inverse() for decoder in decoders])
    sizes = np.abs(inverses)
    products, left = sizes @ np.abs(matrices), inverses @ matrices
    left[:, range(recovery), range(recovery)] -= 1
    np.abs(left, out=left)
    left += float(gamma(recovery + 2, np.float64)) * products
    worst = left.sum(axis=2).max(axis=1) + recovery * unit_roundoff(np.float64)
    for k in np.flatnonzero(~(worst < _DOUBTFUL)).tolist():
        left[k] = _in_wider_type(inverses[k], matrices[k], products[k])
        worst[k] = float(left[k].sum(axis=1).max())
    with np.errstate(divide="ignore", invalid="ignore"):
        further = np.where(worst < 1, worst / (1 - worst), np.inf)[:, np.newaxis, np.newaxis]
        sizes += np.where(further < np.inf, further * sizes.max(axis=1, keepdims=True), np.inf)
        growth = float(gamma(recovery, np.float64)) * products.sum(axis=2)
        given = (left.sum(axis=2) + growth).max(axis=1)
        decoding = np.where(given < 1, given / (1 - given), np.inf)
    coded = np.zeros(len(decoders))
    for k, decoder in enumerate(decoders):
        if decoder.factors is not None:
            solved = _of_solves(decoder.factors)
            decoding[k], given[k], coded[k] = (sizes[k] @ solved).max(), 0.0, solved.max()
    return DecodingErrors(sizes, decoding, given, coded)


def _of_solves(factors: Floats) -> Floats:
    """``gamma_3L |L| |U|`` of triangular factors, summed over rows."""
    recovery = len(factors)
    lower = np.abs(np.tril(factors, -1)) + np.eye(recovery)
    solved: Floats = lower @ np.abs(np.triu(factors)).sum(axis=1)
    return solved * float(gamma(3 * recovery, np.float64))


def _in_wider_type(inverse: Floats, matrix: Floats, products: Floats) -> Floats:
    """A bound of ``|I - Z G_P|``, of long doubles."""
    wide = inverse.astype(np.longdouble) @ matrix
    np.fill_diagonal(wide, wide.diagonal() - 1)
    rounding = len(matrix) * float(np.finfo(np.longdouble).eps) * (products + 1)
    found: Floats = (np.abs(wide) + rounding).astype(np.float64)
    return found
