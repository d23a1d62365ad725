"""A task that multiplies until a file exists and counts wrong products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.tasks import NO_CHECKPOINT

STOP_FILE = "stop"


def products(
    X: Any, *, file: str = "X.npy", checkpoint: Any = NO_CHECKPOINT
) -> dict[str, np.ndarray | int | bool]:
    """Multiply vectors 0, 1, 2, ... until the working directory has a file `STOP_FILE`.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    file : str
        Path of X as an .npy file.

    Returns
    -------
    dict
        ``result``, (q,) ndarray: the sum of all products; ``products`` and ``wrong``: the number
        of products and of wrong ones; ``converged``.
    """
    matrix = np.load(file)
    state = checkpoint.state
    total = state.get("total", np.zeros(X.shape[0]))
    products, wrong = int(state.get("products", 0)), int(state.get("wrong", 0))
    while not Path(STOP_FILE).exists():
        w = make_vector(products, X.shape[1])
        product = X @ w
        wrong += not np.allclose(product, matrix @ w, atol=1e-9)
        total, products = total + product, products + 1
        checkpoint.save(total=total, products=products, wrong=wrong)
    return {"result": total, "wrong": wrong, "products": products, "converged": True}


def make_vector(number: int, size: int) -> np.ndarray:
    """Return the vector with this number."""
    return np.random.default_rng(number).standard_normal(size)
