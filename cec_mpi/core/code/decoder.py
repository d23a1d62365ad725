"""A fast version of `core.paper.decode`: multiplication by the inverse of L rows of G."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_MAX_UNREFINED_CONDITION = 1e4  # inverses with larger condition numbers are refined
_EPS = float(np.finfo(np.float64).eps)
_MANTISSA_BITS = 53
_SLICES = 3  # number of slices of a matrix, see `_split`
_MAX_INITIAL_RESIDUAL = 0.25  # norm; the iteration converges below 1, but for rounding


class Decoder:
    """Decodes the answers of L machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
        The code's generator matrix.
    machines : (L,) sequence of int
        Counted from 1.

    Attributes
    ----------
    inverse : (L, L) ndarray of float64
        The inverse of the machines' rows of G, refined if they are ill-conditioned.
    condition : float
        Condition number (1-norm) of these rows, computed from the inverse.

    Raises
    ------
    InputError
        There are more or fewer than L machines, one is not from 1 to N, or their rows of G are
        linearly dependent.

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
        rows, recovery = np.asarray(machines) - 1, generator.shape[1]
        if rows.shape != (recovery,) or rows.min() < 0 or rows.max() >= len(generator):
            raise InputError(
                f"decoding from machines {list(machines)}: expected {recovery} machines, "
                f"numbered 1 to {len(generator)}"
            )
        matrix = generator[rows]
        try:
            # Inverting the transpose makes the residual of inverse @ matrix small.
            self.inverse = np.ascontiguousarray(np.linalg.inv(matrix.T).T)
        except np.linalg.LinAlgError:
            raise InputError(f"the rows of G of machines {list(machines)} are singular") from None
        self.condition = _condition_number(matrix, self.inverse)
        if not self.condition <= _MAX_UNREFINED_CONDITION:
            refined = refine_inverse(matrix, self.inverse)
            if refined is not None:
                self.inverse = np.ascontiguousarray(refined)
                self.condition = _condition_number(matrix, self.inverse)

    def decode(self, values: Floats, out: Floats) -> None:
        """Decode without allocating: ``out <- inv(G_P) @ values``.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Answers in the order of the machines.
        out : (L, rows) ndarray of float64
            Receives the rows of X_1 w .. X_L w. May be strided.
        """
        _multiply(self.inverse, values, out)

    def decode_transposed(self, values: Floats, out: Floats) -> None:
        """Apply the transposed decoder for the adjoint: ``out <- inv(G_P') @ values``.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Rows of V_1 .. V_L. May be strided.
        out : (L, rows) ndarray of float64
            Receives the coefficients in the order of the machines.
        """
        _multiply(self.inverse.T, values, out)


def _multiply(matrix: Floats, values: Floats, out: Floats) -> None:
    if matrix.size == 1:  # as in a replicated store; `matmul` takes four times as long
        np.multiply(values, matrix, out=out)
    else:
        np.matmul(matrix, values, out=out)


def _condition_number(matrix: Floats, inverse: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        condition = float(np.abs(matrix).sum(axis=0).max() * np.abs(inverse).sum(axis=0).max())
    return condition if condition < np.inf else np.inf  # NaN counts as infinite


def refine_inverse(matrix: Floats, inverse: Floats) -> Floats | None:
    """Refine an inverse by Newton's iteration, with residuals in triple precision.

    Parameters
    ----------
    matrix : (L, L) ndarray of float64
        A.
    inverse : (L, L) ndarray of float64
        Its inverse, as computed in float64.

    Returns
    -------
    (L, L) ndarray of float64 or None
        None if the inverse is too inaccurate for the iteration to converge, for example if the
        matrix is singular to working precision.

    Notes
    -----
    With ``R = I - A Z``, ``Z + Z R`` has the residual ``R**2``. A is split into slices by row and Z
    by column, with so few bits each that BLAS multiplies slices without rounding (Ozaki, Ogita,
    Oishi and Rump, Error-free transformations of matrix multiplication, 2012).

    Examples
    --------
    >>> hilbert = 1 / (np.arange(8) + np.arange(8)[:, None] + 1.0)
    >>> refined = refine_inverse(hilbert, np.linalg.inv(hilbert))
    >>> bool(np.isclose(np.float64(refined[0, 0]), 64.0, rtol=1e-6))
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        _, exponents = np.frexp(np.abs(matrix).max(axis=1))
        matrix = np.ldexp(matrix, -exponents[:, np.newaxis])  # equilibrated rows converge best
        inverse = np.ldexp(inverse, exponents)
        residual = _residual(matrix, inverse)
        norm = float(np.abs(residual).sum(axis=0).max())
        if not norm < _MAX_INITIAL_RESIDUAL:
            return None
        while True:
            inverse = inverse + inverse @ residual
            norm *= norm
            if norm <= _EPS:
                return np.asarray(np.ldexp(inverse, -exponents))
            residual = _residual(matrix, inverse)


def _residual(matrix: Floats, inverse: Floats) -> Floats:
    """Return I - A Z; the largest terms are summed first and cancel exactly."""
    bits = (_MANTISSA_BITS - int(np.ceil(np.log2(len(matrix))))) // 2
    slices, inverse_slices = _split(matrix, bits, 1), _split(inverse, bits, 0)
    residual = np.eye(len(matrix))
    for order in range(2 * _SLICES - 1):
        for k in range(max(0, order - _SLICES + 1), min(order, _SLICES - 1) + 1):
            residual -= slices[k] @ inverse_slices[order - k]
    return residual


def _split(matrix: Floats, bits: int, axis: int) -> list[Floats]:
    """Split a matrix exactly into a sum of slices; all but the last have at most `bits` bits."""
    slices = []
    for _ in range(_SLICES - 1):
        _, exponents = np.frexp(np.abs(matrix).max(axis=axis, keepdims=True))
        shift = np.ldexp(1.5, exponents + _MANTISSA_BITS - bits)
        slices.append((matrix + shift) - shift)
        matrix = matrix - slices[-1]
    return [*slices, matrix]
