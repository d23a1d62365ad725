"""Rows of X that were divided by powers of two before they were encoded: undone in products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.format.scaling import Scaling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FAR = 800  # from rows that are smaller by so many powers of two, something could underflow


class RowScales:
    """What rows of X were divided by, for the products of one store.

    With D the diagonal matrix of these powers of two, and Z what was encoded, X is D Z. So X W is
    D (Z W), and X' V is Z' (D V): only vectors as long as a column of X are multiplied, exactly.

    Parameters
    ----------
    scaling : Scaling
    rows : int
        Of X, q.

    Attributes
    ----------
    most : int
        No row of X was divided by more than two to this power.
    """

    def __init__(self, scaling: Scaling, rows: int) -> None:
        self._exponents: Ints | None = None
        self._powers: Floats | None = None
        self.most = 0
        if scaling.exponents is not None and scaling.exponents.any():
            exponents = scaling.exponents.reshape(-1, 1)[:rows].astype(np.int64)
            self.most = int(exponents.max())
            exponents -= self.most
            self._exponents = exponents
            if exponents.min() >= -_FAR:
                self._powers = np.ldexp(1.0, exponents)

    @property
    def scales(self) -> bool:
        """Whether any row was divided."""
        return self._exponents is not None

    def multiply(self, rows: Floats) -> None:
        """Multiply rows of Z W, or of V, with what they were divided by, over the most of it.

        Parameters
        ----------
        rows : (q, k) ndarray of float64
            Changed in place. What is too small becomes 0.
        """
        if self._powers is not None:
            np.multiply(rows, self._powers, out=rows)
        elif self._exponents is not None:
            with np.errstate(under="ignore"):
                np.ldexp(rows, self._exponents, out=rows)

    def undo(self, rows: Floats, exponents: Ints) -> Ints:
        """Begin to make X W of Z W.

        Parameters
        ----------
        rows : (q, k) ndarray of float64
            Z W for what was sent of W. Changed in place, as far as it loses nothing.
        exponents : (k,) ndarray of int64
            Of what the columns of W were divided by.

        Returns
        -------
        (k,) or (q, k) ndarray of int64
            Of the powers of two that are left to multiply the rows with.
        """
        if self._exponents is None:
            return exponents
        if self._powers is None:
            return self._exponents + (exponents + self.most)
        self.multiply(rows)
        return exponents + self.most
