"""How much of the terms of a product cancels.

Errors of products are relative to the size of the terms, and users see them relative to the result:
the quotient of both sizes says how many digits the result has lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Floats = NDArray[np.float64]

_SQUARABLE = 2.0**-400  # lengths from here to its reciprocal are roots of sums of squares


class TermSizes:
    """The sizes of the terms of products, from the sizes of the columns of X.

    Vectors must be scaled: neither they nor their products with these sizes overflow (see
    `Scales`).

    Parameters
    ----------
    largest : (r,) array_like of float
        The largest absolute value in each column of what was encoded, c.
    arithmetic : dtype
        Dtype in which vectors are sent.

    Attributes
    ----------
    lost : float
        Largest error of an entry of X w from numbers of w that have underflowed.

    Examples
    --------
    >>> sizes = TermSizes([4.0, 1.0], np.float64)
    >>> sizes.of_product(np.array([[3.0, -5.0]]))
    [13.0]
    >>> sizes.of_adjoint(np.array([[3.0], [-4.0]]))
    [20.0]
    """

    def __init__(self, largest: ArrayLike, arithmetic: DTypeLike) -> None:
        self._largest: Floats = np.asarray(largest, dtype=np.float64)
        self._work = np.empty_like(self._largest)
        self._most = float(self._largest.max(initial=0.0))
        info = np.finfo(arithmetic)
        half = int(info.minexp - info.nmant) - 1  # log2 of half of the smallest number
        self.lost = math.ldexp(float((self._largest * 2.0**-64).sum()), half + 64)

    def of_product(self, W: NDArray[np.floating]) -> list[float]:
        """Return ``norm(c * w)`` for each row w of W, (k, r)."""
        return [_length(np.multiply(w, self._largest, out=self._work)) for w in W]

    def of_adjoint(self, V: Floats) -> list[float]:
        """Return ``max(c) * norm(v)`` for each column v of V, (q, k)."""
        return [self._most * _length(v) for v in V.T]


def _length(numbers: Floats) -> float:
    length = math.sqrt(numbers @ numbers)
    if _SQUARABLE < length < 1 / _SQUARABLE:
        return length
    most = float(np.abs(numbers).max(initial=0.0))
    parts = numbers / (most or 1.0)
    return most * math.sqrt(parts @ parts)


def cancellation(
    terms: Sequence[float], exponents: Sequence[int], largest: Sequence[float]
) -> float | None:
    """Return the size of the terms over the size of the result, of the worst column.

    Parameters
    ----------
    terms : (k,) sequence of float
        The size of the terms of each column of the result, before powers of two are undone.
    exponents : (k,) sequence of int
        The exponents of these powers.
    largest : (k,) sequence of float
        The largest absolute value in each column of the result.

    Returns
    -------
    float or None
        None if no column has both terms and a result other than 0.

    Examples
    --------
    >>> cancellation([3.0, 2.0, 0.0], [1, 0, 0], [1.0, 0.5, 0.0])
    6.0
    >>> print(cancellation([3.0], [0], [0.0]))
    None
    """
    found = []
    for size, exponent, most in zip(terms, exponents, largest, strict=True):
        if size and most and math.isfinite(most):
            digits, place = math.frexp(most)
            try:
                found.append(math.ldexp(size / digits, exponent - place))
            except OverflowError:
                found.append(math.inf)
    return max(found, default=None)
