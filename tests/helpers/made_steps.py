"""Steps of an operator whose machines come and go, compared with NumPy."""

from __future__ import annotations

import numpy as np

from helpers.waiting import wait_until


class Made:
    """An operator that machines join, with steps that are compared with NumPy."""

    def __init__(self, operator, X, recorder, tolerance=1e-10):
        self.operator, self.X, self.recorder = operator, X, recorder
        self.tolerance = tolerance
        self.random = np.random.default_rng(5)

    def step(self):
        rows, columns = self.X.shape
        w, v = self.random.standard_normal(columns), self.random.standard_normal(rows)
        np.testing.assert_allclose(self.operator @ w, self.X @ w, atol=self.tolerance)
        np.testing.assert_allclose(self.operator.rmatvec(v), self.X.T @ v, atol=self.tolerance)

    def until(self, condition):
        wait_until(lambda: condition() or self.step(), describe=self.happened)

    def happened(self, *kinds):
        """Machines to which something of these kinds has happened."""
        events = self.recorder.happened
        return [event[kind] for event in events for kind in kinds if kind in event]
