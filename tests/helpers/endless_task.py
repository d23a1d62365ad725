"""A task that multiplies until a file exists, and counts wrong products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.tasks import NO_CHECKPOINT

ENOUGH = "enough"


def products(
    X: Any, *, file: str = "X.npy", checkpoint: Any = NO_CHECKPOINT
) -> dict[str, np.ndarray | int | bool]:
    """Products with vectors 0, 1, 2, ..., until a file `ENOUGH` is in this directory.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    file : str
        With X itself.

    Returns
    -------
    dict
        ``result``: (q,) ndarray, the sum of all products; ``wrong``, how many of them were;
        ``products``; ``converged``.
    """
    itself = np.load(file)
    state = checkpoint.state
    total = state.get("total", np.zeros(X.shape[0]))
    done, wrong = int(state.get("done", 0)), int(state.get("wrong", 0))
    while not Path(ENOUGH).exists():
        w = vector(done, X.shape[1])
        found = X @ w
        wrong += not np.allclose(found, itself @ w, atol=1e-9)
        total, done = total + found, done + 1
        checkpoint.save(total=total, done=done, wrong=wrong)
    return {"result": total, "wrong": wrong, "products": done, "converged": True}


def vector(number: int, size: int) -> np.ndarray:
    """The vector of one product."""
    return np.random.default_rng(number).standard_normal(size)
