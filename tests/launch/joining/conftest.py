"""What tests of machines that join share: a store, an operator that accepts them, and these."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import cec_mpi
from helpers.recording import Kept
from helpers.waiting import wait_until


class Made:
    """An operator that machines join, with steps that are looked at."""

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
        wait_until(lambda: condition() or self.step(), said=self.happened)

    def happened(self, *kinds):
        """Machines to which something of these kinds has happened."""
        events = self.recorder.happened
        return [event[kind] for event in events for kind in kinds if kind in event]


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def join(start, conn):
    """Start machines; their processes."""

    def join(count=1, *options, file=conn, **where):
        return [start(["cec-mpi", "join", file, *map(str, options)], **where) for _ in range(count)]

    return join


@pytest.fixture
def accepting(conn):
    @contextmanager
    def accepting(store, tolerance=1e-10, **options):
        recorder = Kept()
        given = {"accept": str(conn), "recorder": recorder, **options}
        with cec_mpi.open_operator(store.path, **given) as operator:
            yield Made(operator, store.X, recorder, tolerance)

    return accepting
