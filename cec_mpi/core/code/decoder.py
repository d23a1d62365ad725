"""From the answers of L machines to the L uncoded ones: a factored L x L matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

# Up to here the inverse is used as it is computed, and beyond as it is refined: a product with it
# is more accurate then than triangular solves are, and several times as fast.
_WELL_CONDITIONED = 1e4
_AT_ONCE = 1 << 20  # numbers in the matrices of several sets
_EPS = float(np.finfo(np.float64).eps)
_DIGITS = 53  # of float64
_SLICES = 3  # that a matrix is cut into: together they have all of its digits
_TOO_FAR = 0.25  # size of a residual from which on nothing converges


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
    order : tuple of int
        The order in which `decode` wants the machines' answers, as indices into
        `machines`: the row exchanges of a factorisation, where it decodes with one.
    condition : float
        Condition number (1-norm) of the L x L matrix; above 10**4 as estimated by LAPACK.

    Raises
    ------
    InputError
        There are not L machines, or their rows are singular.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> decoder = Decoder(generator, (2, 3))
    >>> answers = generator[[1, 2]] @ np.array([[5.0], [7.0]])
    >>> decoded = np.empty((2, 1))
    >>> decoder.decode(answers[list(decoder.order)], decoded)
    >>> decoded
    array([[5.],
           [7.]])
    """

    order: tuple[int, ...]
    condition: float
    _matrix: Floats

    def __init__(self, generator: Floats, machines: Sequence[int]) -> None:
        (factored,) = _factored(generator, [machines])
        self._take(factored)

    @classmethod
    def of_sets(cls, generator: Floats, sets: ArrayLike) -> list[Decoder]:
        """The decoders of several sets of machines, in less time than one by one.

        Parameters
        ----------
        generator : (N, L) ndarray of float
        sets : (K, L) array_like of int
            Numbers of machines, from 1.

        Raises
        ------
        InputError
            As for one of them.
        """
        numbers, decoders = np.asarray(sets), []
        at_once = max(1, _AT_ONCE // generator.shape[1] ** 2)
        for first in range(0, len(numbers), at_once):
            for factored in _factored(generator, numbers[first : first + at_once]):
                decoder = cls.__new__(cls)
                decoder._take(factored)
                decoders.append(decoder)
        return decoders

    def _take(self, of: _Factored) -> None:
        if of.condition <= _WELL_CONDITIONED:
            self._multiply_with(of.inverse, of.condition)
            return
        from scipy.linalg import blas, lapack

        reciprocal, _ = lapack.dgecon(of.factors, float(np.abs(of.matrix).sum(axis=0).max()))
        condition = 1 / reciprocal if reciprocal > 0 else float("inf")
        refined = refined_inverse(of.matrix, of.inverse)
        if refined is not None:
            self._multiply_with(np.ascontiguousarray(refined), condition)
            return
        self.condition = condition  # nearly singular: solves are of more use than a product
        self._matrix, self._pivots, self._inverted = of.factors, of.pivots, False
        self._triangular_solve = blas.dtrsm
        order = list(range(len(of.matrix)))
        for row, pivot in enumerate(of.pivots.tolist()):
            order[row], order[pivot] = order[pivot], order[row]
        self.order = tuple(order)

    def _multiply_with(self, inverse: Floats, condition: float) -> None:
        """Decode by products with this inverse."""
        self.condition = condition
        self.order = tuple(range(len(inverse)))
        self._matrix = inverse
        self._inverted = True

    @property
    def factors(self) -> Floats | None:
        """L and U of the rows of G in the order of `order`, if it decodes with them."""
        return None if self._inverted else self._matrix

    def inverse(self) -> Floats:
        """The computed inverse, (L, L), for answers in the order of `order`."""
        if self._inverted:
            return self._matrix
        from scipy.linalg import lapack

        inverse: Floats = lapack.dgetri(self._matrix, self._pivots)[0][:, list(self.order)]
        return inverse

    def decode(self, values: Floats, out: Floats) -> None:
        """Decode without allocating: ``out <- inv(G_P) @ values``.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Answers in the order of `order`; C-contiguous and aligned; overwritten.
        out : (L, rows) ndarray of float64
            Receives the rows of X_1 w .. X_L w; its rows may lie apart.
        """
        if self._inverted:
            np.matmul(self._matrix, values, out=out)
            return
        # BLAS sees the transpose, and solves X' L' = V' and then X' U' = V' from the right.
        lower = {"side": 1, "lower": 1, "trans_a": 1, "diag": 1, "overwrite_b": 1}
        upper = {"side": 1, "lower": 0, "trans_a": 1, "diag": 0, "overwrite_b": 1}
        self._triangular_solve(1.0, self._matrix, values.T, **lower)
        self._triangular_solve(1.0, self._matrix, values.T, **upper)
        out[:] = values

    def decode_transposed(self, values: Floats, out: Floats) -> None:
        """The transposed decoder: ``out <- inv(G_P') @ values``, for the adjoint.

        Parameters
        ----------
        values : (L, rows) ndarray of float64
            Rows of V_1 .. V_L; its rows may lie apart.
        out : (L, rows) ndarray of float64
            Receives the coefficients of the machines in the order of `order`; C-contiguous.
        """
        if self._inverted:
            np.matmul(self._matrix.T, values, out=out)
            return
        # G_P = P L U, so G_P' = U' L' P': BLAS sees U' solved first, then L', from the right.
        out[:] = values
        upper = {"side": 1, "lower": 0, "trans_a": 0, "diag": 0, "overwrite_b": 1}
        lower = {"side": 1, "lower": 1, "trans_a": 0, "diag": 1, "overwrite_b": 1}
        self._triangular_solve(1.0, self._matrix, out.T, **upper)
        self._triangular_solve(1.0, self._matrix, out.T, **lower)


class _Factored(NamedTuple):
    """The rows of G of some machines, and what was made of them."""

    matrix: Floats
    factors: Floats
    pivots: NDArray[np.int32]
    inverse: Floats
    condition: float  # in the 1-norm, by this inverse; NaN where it does not tell


def _factored(generator: Floats, sets: ArrayLike) -> Iterator[_Factored]:
    """Of several sets of machines, (K, L)."""
    from scipy.linalg import lapack

    rows, recovery = np.asarray(sets) - 1, generator.shape[1]
    if rows.shape[1:] != (recovery,) or rows.min() < 0 or rows.max() >= len(generator):
        named = "; ".join(str((row + 1).tolist()) for row in rows)
        raise InputError(f"decoding from machines {named}: expected {recovery} of them")
    matrices = generator[rows]
    inverses = np.empty_like(matrices)
    factored = []
    for machines, matrix, inverse in zip(rows, matrices, inverses, strict=True):
        factors, pivots, status = lapack.dgetrf(matrix)
        if status != 0:
            named = str((machines + 1).tolist())
            raise InputError(f"the rows of G of machines {named} are singular")
        inverse[:] = lapack.dgetri(factors, pivots)[0]
        factored.append((matrix, factors, pivots, inverse))
    with np.errstate(over="ignore", invalid="ignore"):
        sizes, others = (np.abs(m).sum(axis=1).max(axis=1) for m in (matrices, inverses))
        conditions = (sizes * others).tolist()
    return (_Factored(*each, c) for each, c in zip(factored, conditions, strict=True))


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
