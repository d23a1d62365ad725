"""What the tests of tasks share: operators that count, and checkpoints in memory."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator


class Counted(LinearOperator):
    """An operator that keeps the vectors that it is multiplied with; a block is one product."""

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


class Noisy(Counted):
    """An operator with errors in its products, of this size against the largest entry."""

    def __init__(self, matrix, accuracy, rng):
        super().__init__(matrix)
        self.accuracy, self.rng = accuracy, rng

    def _matvec(self, w):
        return self._with_errors(self.matrix @ w)

    def _rmatvec(self, u):
        return self._with_errors(self.matrix.T @ u)

    def _with_errors(self, product):
        errors = self.rng.uniform(-1, 1, product.shape)
        return product + self.accuracy * np.abs(product).max() * errors


class Interrupted(Exception):
    pass


class Memory:
    """A checkpoint that keeps copies, and may interrupt the task at a save."""

    def __init__(self, state=None, stop_at=None, wanted=True, every=1):
        self.state = dict(state or {})
        self.wanted, self.every = wanted, every
        self.saves = []
        self.stop_at = stop_at
        self.reports = []

    def progress(self, **numbers):
        self.reports.append(numbers)

    def save(self, **state):
        given = {name: value() if callable(value) else value for name, value in state.items()}
        self.saves.append({name: np.array(array) for name, array in given.items()})
        if len(self.saves) == self.stop_at:
            raise Interrupted


@pytest.fixture
def counted():
    return Counted


@pytest.fixture
def noisy():
    return Noisy


@pytest.fixture
def memory():
    return Memory


@pytest.fixture
def state_after():
    """What is left of a task that is interrupted at its n-th save."""

    def run(number, task, X, **options):
        checkpoint = Memory(stop_at=number)
        with pytest.raises(Interrupted):
            task(X, checkpoint=checkpoint, **options)
        return checkpoint.saves[-1]

    return run
