"""Stores of one matrix for elastic sessions of three machines."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def X():
    return np.random.default_rng(7).standard_normal((1001, 40))


@pytest.fixture(scope="session")
def stores(make_store, X):
    """Paths of stores with recovery threshold 2, by dtype."""
    return {dtype: make_store(X, 3, 2, dtype=dtype).path for dtype in ("float64", "float32")}


@pytest.fixture(scope="session")
def store(stores):
    return stores["float64"]


@pytest.fixture(scope="session")
def replicated(make_store, X):
    """Path of a store with recovery threshold 1."""
    return make_store(X, 3, 1).path
