"""What a step computes: X W, or X' V."""

from __future__ import annotations

from typing import NamedTuple

# Bytes of a vector that goes with its order in one message, and of answers that go with reports.
SHORT_VECTOR, SHORT_ANSWERS = 1 << 16, 1 << 17


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
