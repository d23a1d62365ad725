"""What tests of machines that join share: a store, an operator that accepts them, and these."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import cec_mpi
from helpers.made_steps import Made
from helpers.recording import Kept


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
