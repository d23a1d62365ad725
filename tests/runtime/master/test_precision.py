"""Precision of products, for vectors of all magnitudes."""

from __future__ import annotations

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import MachineError

ROWS, COLUMNS = 101, 40
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
EXACT = X.astype(np.float64)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Return a directory of systematic stores for four machines, named by dtype."""
    path = tmp_path_factory.mktemp("precision")
    for dtype in ("float32", "float64"):
        cec_mpi.encode(X, path / dtype, 4, 2, systematic=True, dtype=dtype)
    return path


def relative_error(product, expected):
    return np.abs(product - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "precision", "tolerance"),
    [("float64", "double", 2e-15), ("float32", "double", 2e-15), ("float32", "shard", 1e-6)],
)
@pytest.mark.parametrize("size", [1e-300, 1e-46, 1.0, 1e300])
def test_products_have_the_chosen_precision_for_any_size(stores, dtype, precision, tolerance, size):
    W, V = RNG.standard_normal((COLUMNS, 3)), RNG.standard_normal((ROWS, 3))
    W[:, 1], V[:, 1] = 0, 0
    with cec_mpi.open_operator(stores / dtype, None, precision=precision) as operator:
        operator.available = {1, 2}  # whose shards are the halves of X
        for product, block, matrix in (
            (operator.matmat, W, EXACT),
            (operator.rmatmat, V, EXACT.T),
        ):
            result = product(block * [size, 1, 1])
            expected = matrix @ block
            assert relative_error(result[:, 0] / size, expected[:, 0]) < tolerance
            assert relative_error(result[:, 2], expected[:, 2]) < tolerance
            assert not result[:, 1].any()
        z = W[:, 0] * (1 + 1j)
        assert relative_error(operator @ z, EXACT @ z) < tolerance
        if precision == "shard":
            assert relative_error(operator @ W[:, 0], EXACT @ W[:, 0]) > 1e-9
            operator.available = {3, 4}
            assert relative_error(operator @ W[:, 0], EXACT @ W[:, 0]) < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_overflow_raises_and_the_next_product_is_correct(stores, dtype):
    with cec_mpi.open_operator(stores / dtype, None) as operator:
        operator.available = {1, 2}
        for _ in range(2):
            with pytest.raises(MachineError, match=r"^X w is too large for float64, .* step \d+"):
                operator @ np.full(COLUMNS, 1.7e308)
            with pytest.raises(MachineError, match=r"^X' v is too large for float64, .* step \d+"):
                operator.rmatmat(np.full((ROWS, 2), [1.7e308, 1.0]))
            assert relative_error(operator @ np.ones(COLUMNS), EXACT.sum(axis=1)) < 2e-13
