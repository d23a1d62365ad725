"""How exact a decoder is: bounds of the inverse of its matrix, and of its own rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import gamma, unit_roundoff
from cec_mpi.core.code.decoder import Decoder

Floats = NDArray[np.float64]

_DOUBTFUL = 0.1  # from here on the error of an inverse is computed in a wider type


class DecodingErrors(NamedTuple):
    """Certified bounds of one decoder.

    Attributes
    ----------
    sizes : (L, L) ndarray of float
        No entry of inv(G_P) is larger; a column for each answer, in the order of
        `Decoder.order`. Infinite where the matrix cannot be told from a singular one.
    decoding : float
        The error that decoding adds to any of the L numbers, over the largest of them.
    given, coded : float
        Of the transposed decoder: with v given and u its coefficients, ``norm1(G_P' u - v)``
        is at most ``given * norm1(v) + coded * norm1(u)``.
    """

    sizes: Floats
    decoding: float
    given: float
    coded: float


def decoding_errors(decoder: Decoder, matrix: Floats) -> DecodingErrors:
    """Bound the errors of a decoder.

    Parameters
    ----------
    decoder : Decoder
    matrix : (L, L) ndarray of float
        The rows of G that it is of, in the order of `Decoder.order`.

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
    >>> found = decoding_errors(Decoder(generator, (1, 2)), generator)
    >>> found.sizes.round(6).tolist(), found.decoding < 1e-14
    ([[1.0, 0.0], [1.0, 1.0]], True)
    """
    inverse, recovery = decoder.inverse(), len(matrix)
    sizes, rows = np.abs(inverse), np.abs(matrix)
    products, left = sizes @ rows, inverse @ matrix
    np.fill_diagonal(left, left.diagonal() - 1)
    np.abs(left, out=left)
    left += float(gamma(recovery + 2, np.float64)) * products
    worst = float(left.sum(axis=1).max()) + recovery * unit_roundoff(np.float64)
    if worst >= _DOUBTFUL:
        worst = _in_wider_type(inverse, matrix, products)
    certain = sizes + worst / (1 - worst) * sizes.max(axis=0) if worst < 1 else sizes + np.inf
    if decoder.factors is None:
        growth = float(gamma(recovery, np.float64)) * products.sum(axis=1)
        of_inverse = float((left.sum(axis=1) + growth).max())
        relative = of_inverse / (1 - of_inverse) if of_inverse < 1 else np.inf
        return DecodingErrors(certain, relative, of_inverse, 0.0)
    lower = np.abs(np.tril(decoder.factors, -1)) + np.eye(recovery)
    solved = lower @ np.abs(np.triu(decoder.factors)).sum(axis=1)
    solved *= float(gamma(3 * recovery, np.float64))
    return DecodingErrors(certain, float((certain @ solved).max()), 0.0, float(solved.max()))


def _in_wider_type(inverse: Floats, matrix: Floats, products: Floats) -> float:
    """The largest row sum of ``|I - Z G_P|``, of long doubles."""
    wide = inverse.astype(np.longdouble) @ matrix
    np.fill_diagonal(wide, wide.diagonal() - 1)
    rounding = len(matrix) * float(np.finfo(np.longdouble).eps) * (products + 1)
    return float((np.abs(wide) + rounding).sum(axis=1).max())
