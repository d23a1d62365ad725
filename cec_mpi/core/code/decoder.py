"""From the answers of L machines to the L uncoded ones: a factored L x L matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

# Up to here a product with the inverse is as accurate as a solve, and several times as fast.
_WELL_CONDITIONED = 1e4


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
        `machines`: the row exchanges of the factorisation, done for free.
    condition : float
        Condition number (1-norm, as estimated by LAPACK) of the L x L matrix.
    gain : float
        The 1-norm of its inverse, estimated likewise: how much errors of answers can grow.

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

    def __init__(self, generator: Floats, machines: Sequence[int]) -> None:
        from scipy.linalg import blas, lapack

        rows = np.asarray(machines) - 1
        recovery = generator.shape[1]
        if rows.shape != (recovery,) or rows.min() < 0 or rows.max() >= len(generator):
            raise InputError(
                f"decoding from machines {list(machines)}: expected {recovery} of them"
            )
        matrix = generator[rows]
        factors, pivots, status = lapack.dgetrf(matrix)
        if status != 0:
            raise InputError(f"the rows of G of machines {list(machines)} are singular")
        norm = float(np.abs(matrix).sum(axis=0).max())
        reciprocal, _ = lapack.dgecon(factors, norm)
        self.condition = 1 / reciprocal if reciprocal > 0 else float("inf")
        self.gain = self.condition / norm
        self._triangular_solve = blas.dtrsm
        self._pivots = pivots
        self._matrix: Floats = factors
        self._inverted = self.condition <= _WELL_CONDITIONED
        order = list(range(recovery))
        if self._inverted:
            inverse, _ = lapack.dgetri(factors, pivots)
            self._matrix = np.ascontiguousarray(inverse)
        else:
            for row, pivot in enumerate(pivots.tolist()):
                order[row], order[pivot] = order[pivot], order[row]
        self.order: tuple[int, ...] = tuple(order)

    @property
    def factors(self) -> Floats | None:
        """L and U of the rows of G in the order of `order`, if it decodes with them."""
        return None if self._inverted else self._matrix

    def inverse(self) -> Floats:
        """The computed inverse, (L, L), for answers in the order of `order`."""
        from scipy.linalg import lapack

        if self._inverted:
            return self._matrix
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
