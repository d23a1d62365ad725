"""Checks of terms of X' V: rounding errors pass, and larger errors fail."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.core.code.mds import make_code

DTYPES = ["float32", "float64"]


def encode(dtype, seed, X=None):
    """Return the shards of four machines, a checker with verified products, and a generator."""
    rng = np.random.default_rng(seed)
    code = make_code(4, 2, seed=seed, dtype=dtype)
    X = (rng.standard_normal((2, 30, 20)) if X is None else X).astype(dtype)
    shards = np.empty((4, *X.shape[1:]), dtype)
    code.encode(X, shards)
    column_max = np.abs(X).max(axis=(0, 1)).astype(float)
    checker = TermChecker(1.001 * np.abs(code.generator).sum(axis=1), column_max, dtype, rng)
    checker.products = {n: shard @ checker.probe[0] for n, shard in enumerate(shards, start=1)}
    return shards, checker, rng


def compute_term(shard, intervals, u):
    """Return a term, summed over the intervals as a machine does."""
    total, offset = 0, 0
    for start, stop in intervals:
        total = total + shard[start:stop].T @ u[offset : offset + stop - start]
        offset += stop - start
    return np.asarray(total)


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    rows=st.sampled_from([1, 2, 50, 700]),
    columns=st.sampled_from([1, 3, 90, 400]),
    k=st.sampled_from([1, 3]),
    distribution=st.sampled_from(
        ["normal", "constant", "scaled", "sparse", "zero", "tiny", "huge"]
    ),
    cancels=st.booleans(),
)
def test_rounding_errors_pass_the_check(dtype, seed, rows, columns, k, distribution, cancels):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2, rows, columns))
    tiny, huge = (1e-36, 1e30) if dtype == "float32" else (1e-300, 1e300)
    X = {
        "normal": X,
        "constant": np.full(X.shape, 0.1),
        "scaled": X * 10 ** rng.uniform(-9, 9, columns),
        "sparse": X * (rng.random(X.shape) < 0.02),
        "zero": 0 * X,
        "tiny": X * tiny,
        "huge": X * huge,
    }[distribution]
    shards, checker, rng = encode(dtype, seed, X)
    cut = int(rng.integers(rows))
    intervals = [(0, cut), (cut, rows)] if cut else [(0, rows)]
    u = rng.standard_normal((rows, k)).astype(dtype)
    if cancels:
        u -= u.mean(axis=0)
    if distribution == "huge":
        u /= rows * 100
    for n, shard in enumerate(shards, start=1):
        term = compute_term(shard, intervals, u)
        assert not checker.is_wrong(n, intervals, u.ravel(), term.ravel())


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    k=st.sampled_from([1, 3]),
    exponent=st.floats(0, 12),
    sign=st.sampled_from([-1, 1]),
    data=st.data(),
)
def test_one_wrong_entry_fails_the_check(dtype, seed, k, exponent, sign, data):
    shards, checker, rng = encode(dtype, seed)
    u = rng.standard_normal((30, k)).astype(dtype)
    n = data.draw(st.integers(1, 4))
    term = compute_term(shards[n - 1], [(0, 30)], u).astype(float)
    row, column = data.draw(st.integers(0, 19)), data.draw(st.integers(0, k - 1))
    rounding = 20 * np.finfo(dtype).eps * np.abs(shards).max() * np.abs(u[:, column]).sum()
    term[row, column] += sign * 200 * rounding * 10**exponent
    assert checker.is_wrong(n, [(0, 30)], u.ravel(), term.ravel())


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_terms_fail_the_check(dtype):
    shards, checker, rng = encode(dtype, 0)
    u = rng.standard_normal((30, 2)).astype(dtype)
    term = compute_term(shards[0], [(0, 30)], u).astype(float)
    other_shard = compute_term(shards[1], [(0, 30)], u)
    missing_row = compute_term(shards[0], [(0, 29)], u[:29])
    nonfinite = [np.where(term == term[7, 0], value, term) for value in (np.nan, np.inf, -np.inf)]
    transformed = -term, 0 * term, 2 * term, term[::-1], term[:, ::-1]
    for wrong_term in (*transformed, other_shard, missing_row, *nonfinite):
        assert checker.is_wrong(1, [(0, 30)], u.ravel(), wrong_term.ravel())
    assert checker.is_wrong(1, [(0, 30)], u[::-1].ravel(), term.ravel())


def test_two_errors_of_equal_size_do_not_cancel():
    """With random signs alone, half of all pairs would cancel."""
    shards, checker, rng = encode("float64", 1)
    u = rng.standard_normal((30, 1))
    term = compute_term(shards[0], [(0, 30)], u)
    for first in range(20):
        for second in range(first):
            for sign in (-1, 1):
                wrong_term = term.copy()
                wrong_term[first] += 1e-3
                wrong_term[second] += sign * 1e-3
                assert checker.is_wrong(1, [(0, 30)], u.ravel(), wrong_term.ravel())


@pytest.mark.parametrize("largest", [0.0, 1e-40, 1e38, 1e300])
def test_the_probe_is_in_the_range_of_the_dtype(largest):
    rng = np.random.default_rng(0)
    magnitudes = np.abs(TermChecker(np.ones(1), np.full(50, largest), "float32", rng).probe)
    assert magnitudes.shape == (1, 50)
    assert np.isfinite(magnitudes).all()
    assert 1 < magnitudes.max() / magnitudes.min() < 2
