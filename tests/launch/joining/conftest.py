"""A store, an operator that accepts machines, and processes of machines that join."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.checked_operator import open_checked


def pytest_collection_modifyitems(items):
    """Interrupt a product that waits for machines in vain, so that the traceback shows it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(300, method="signal"))


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def join(start, conn):
    """Return a function that starts hosts of machines, and returns their processes."""

    def join(count=1, *options, file=conn, **where):
        return [start(["cec-mpi", "join", file, *map(str, options)], **where) for _ in range(count)]

    return join


@pytest.fixture
def open_accepting(conn):
    """Return a function that opens a `CheckedOperator` which machines can join."""
    return partial(open_checked, accept=str(conn))
