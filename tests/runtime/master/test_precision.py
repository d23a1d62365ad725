"""Precision of products, for vectors and rows of all magnitudes."""

from __future__ import annotations

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import MachineError

ROWS, COLUMNS = 101, 40
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
MACHINES = {1, 2}  # whose shards are the halves of X


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Directory of systematic stores for four machines, by dtype."""
    path = tmp_path_factory.mktemp("precision")
    for dtype in ("float32", "float64"):
        cec_mpi.encode(X, path / dtype, 4, 2, systematic=True, dtype=dtype)
    return path


@pytest.fixture(params=["float32", "float64"])
def operator(request, stores):
    with cec_mpi.open_operator(stores / request.param, None) as X:
        X.available = MACHINES
        yield X


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


EXACT = X.astype(np.float64)


@pytest.mark.parametrize("k", [1, 4])
def test_products_have_double_precision(operator, k):
    W, V = RNG.standard_normal((COLUMNS, k)), RNG.standard_normal((ROWS, k))
    assert error(operator @ W, EXACT @ W) < 2e-15
    assert error(operator.H @ V, EXACT.T @ V) < 2e-15
    Z = W + 1j * RNG.standard_normal(W.shape)
    assert error(operator @ Z, EXACT @ Z) < 2e-15


@pytest.mark.parametrize("available", [{1, 2}, {3, 4}])
def test_precision_of_shards_rounds_vectors(stores, available):
    w = RNG.standard_normal(COLUMNS)
    with cec_mpi.open_operator(stores / "float32", None, precision="shard") as operator:
        operator.available = available
        assert 1e-9 < error(operator @ w, EXACT @ w) < 1e-5
        assert error(operator.H @ np.ones(ROWS), EXACT.sum(axis=0)) < 1e-5


@pytest.mark.parametrize("precision", ["double", "shard"])
@pytest.mark.parametrize("size", [1e-300, 1e-46, 1e39, 1e300])
def test_the_relative_error_is_the_same_for_all_magnitudes(stores, precision, size):
    W, V = RNG.standard_normal((COLUMNS, 3)), RNG.standard_normal((ROWS, 3))
    W[:, 1], V[:, 1] = 0, 0
    tolerance = 2e-15 if precision == "double" else 1e-6
    with cec_mpi.open_operator(stores / "float32", None, precision=precision) as operator:
        operator.available = MACHINES
        for product, given, matrix in (
            (operator.matmat, W, EXACT),
            (operator.rmatmat, V, EXACT.T),
        ):
            found = product(given * [size, 1, 1])
            expected = matrix @ given
            assert error(found[:, 0] / size, expected[:, 0]) < tolerance
            assert error(found[:, 2], expected[:, 2]) < tolerance
            assert not found[:, 1].any()


def test_the_smallest_and_almost_the_largest_numbers(operator):
    w = np.full(COLUMNS, 5e-324)
    expected = np.array([float(row.sum()) for row in EXACT]) * 5e-324  # rounded once
    found = operator @ w
    assert np.abs(found - expected).max() <= 5e-324
    assert found.any()
    largest = np.finfo(np.float64).max
    unit = np.where(np.arange(COLUMNS) == 3, largest / 8, 0)
    with np.errstate(over="ignore"):
        assert error(operator @ unit, EXACT[:, 3] * (largest / 8)) < 1e-15


def test_an_overflow_raises_and_the_next_product_is_right(operator):
    for _ in range(2):
        with pytest.raises(MachineError, match=r"^X w is too large for float64, .* step \d+"):
            operator @ np.full(COLUMNS, 1.7e308)
        with pytest.raises(MachineError, match=r"^X' v is too large for float64, .* step \d+"):
            operator.rmatmat(np.full((ROWS, 2), [1.7e308, 1.0]))
        assert error(operator @ np.ones(COLUMNS), EXACT.sum(axis=1)) < 2e-15


def test_rows_and_vectors_of_all_magnitudes(tmp_path):
    sizes = np.ldexp(1.0, np.linspace(-1000, 1000, 60).astype(int))[:, np.newaxis]
    matrix = RNG.standard_normal((60, 7)) * sizes
    cec_mpi.encode(matrix, tmp_path / "store", 3, 2)
    with cec_mpi.open_operator(tmp_path / "store", None) as operator:
        for size in 1e-300, 1e-8, 1.0:
            w = RNG.standard_normal(7) * size
            np.testing.assert_allclose(operator @ w, matrix @ w, rtol=1e-12, atol=1e-322)
        v = RNG.standard_normal((60, 2)) / sizes
        v[:, 1] = np.where(np.arange(60) == 50, 1e-200, 0)
        np.testing.assert_allclose(operator.H @ v, matrix.T @ v, rtol=1e-12)
        with pytest.raises(MachineError, match=r"^X w is too large for float64, .* step \d+"):
            operator @ np.full(7, 1e20)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_a_vector_of_all_rows_is_not_changed_and_need_not_be_contiguous(tmp_path, size):
    cec_mpi.encode(EXACT[:100], tmp_path / "even", 4, 2)
    v = size * RNG.standard_normal(100)
    before, strided = v.copy(), np.repeat(v, 2)[::2]
    with cec_mpi.open_operator(tmp_path / "even", None, speeds=(1, 2, 3, 4)) as operator:
        product = operator.H @ v
        np.testing.assert_array_equal(operator.H @ strided, product)
    np.testing.assert_array_equal(v, before)
    assert error(product / size, EXACT[:100].T @ (v / size)) < 1e-14
