"""An operator whose products are compared with those of NumPy."""

from __future__ import annotations

import numpy as np

from helpers.waiting import wait_until


class CheckedOperator:
    """An operator whose machines come and go, and what its recorder has kept."""

    def __init__(self, operator, X, recorder, tolerance=1e-10):
        self.operator, self.X, self.recorder = operator, X, recorder
        self.tolerance = tolerance
        self.random = np.random.default_rng(5)

    def step(self):
        """Compare products of random vectors with X and its adjoint."""
        rows, columns = self.X.shape
        w, v = self.random.standard_normal(columns), self.random.standard_normal(rows)
        np.testing.assert_allclose(self.operator @ w, self.X @ w, atol=self.tolerance)
        np.testing.assert_allclose(self.operator.rmatvec(v), self.X.T @ v, atol=self.tolerance)

    def until(self, condition):
        """Make steps until a condition is true."""
        wait_until(lambda: condition() or self.step(), describe=lambda: self.recorder.all_events)

    def machines(self, *kinds):
        """Return the machines of all events of these kinds."""
        events = self.recorder.all_events
        return [event[kind] for event in events for kind in kinds if kind in event]
