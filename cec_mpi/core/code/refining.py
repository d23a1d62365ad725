"""Inverses as exact as float64 can hold them, of matrices that are badly conditioned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_DIGITS = 53  # of float64
_SLICES = 3  # that a matrix is cut into: together they have all of its digits
_TOO_FAR = 0.25  # size of a residual from which on nothing converges


def refined_inverse(matrix: Floats, inverse: Floats) -> Floats | None:
    """Newton's iteration for the inverse, with residuals of three times as many digits.

    Parameters
    ----------
    matrix : (L, L) ndarray of float64
        A.
    inverse : (L, L) ndarray of float64
        Its inverse, as computed in float64.

    Returns
    -------
    (L, L) ndarray of float64 or None
        None where the inverse is too far off, as that of a matrix that is singular to working
        precision.

    Notes
    -----
    With ``R = I - A Z``, ``Z + Z R`` has the residual ``R**2``. A is cut into slices by row and Z
    by column with so few digits each that BLAS adds up their products without any rounding
    (Ozaki, Ogita, Oishi and Rump, Error-free transformations of matrix multiplication, 2012).

    Examples
    --------
    >>> hilbert = 1 / (np.arange(8) + np.arange(8)[:, None] + 1.0)
    >>> refined = refined_inverse(hilbert, np.linalg.inv(hilbert))
    >>> bool(np.isclose(np.float64(refined[0, 0]), 64.0, rtol=1e-6))
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        _, exponents = np.frexp(np.abs(matrix).max(axis=1))
        matrix = np.ldexp(matrix, -exponents[:, np.newaxis])  # rows of like size converge best
        inverse = np.ldexp(inverse, exponents)
        left = _residual(matrix, inverse)
        size = float(np.abs(left).sum(axis=0).max())
        if not size < _TOO_FAR:
            return None
        while True:
            inverse = inverse + inverse @ left
            size *= size
            if size <= _EPS:
                return np.asarray(np.ldexp(inverse, -exponents))
            left = _residual(matrix, inverse)


def _residual(matrix: Floats, inverse: Floats) -> Floats:
    """I - A Z, the largest terms first: those cancel exactly."""
    digits = (_DIGITS - int(np.ceil(np.log2(len(matrix))))) // 2
    some, others = _slices(matrix, digits, 1), _slices(inverse, digits, 0)
    left = np.eye(len(matrix))
    for order in range(2 * _SLICES - 1):
        for k in range(max(0, order - _SLICES + 1), min(order, _SLICES - 1) + 1):
            left -= some[k] @ others[order - k]
    return left


def _slices(matrix: Floats, digits: int, axis: int) -> list[Floats]:
    """Matrices that add up to this one; all but the last with so many digits at most."""
    slices = []
    for _ in range(_SLICES - 1):
        _, exponents = np.frexp(np.abs(matrix).max(axis=axis, keepdims=True))
        ruler = np.ldexp(1.5, exponents + _DIGITS - digits)
        slices.append((matrix + ruler) - ruler)
        matrix = matrix - slices[-1]
    return [*slices, matrix]
