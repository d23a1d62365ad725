"""From the answers of L machines to the L uncoded ones: a factored L x L matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

# Up to here a product with the inverse is as accurate as a solve, and several times as fast.
_WELL_CONDITIONED = 1e4
_DOUBTFUL = 0.1  # from here on the error of an inverse is computed in a wider type
_UNIT = float(np.finfo(np.float64).eps) / 2


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
    inverse_sizes : (L, L) ndarray of float
        No entry of the inverse is larger; a column for each answer in the order of `order`.
        Computed when first asked for, as is the next.
    rounding : float
        The error that decoding itself adds to any of the L numbers, over the largest of them.
    transposed_rounding : tuple of float
        What the transposed decoder adds, over the 1-norms of what it is given and of what it
        gives: ``norm1(G_P' u - v)`` is at most the first times ``norm1(v)`` and the second
        times ``norm1(u)``.

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
        self._rows: Floats = matrix
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

    @cached_property
    def inverse_sizes(self) -> Floats:
        """No entry of inv(G_P) is larger than this, (L, L); infinite where it cannot be said.

        Notes
        -----
        With Z the computed inverse and ``R = |I - Z G_P|``, ``inv(G_P) = inv(I - (I - Z G_P)) Z``,
        so ``|inv(G_P)| <= |Z| + R |Z| + R**2 |Z| + ..``. Where rho, the largest row sum of R, is
        below 1, no term ``R**k |Z|`` is above ``rho**k`` times the largest entry of |Z| in its
        column.
        """
        inverse, left = self._inverse
        sizes = np.abs(inverse)
        worst = float(left.sum(axis=1).max())
        if worst >= _DOUBTFUL:
            rest = np.eye(len(inverse)) - inverse.astype(np.longdouble) @ self._ordered
            wide = len(inverse) * float(np.finfo(np.longdouble).eps)
            exact = np.abs(rest) + wide * (sizes @ np.abs(self._ordered) + 1)
            worst = float(exact.sum(axis=1).max())
        if not worst < 1:
            return np.full(sizes.shape, np.inf)
        found: Floats = sizes + worst / (1 - worst) * sizes.max(axis=0)
        return found

    @cached_property
    def rounding(self) -> float:
        """How much decoding adds to the error of any of the L numbers, over the largest of them.

        Notes
        -----
        With u the unit roundoff of float64 and ``gamma_k = k u / (1 - k u)``: of a product with
        the computed inverse Z, the largest row sum B of ``|Z G_P - I| + gamma_L |Z| |G_P|``
        relative to the exact numbers, which is ``B / (1 - B)`` of the computed ones; of the
        triangular solves that of ``|inv(G_P)| gamma_3L |L| |U|`` (Higham, Accuracy and
        Stability of Numerical Algorithms, section 3.5 and theorem 9.4).
        """
        if self._inverted:
            return self._of_inverse / (1 - self._of_inverse)
        with np.errstate(invalid="ignore"):
            return float((self.inverse_sizes @ self._of_factors).max())

    @cached_property
    def transposed_rounding(self) -> tuple[float, float]:
        """How far the transposed decoder is from exact: see `rounding`, transposed."""
        if self._inverted:
            return self._of_inverse, 0.0
        return 0.0, float(self._of_factors.max())

    @cached_property
    def _of_inverse(self) -> float:
        inverse, left = self._inverse
        sizes = np.abs(inverse) @ np.abs(self._ordered).sum(axis=1)
        return float((left.sum(axis=1) + _growth(len(self.order)) * sizes).max())

    @cached_property
    def _of_factors(self) -> Floats:
        recovery = len(self.order)
        lower = np.abs(np.tril(self._matrix, -1)) + np.eye(recovery)
        sums: Floats = lower @ np.abs(np.triu(self._matrix)).sum(axis=1)
        return _growth(3 * recovery) * sums

    @property
    def _ordered(self) -> Floats:
        """G_P with its rows in the order of `order`."""
        rows: Floats = self._rows[list(self.order)]
        return rows

    @cached_property
    def _inverse(self) -> tuple[Floats, Floats]:
        """The computed inverse Z, and a bound of ``|I - Z G_P|``."""
        from scipy.linalg import lapack

        inverse = self._matrix
        if not self._inverted:
            inverse = lapack.dgetri(self._matrix, self._pivots)[0][:, list(self.order)]
        matrix, recovery = self._ordered, len(self.order)
        left = np.abs(np.eye(recovery) - inverse @ matrix)
        left += _growth(recovery + 2) * (np.abs(inverse) @ np.abs(matrix) + np.eye(recovery))
        return inverse, left

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


def _growth(terms: int) -> float:
    """gamma_k of float64."""
    return terms * _UNIT / (1 - terms * _UNIT)
