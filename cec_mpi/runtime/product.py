"""What a step computes: X W, or X' V."""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """What a step computes.

    Attributes
    ----------
    adjoint : bool
        X' V instead of X W.
    columns : int
        Of W or V, k.
    """

    adjoint: bool = False
    columns: int = 1
