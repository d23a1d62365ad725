"""Tests on several ranks: mpirun -n 4 python -m pytest --with-mpi tests/ranks.

The plugin of the package itself (`cec_mpi.testing`) makes the ranks one run and makes the
stores; a rank that hangs is ended with its stacks by pytest-timeout.
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def comm(cec_comm):
    """All ranks: a master and three machines."""
    return cec_comm


@pytest.fixture(scope="session")
def shared_directory(cec_directory):
    return cec_directory


@pytest.fixture(scope="session")
def X(cec_store):
    return cec_store.X


@pytest.fixture(scope="session")
def stores(cec_store, cec_make_store):
    """Stores of X for three machines, any two of which are enough: dtype to path."""
    return {
        "float64": cec_store.path,
        "float32": cec_make_store(cec_store.X, dtype="float32").path,
    }


@pytest.fixture(scope="session")
def store(stores):
    return stores["float64"]
