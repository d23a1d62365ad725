"""Operators times vectors of other libraries than NumPy."""

from __future__ import annotations

import array_api_strict
import jax.numpy
import numpy as np
import pytest

import cec_mpi

RNG = np.random.default_rng(6)
X = RNG.standard_normal((240, 40))


@pytest.mark.parametrize("xp", [array_api_strict, jax.numpy], ids=["strict", "jax"])
def test_products_are_arrays_of_the_library_of_the_vector(tmp_path, xp):
    cec_mpi.encode(X, tmp_path / "store", 3, 2)
    w, v = RNG.standard_normal(40), RNG.standard_normal(240)
    W = RNG.standard_normal((40, 3))
    with cec_mpi.open_operator(tmp_path / "store") as operator:
        products = [
            (operator @ xp.asarray(w), X @ w),
            (operator @ xp.asarray(W), X @ W),
            (operator.matvec(xp.asarray(w)), X @ w),
            (operator.rmatvec(xp.asarray(v)), X.T @ v),
            (operator.matmat(xp.asarray(W)), X @ W),
            (operator.H @ xp.asarray(v), X.T @ v),
            ((2 * operator) @ xp.asarray(w), 2 * X @ w),
        ]
    kind = type(xp.asarray(w))
    for found, expected in products:
        assert type(found) is kind
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-4)
