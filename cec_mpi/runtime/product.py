"""The product that a step computes: X W, or X' V."""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """The product that a step computes.

    Attributes
    ----------
    adjoint : bool
        Whether the product is X' V instead of X W.
    columns : int
        Number of columns of W or V, k.
    """

    adjoint: bool = False
    columns: int = 1
