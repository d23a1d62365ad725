"""Products of all routines, compared with sums in extended precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.rounding import gamma
from cec_mpi.store.products.block import add_transposed_block, multiply_block, transpose_vectors
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.products.single import add_transposed, multiply

RNG = np.random.default_rng(7)
DTYPES = [np.float64, np.float32]


def random_arrays(dtype, *shapes):
    """Return arrays with entries of many sizes, so that any permutation changes a product."""
    return [
        (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-9, 9, shape)).astype(dtype)
        for shape in shapes
    ]


def check_rounding(computed, left, right, start=None):
    """Check the rounding error of sums of products in any order (Higham, section 3.1)."""
    initial = 0 if start is None else start
    exact = left.astype(np.longdouble) @ right.astype(np.longdouble) + initial
    sizes = abs(left).astype(np.longdouble) @ abs(right).astype(np.longdouble) + abs(initial)
    bound = gamma(left.shape[1] + (start is not None), left.dtype) * sizes
    assert (abs(computed - exact) <= bound).all()


# Shapes for every routine: one, few and many rows, narrow and wide.
SHAPES = [
    *((rows, 1) for rows in (1, 5, 5000)),
    *((rows, columns) for columns in (2, 4, 8, 12, 14, 20) for rows in (7, 2501, 12_003)),
    *((2001, columns) for columns in (22, 24, 26, 31, 32, 60, 64)),
    *((rows, columns) for columns in (250, 1919, 2500) for rows in (1, 90)),
    (3, 120_000),
]


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_products_with_one_vector_are_accurate(rows, columns, dtype, is_cached):
    X, w, u = random_arrays(dtype, (rows, columns), (columns,), (rows,))
    out = np.full(rows + 2, np.nan, dtype)
    multiply(X, w, out[1:-1], is_cached=is_cached)
    check_rounding(out[1:-1], X, w)
    assert np.isnan(out[[0, -1]]).all()
    start = np.linspace(-1, 1, columns)
    sums = start.copy()
    add_transposed(X, u, sums, Scratch(), is_cached=is_cached)
    check_rounding(sums, X.T, u, start)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [
        *((rows, columns, k) for rows, columns in [(1, 1), (700, 120)] for k in (2, 3, 8)),
        (300, 120, 97),
        *((2000, 3, k) for k in (2, 4)),
        *((rows, columns, 17) for rows, columns in [(301, 40), (40, 700), (20, 2100)]),
        (20, 2100, 40),  # several panels in X' V
        (13, 6000, 17),  # several panels in X V
    ],
)
def test_products_with_several_vectors_are_accurate(rows, columns, k, dtype):
    X, W, U = random_arrays(dtype, (rows, columns), (k, columns), (rows, k))
    start = np.linspace(-1, 1, columns * k).reshape(columns, k)
    scratch = Scratch()
    for is_cached in (False, True):
        out, sums = np.full((rows, k), np.nan, dtype), start.copy()
        columns_of_W = W.T if is_cached else transpose_vectors(W, scratch)
        multiply_block(X, W, columns_of_W, out, scratch, is_cached=is_cached)
        check_rounding(out, X, W.T)
        add_transposed_block(X, U, sums, scratch, is_cached=is_cached)
        check_rounding(sums, X.T, U, start)


@pytest.mark.parametrize("columns", [1, 4, 12, 22, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_rows_that_are_not_contiguous_are_accurate(dtype, columns):
    X, w, u = random_arrays(dtype, (2001, columns + 3), (columns,), (2001,))
    out, sums = np.full(2001, np.nan, dtype), np.zeros((columns, 2))
    multiply(X[:, 3:], w, out)
    check_rounding(out, X[:, 3:], w)
    add_transposed(X[:, 3:], u, sums[:, 1], Scratch())
    check_rounding(sums[:, 1], X[:, 3:].T, u)
    assert not sums[:, 0].any()


@given(
    rows=st.integers(0, 400),
    columns=st.integers(1, 400),
    k=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
)
def test_products_of_any_shape_are_accurate(rows, columns, k, dtype):
    X, W, U = random_arrays(dtype, (rows, columns), (k, columns), (rows, k))
    out, sums, scratch = np.empty((rows, k), dtype), np.zeros((columns, k)), Scratch()
    if k == 1:
        multiply(X, W[0], out[:, 0])
        add_transposed(X, U[:, 0], sums[:, 0], scratch)
    else:
        multiply_block(X, W, transpose_vectors(W, scratch), out, scratch)
        add_transposed_block(X, U, sums, scratch)
    check_rounding(out, X, W.T)
    check_rounding(sums, X.T, U)


def test_long_sums_of_float32_are_accurate():
    """A sum of ones in float32 would stop at 2**24."""
    rows = 9 << 21
    sums = np.zeros(4)
    add_transposed(np.ones((rows, 4), np.float32), np.ones(rows, np.float32), sums, Scratch())
    assert (sums == rows).all()
    sums = np.zeros((1, 2))
    X, U = np.ones((rows, 1), np.float32), np.ones((rows, 2), np.float32)
    add_transposed_block(X, U, sums, Scratch())
    assert (sums == rows).all()
