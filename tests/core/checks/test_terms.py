"""Terms of X' V: rounding never fails, and wrong numbers do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.core.code.mds import make_code

DTYPES = ["float32", "float64"]


def made(dtype, seed, rows=30, columns=20, machines=4, recovery=2, X=None):
    """Shards, and checks that know their products with the probe."""
    rng = np.random.default_rng(seed)
    code = make_code(machines, recovery, seed=seed, dtype=dtype)
    if X is None:
        X = rng.standard_normal((recovery, rows, columns))
    X = X.astype(dtype)
    shards = np.empty((machines, *X.shape[1:]), dtype)
    code.encode(X, shards)
    largest = np.abs(X).max(axis=(0, 1)).astype(float)
    sizes = 1.001 * np.abs(code.generator).sum(axis=1)
    checks = TermChecker(sizes, largest, dtype, rng)
    for n, shard in enumerate(shards, start=1):
        checks.products[n] = shard @ checks.probe[0]
    return shards, checks, rng


def term(shard, intervals, u):
    """As a machine computes it: interval after interval."""
    total, position = 0, 0
    for start, stop in intervals:
        total = total + shard[start:stop].T @ u[position : position + stop - start]
        position += stop - start
    return np.asarray(total)


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    rows=st.sampled_from([1, 2, 50, 700]),
    columns=st.sampled_from([1, 3, 90, 400]),
    k=st.sampled_from([1, 3]),
    kind=st.sampled_from(["normal", "constant", "sizes", "sparse", "zero", "tiny", "huge"]),
    cancelled=st.booleans(),
)
def test_rounding_never_fails(dtype, seed, rows, columns, k, kind, cancelled):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2, rows, columns))
    tiny, huge = (1e-36, 1e30) if dtype == "float32" else (1e-300, 1e300)
    X = {
        "normal": X,
        "constant": np.full(X.shape, 0.1),
        "sizes": X * 10 ** rng.uniform(-9, 9, columns),
        "sparse": X * (rng.random(X.shape) < 0.02),
        "zero": 0 * X,
        "tiny": X * tiny,
        "huge": X * huge,
    }[kind]
    shards, checks, rng = made(dtype, seed, X=X)
    cut = int(rng.integers(rows))
    intervals = [(0, cut), (cut, rows)] if cut else [(0, rows)]
    u = rng.standard_normal((rows, k)).astype(dtype)
    if cancelled:
        u -= u.mean(axis=0)
    if kind == "huge":
        u /= rows * 100
    for n, shard in enumerate(shards, start=1):
        assert not checks.is_wrong(n, intervals, u.ravel(), term(shard, intervals, u).ravel())


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    k=st.sampled_from([1, 3]),
    exponent=st.floats(0, 12),
    data=st.data(),
)
def test_one_number_that_is_wrong_by_more_than_rounding_is_seen(dtype, seed, k, exponent, data):
    shards, checks, rng = made(dtype, seed)
    u = rng.standard_normal((30, k)).astype(dtype)
    n = data.draw(st.integers(1, 4))
    value = term(shards[n - 1], [(0, 30)], u).astype(float)
    row, column = data.draw(st.integers(0, 19)), data.draw(st.integers(0, k - 1))
    length = np.abs(u[:, column]).sum()
    size = 200 * 20 * np.finfo(dtype).eps * np.abs(shards).max() * length * 10**exponent
    value[row, column] += data.draw(st.sampled_from([-1, 1])) * size
    assert checks.is_wrong(n, [(0, 30)], u.ravel(), value.ravel())


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_wrong_in_many_places_is_seen(dtype):
    shards, checks, rng = made(dtype, 0)
    u = rng.standard_normal((30, 2)).astype(dtype)
    right = term(shards[0], [(0, 30)], u).astype(float)
    for wrong in (-right, 0 * right, right[::-1], right[:, ::-1], 2 * right):
        assert checks.is_wrong(1, [(0, 30)], u.ravel(), wrong.ravel())
    assert checks.is_wrong(1, [(0, 30)], u[::-1].ravel(), right.ravel())  # another vector
    other = term(shards[1], [(0, 30)], u)
    assert checks.is_wrong(1, [(0, 30)], u.ravel(), other.ravel())  # another shard
    few = term(shards[0], [(0, 29)], u[:29])
    assert checks.is_wrong(1, [(0, 30)], u.ravel(), few.ravel())  # a row is missing


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails(value):
    shards, checks, rng = made("float64", 0)
    u = rng.standard_normal((30, 1))
    wrong = term(shards[0], [(0, 30)], u)
    wrong[7] = value
    assert checks.is_wrong(1, [(0, 30)], u.ravel(), wrong.ravel())


def test_errors_of_equal_size_do_not_cancel():
    """With signs alone, half of all pairs would."""
    shards, checks, rng = made("float64", 1)
    u = rng.standard_normal((30, 1))
    right = term(shards[0], [(0, 30)], u)
    for first in range(20):
        for second in range(first):
            for sign in (-1, 1):
                wrong = right.copy()
                wrong[first] += 1e-3
                wrong[second] += sign * 1e-3
                assert checks.is_wrong(1, [(0, 30)], u.ravel(), wrong.ravel())


def test_the_probe_has_numbers_that_fit_the_dtype():
    for largest in (0.0, 1e-40, 1e38, 1e300):
        checks = TermChecker(np.ones(1), np.full(50, largest), "float32", np.random.default_rng(0))
        sizes = np.abs(checks.probe)
        assert checks.probe.shape == (1, 50)
        assert np.isfinite(sizes).all()
        assert 1 < sizes.max() / sizes.min() < 2
