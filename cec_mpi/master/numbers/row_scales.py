"""Rows of X that were divided by powers of two before they were encoded: undone in products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import MachineError
from cec_mpi.store.format.scaling import Scaling

Floats = NDArray[np.float64]


class RowScales:
    """What rows of X were divided by, for the products of one store.

    With D the diagonal matrix of these powers of two, and Z what was encoded, X is D Z. So X W is
    D (Z W), and X' V is Z' (D V): only vectors as long as a column of X are multiplied, exactly.

    Parameters
    ----------
    scaling : Scaling
    """

    def __init__(self, scaling: Scaling) -> None:
        found = scaling.exponents
        self._exponents = None if found is None or not found.any() else found
        self._most = 0 if self._exponents is None else int(self._exponents.max())

    def multiply(self, parts: Floats) -> None:
        """Multiply rows of X_1 W .. X_L W, or of V_1 .. V_L, with their powers of two.

        Parameters
        ----------
        parts : (L, R * k) ndarray of float64
            Changed in place. What is too large becomes infinite.
        """
        if self._exponents is not None:
            rows = parts.reshape(*self._exponents.shape, -1)
            with np.errstate(over="ignore", under="ignore"):
                np.ldexp(rows, self._exponents[..., np.newaxis], out=rows)

    def undo(self, parts: Floats, work: Floats, bound: float) -> float:
        """From Z W to X W, and from the relative error of the one to that of the other.

        Parameters
        ----------
        parts : (L, R * k) ndarray of float64
            Z W; receives X W.
        work : (L * R * k,) ndarray of float64
            The absolute values of Z W; receives those of X W.
        bound : float
            Of the error of Z W, relative to its largest entry.

        Returns
        -------
        float
            Of the error of X W, relative to its largest entry: what is wrong with Z W may be
            in the row that is multiplied with most.

        Raises
        ------
        MachineError
            X W is too large for float64.
        """
        if self._exponents is None:
            return bound
        before = float(work.max())
        self.multiply(parts)
        after = float(np.abs(parts, out=work.reshape(parts.shape)).max())
        if not after < np.inf:
            raise MachineError(
                "X w is too large for float64: the answers are finite, and it is not"
            )
        if not bound < np.inf:
            return bound
        with np.errstate(over="ignore"):
            wrong = float(np.ldexp(before * (bound / (1 + bound)), self._most))
        if not wrong:
            return 0.0
        return wrong / (after - wrong) if wrong < after else float("inf")
