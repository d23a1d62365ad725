"""Singular values whose squares are lost in the errors of products are warned of."""

import warnings

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.errors import ToleranceWarning
from cec_mpi.tasks import svd


def geometric(size, ratio):
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    values = ratio ** np.arange(size)
    return aslinearoperator(u * values @ v.T), values


def test_values_that_are_too_small_are_warned_of_and_the_others_are_right():
    X, values = geometric(60, 0.5)
    with pytest.warns(ToleranceWarning, match="of 30 singular values are below .* the largest"):
        found = svd(X, k=30)["result"]
    assert np.abs(found[:22] / values[:22] - 1).max() < 0.01


def test_values_that_are_right_are_not_warned_of():
    X, values = geometric(60, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = svd(X, k=20)["result"]
    assert np.abs(found / values[:20] - 1).max() < 1e-6


def test_values_that_only_rounding_makes_are_warned_of():
    """X has rank 1, and its products are exact."""
    with pytest.warns(ToleranceWarning, match="1 of 2 singular values are below .* the largest"):
        svd(aslinearoperator(np.ones((3, 3))), k=2)
