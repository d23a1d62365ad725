"""A store, an operator that accepts machines, and processes of machines that join."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import cec_mpi
from helpers.checked_operator import CheckedOperator
from helpers.recording import MemoryRecorder


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def join(start, conn):
    """Start hosts of machines: their processes."""

    def join(count=1, *options, file=conn, **where):
        return [start(["cec-mpi", "join", file, *map(str, options)], **where) for _ in range(count)]

    return join


@pytest.fixture
def accepting(conn):
    @contextmanager
    def accepting(store, tolerance=1e-10, **options):
        recorder = MemoryRecorder()
        options = {"accept": str(conn), "recorder": recorder, **options}
        with cec_mpi.open_operator(store.path, **options) as operator:
            yield CheckedOperator(operator, store.X, recorder, tolerance)

    return accepting
