"""Stores for elastic sessions with three machines: processes where they are late or leave."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def X():
    return np.random.default_rng(7).standard_normal((1001, 40))


@pytest.fixture(scope="session")
def stores(make_store, X):
    """Stores of X for three machines, any two of which are enough: dtype to path."""
    return {
        "float64": make_store(X, 3, 2).path,
        "float32": make_store(X, 3, 2, dtype="float32").path,
    }


@pytest.fixture(scope="session")
def store(stores):
    return stores["float64"]


@pytest.fixture(scope="session")
def replicated(make_store, X):
    """X for three machines, each of which is enough: two are to spare."""
    return make_store(X, 3, 1).path
