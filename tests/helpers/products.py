"""Products with an operator, compared with those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_products(
    operator: Any, X: np.ndarray, columns: int = 2, tolerance: float = 1e-12
) -> None:
    """Check X W and X' V of several columns, and of one."""
    rng = np.random.default_rng(1)
    rows, width = X.shape
    W, V = rng.standard_normal((width, columns)), rng.standard_normal((rows, columns))
    for found, expected in (
        (operator @ W, X @ W),
        (operator.H @ V, X.T @ V),
        (operator @ W[:, 0], X @ W[:, 0]),
        (operator.H @ V[:, 0], X.T @ V[:, 0]),
    ):
        assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)
