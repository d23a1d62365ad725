"""A fast version of `core.paper.decode`: products with the inverse of the answering rows of G."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

# Up to this condition number the inverse is used as it is computed, and beyond it is refined.
_WELL_CONDITIONED = 1e4
_EPS = float(np.finfo(np.float64).eps)
_DIGITS = 53  # of float64
_SLICES = 3  # that a matrix is cut into: together they have all of its digits
_MAX_RESIDUAL = 0.25  # size of a residual from which on nothing converges


class Decoder:
    """Decodes the answers of L machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
        The code's generator matrix.
    machines : (L,) sequence of int
        Numbers of the machines, from 1.

    Attributes
    ----------
    inverse : (L, L) ndarray of float64
        The inverse of the machines' rows of G, refined where they are badly conditioned.
    condition : float
        Condition number (1-norm) of these rows, as the inverse gives it.

    Raises
    ------
    InputError
        There are not L machines, or their rows are singular.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> decoder = Decoder(generator, (2, 3))
    >>> decoded = np.empty((2, 1))
    >>> decoder.decode(generator[[1, 2]] @ np.array([[5.0], [7.0]]), decoded)
    >>> decoded
    array([[5.],
           [7.]])
    """

    inverse: Floats
    condition: float

    def __init__(self, generator: Floats, machines: Sequence[int] | NDArray[np.integer]) -> None:
        from scipy.linalg import lapack

        rows, recovery = np.asarray(machines) - 1, generator.shape[1]
        if rows.shape != (recovery,) or rows.min() < 0 or rows.max() >= len(generator):
            raise InputError(
                f"decoding from machines {list(machines)}: expected {recovery} of them"
            )
        matrix = generator[rows]
        factors, pivots, status = lapack.dgetrf(matrix)
        if status != 0:
            raise InputError(f"the rows of G of machines {list(machines)} are singular")
        self.inverse = np.ascontiguousarray(lapack.dgetri(factors, pivots)[0])
        self.condition = _condition(matrix, self.inverse)
        if not self.condition <= _WELL_CONDITIONED:
            refined = refined_inverse(matrix, self.inverse)
            if refined is not None:
                self.inverse = np.ascontiguousarray(refined)
                self.condition = _condition(matrix, self.inverse)
        self._is_identity = recovery == 1 and self.inverse.item() == 1  # as with copies of rows

    def decode(self, values: Floats, out: Floats) -> None:
        """Decode without allocating: ``out <- inv(G_P) @ values``.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Answers in the order of the machines.
        out : (L, rows) ndarray of float64
            Receives the rows of X_1 w .. X_L w, which need not be adjacent in memory.
        """
        if self._is_identity:
            np.copyto(out, values)
        else:
            np.matmul(self.inverse, values, out=out)

    def decode_transposed(self, values: Floats, out: Floats) -> None:
        """Apply the transposed decoder for the adjoint: ``out <- inv(G_P') @ values``.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Rows of V_1 .. V_L, which need not be adjacent in memory.
        out : (L, rows) ndarray of float64
            Receives the coefficients in the order of the machines.
        """
        if self._is_identity:
            np.copyto(out, values)
        else:
            np.matmul(self.inverse.T, values, out=out)


def _condition(matrix: Floats, inverse: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        number = float(np.abs(matrix).sum(axis=0).max() * np.abs(inverse).sum(axis=0).max())
    return number if number < np.inf else np.inf  # which it is where the inverse has NaN


def refined_inverse(matrix: Floats, inverse: Floats) -> Floats | None:
    """Refine an inverse by Newton's iteration, with residuals of three times as many digits.

    Parameters
    ----------
    matrix : (L, L) ndarray of float64
        A.
    inverse : (L, L) ndarray of float64
        Its inverse, as computed in float64.

    Returns
    -------
    (L, L) ndarray of float64 or None
        None if the inverse is too inaccurate, for example of a matrix that is singular to working
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
        if not size < _MAX_RESIDUAL:
            return None
        while True:
            inverse = inverse + inverse @ left
            size *= size
            if size <= _EPS:
                return np.asarray(np.ldexp(inverse, -exponents))
            left = _residual(matrix, inverse)


def _residual(matrix: Floats, inverse: Floats) -> Floats:
    """Return I - A Z, summed from the largest terms, which cancel exactly."""
    digits = (_DIGITS - int(np.ceil(np.log2(len(matrix))))) // 2
    some, others = _slices(matrix, digits, 1), _slices(inverse, digits, 0)
    left = np.eye(len(matrix))
    for order in range(2 * _SLICES - 1):
        for k in range(max(0, order - _SLICES + 1), min(order, _SLICES - 1) + 1):
            left -= some[k] @ others[order - k]
    return left


def _slices(matrix: Floats, digits: int, axis: int) -> list[Floats]:
    """Return matrices whose sum is this one; all but the last have at most `digits` digits."""
    slices = []
    for _ in range(_SLICES - 1):
        _, exponents = np.frexp(np.abs(matrix).max(axis=axis, keepdims=True))
        ruler = np.ldexp(1.5, exponents + _DIGITS - digits)
        slices.append((matrix + ruler) - ruler)
        matrix = matrix - slices[-1]
    return [*slices, matrix]
