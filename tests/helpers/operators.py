"""Operators that count products or add errors, and checkpoints in memory."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator


class CountingOperator(LinearOperator):
    """An operator that records its products; a product with a block counts once."""

    def __init__(self, matrix):
        super().__init__(matrix.dtype, matrix.shape)
        self.matrix = matrix
        self.calls = []

    @property
    def products(self):
        return len(self.calls)

    def _matvec(self, w):
        self.calls.append(("X", w.copy()))
        return self.matrix @ w

    def _rmatvec(self, u):
        self.calls.append(("X'", u.copy()))
        return self.matrix.T @ u

    _matmat, _rmatmat = _matvec, _rmatvec


class NoisyOperator(CountingOperator):
    """An operator that adds errors, relative to the largest entry of a product."""

    def __init__(self, matrix, product_error, rng):
        super().__init__(matrix)
        self.product_error, self.rng = product_error, rng

    def _matvec(self, w):
        return self._add_errors(super()._matvec(w))

    def _rmatvec(self, u):
        return self._add_errors(super()._rmatvec(u))

    def _add_errors(self, product):
        errors = self.rng.uniform(-1, 1, product.shape)
        return product + self.product_error * np.abs(product).max() * errors


class Interrupted(Exception):
    pass


class MemoryCheckpoint:
    """A checkpoint that keeps all states and can interrupt the task at a save."""

    def __init__(self, state=None, stop_at=None, wanted=True, every=1):
        self.state = dict(state or {})
        self.wanted, self.every = wanted, every
        self.saves, self.reports = [], []
        self.stop_at = stop_at

    def progress(self, **numbers):
        self.reports.append(numbers)

    def save(self, **state):
        values = {name: value() if callable(value) else value for name, value in state.items()}
        self.saves.append({name: np.array(array) for name, array in values.items()})
        if len(self.saves) == self.stop_at:
            raise Interrupted


def state_after(number, task, X, **options):
    """Return the state of a task that was interrupted at its n-th save."""
    checkpoint = MemoryCheckpoint(stop_at=number)
    with pytest.raises(Interrupted):
        task(X, checkpoint=checkpoint, **options)
    return checkpoint.saves[-1]
