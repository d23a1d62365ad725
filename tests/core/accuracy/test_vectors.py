"""Scaling of vectors by powers of two, and cancellation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.vectors import (
    NotFiniteError,
    Scaler,
    cancellation,
    scale_by_powers,
    vector_max_abs,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
COLUMN_MAX = st.floats(0, np.finfo(np.float64).max)
DTYPES = [np.float64, np.float32]
NONFINITE = [np.nan, np.inf, -np.inf]


def round_scaled(value, exponent):
    """Return value * 2**exponent, rounded once."""
    try:
        return float(Fraction(value) * Fraction(2) ** exponent)
    except OverflowError:
        return np.copysign(np.inf, value)


@given(
    st.lists(st.tuples(FINITE, COLUMN_MAX), min_size=1, max_size=9),
    st.sampled_from(DTYPES),
    st.booleans(),
)
@example([(3.5e38, 0.0)], np.float32, False)
def test_the_scale_of_products_is_bounded(entries, dtype, adjoint):
    w, c = (np.array(values) for values in zip(*entries, strict=True))
    scaler, is_float32 = Scaler(c, dtype), dtype == np.float32
    out = np.empty((len(w), 1)) if adjoint else np.empty((1, len(w)), dtype)
    prepare = scaler.prepare_adjoint if adjoint else scaler.prepare
    (exponent,), (term_norm,) = prepare(w[:, np.newaxis], out)
    scaled = out.ravel().tolist()
    assert np.isfinite(scaled).all()
    weights = np.full(len(w), c.max()) if adjoint else c
    scale = sum(Fraction(a) * abs(Fraction(b)) for a, b in zip(weights, w, strict=True))
    scale *= Fraction(2) ** -exponent
    target, max_log2 = (48, 80) if is_float32 else (128, 480)
    unscaled = 0 if exponent or is_float32 else 256
    rounding = 1 + Fraction(2) ** -40
    assert scale < Fraction(2) ** (target + unscaled + 1) * rounding
    if (
        0 < scale * rounding < Fraction(2) ** (target - unscaled - 2)
    ):  # limited by the largest entry
        assert 2.0 ** (max_log2 - 1) <= np.abs(scaled).max() <= 2.0**max_log2
    terms = [Fraction(a) * Fraction(abs(b)) for a, b in zip(weights, scaled, strict=True)]
    largest = max(terms)
    norm = math.sqrt(sum(float(term / (largest or 1)) ** 2 for term in terms))
    assert term_norm == pytest.approx(float(largest) * norm, rel=1e-6)
    underflow = Fraction(float(np.finfo(dtype).smallest_subnormal))
    for result, entry, column_max in zip(scaled, w.tolist(), c.tolist(), strict=True):
        if adjoint or column_max:
            exact = Fraction(entry) * Fraction(2) ** -exponent
            rounding = abs(exact) * Fraction(float(np.finfo(dtype).eps)) * is_float32
            assert abs(Fraction(result) - exact) <= max(rounding, underflow)


@pytest.mark.parametrize("value", NONFINITE)
@pytest.mark.parametrize(("row", "rows"), [(2, 4), (0, 100_000), (99_999, 100_000)])
def test_nonfinite_entries_are_rejected(value, row, rows):
    for column in range(2):
        W, column_max = np.ones((rows, 2)), np.ones(rows)
        W[row, column] = value
        column_max[row // 2] = 0.0
        with pytest.raises(NotFiniteError):
            Scaler(column_max, np.float64).prepare(W, np.empty((2, rows)))
        with pytest.raises(NotFiniteError):
            Scaler(column_max, np.float64).prepare_adjoint(W, np.empty((rows, 2)))
        assert not math.isfinite(vector_max_abs(W)[column])
        assert not math.isfinite(vector_max_abs(W[:, [column]])[0])


@given(st.lists(FINITE, min_size=1, max_size=9), st.integers(-2500, 2500))
def test_products_with_powers_of_two_are_rounded_once(values, exponent):
    products = scale_by_powers(np.array(values), np.array([exponent]))
    assert products.tolist() == [round_scaled(value, exponent) for value in values]


def test_entries_for_columns_of_zeros_do_not_affect_the_scaling():
    scaler, out = Scaler([0.0, 1.0], np.float64), np.empty((2, 2))
    exponents, _ = scaler.prepare(np.array([[1e308, 1e308], [1e-300, 0.0]]), out)
    assert np.isfinite(out).all()
    assert np.ldexp(out[0, 1], exponents[0]) == 1e-300


@given(
    st.lists(st.tuples(FINITE, st.integers(-1100, 1100)), min_size=1, max_size=9),
    st.integers(-600, 1500),
)
def test_rows_and_columns_are_scaled_by_one_multiplication(entries, exponent):
    """Either power alone could overflow or underflow."""
    values, rows = (np.array(column) for column in zip(*entries, strict=True))
    scaled = Scaler([1.0], np.float64, rows).scale_rows(values[:, np.newaxis], [exponent])[:, 0]
    for value, row, result in zip(values.tolist(), rows.tolist(), scaled.tolist(), strict=True):
        expected = round_scaled(value, row + exponent)
        assert result == expected or abs(result - expected) <= 5e-324


@given(
    st.lists(st.tuples(FINITE, st.integers(-1074, 1024)), min_size=1, max_size=9),
    st.floats(1e-300, 1e300),
)
def test_adjoint_vectors_with_scaled_rows_do_not_overflow(entries, c):
    v, rows = (np.array(column) for column in zip(*entries, strict=True))
    scaler, out = Scaler([c], np.float64, [*rows, 7]), np.empty((len(v), 1))
    scaler.prepare_adjoint(v[:, np.newaxis], out)
    assert np.abs(out).max() <= 2.0**480
    assert Fraction(c) * sum(abs(Fraction(entry)) for entry in out[:, 0].tolist()) < 2**129


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_vectors_are_scaled_like_short_ones(columns, dtype):
    rng = np.random.default_rng(4)
    c, W = rng.uniform(1, 9, 100_000), rng.standard_normal((100_000, columns))
    scaler, out = Scaler(c, dtype), np.empty((columns, len(c)), dtype)
    exponents, term_norms = scaler.prepare(W, out)
    expected = np.linalg.norm(c[:, np.newaxis] * W, axis=0)
    np.testing.assert_allclose(np.ldexp(term_norms, exponents), expected, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(out, np.array(exponents)[:, np.newaxis]), W.T, rtol=1e-6)
    out = np.empty(W.shape)
    exponents, term_norms = scaler.prepare_adjoint(W, out)
    expected = c.max() * np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(np.ldexp(term_norms, exponents), expected, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(out, exponents), W)
    assert vector_max_abs(W) == np.abs(W).max(axis=0).tolist()


@pytest.mark.parametrize(
    ("term_norms", "exponents", "result_max", "expected"),
    [
        ([1.0], [-1060], [math.ldexp(1.0, -1060)], 1.0),
        ([1.0], [2000], [1.0], math.inf),
        ([1.0, 2.0], [0, 0], [0.0, 1.0], 2.0),
        ([0.0, 1.0], [0, 0], [0.0, math.inf], None),
        ([1.0], [0], [math.nan], None),
    ],
)
def test_cancellation_of_extreme_results(term_norms, exponents, result_max, expected):
    assert cancellation(term_norms, exponents, result_max) == expected
