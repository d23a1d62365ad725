"""An operator whose products are compared with those of NumPy."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

import cec_mpi
from helpers.recording import MemoryRecorder
from helpers.waiting import wait_until


class CheckedOperator:
    """An operator whose machines join and leave, with its recorder."""

    def __init__(self, operator, X, recorder):
        self.operator, self.X, self.recorder = operator, X, recorder
        self.random = np.random.default_rng(5)

    def step(self):
        """Check the products of X and its adjoint with random vectors."""
        rows, columns = self.X.shape
        w, v = self.random.standard_normal(columns), self.random.standard_normal(rows)
        np.testing.assert_allclose(self.operator @ w, self.X @ w, atol=1e-10)
        np.testing.assert_allclose(self.operator.rmatvec(v), self.X.T @ v, atol=1e-10)

    def run_until(self, condition):
        """Make steps until a condition holds."""
        wait_until(lambda: condition() or self.step(), describe=lambda: self.recorder.all_events)

    def event_machines(self, *kinds):
        """Return the machines of all events of these kinds."""
        events = self.recorder.all_events
        return [event[kind] for event in events for kind in kinds if kind in event]


@contextmanager
def open_checked(store, **options):
    """Open an operator of a `SmallStore`; yield a `CheckedOperator`."""
    recorder = MemoryRecorder()
    with cec_mpi.open_operator(store.path, recorder=recorder, **options) as operator:
        yield CheckedOperator(operator, store.X, recorder)
