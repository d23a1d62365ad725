"""Vectors are brought to one size by powers of two, and nothing is lost but what underflows.

The size of their terms over that of a result says how many digits it has lost.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.vectors import (
    NotFiniteError,
    Scales,
    cancellation,
    max_abs_of_columns,
    scale_by_powers,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SIZES = st.floats(0, np.finfo(np.float64).max)


@given(
    st.lists(st.tuples(FINITE, SIZES), min_size=1, max_size=9),
    st.sampled_from([np.float64, np.float32]),
    st.booleans(),
)
@example([(3.5e38, 0.0)], np.float32, False)
def test_the_scale_of_a_product_is_known_before_it_is_computed(numbers, dtype, adjoint):
    w, c = (np.array(each) for each in zip(*numbers, strict=True))
    scales, vector = Scales(c, dtype), w[:, np.newaxis]
    sent = np.empty((len(w), 1)) if adjoint else np.empty((1, len(w)), dtype)
    found, sizes = (scales.prepare_adjoint if adjoint else scales.prepare)(vector, sent)
    scaled = sent.reshape(-1)
    assert np.isfinite(scaled).all()
    weights = np.full(len(w), c.max()) if adjoint else c
    terms = [Fraction(a) * abs(Fraction(b)) for a, b in zip(weights, w, strict=True)]
    size = sum(terms) * Fraction(2) ** -found[0]
    aim, most = {8: (128, 480), 4: (48, 80)}[np.dtype(dtype).itemsize]
    rounded = 1 + Fraction(2) ** -40  # what sums of floats may be off by
    near = 0 if any(found) or dtype == np.float32 else 256  # sums that need no scaling
    assert size < Fraction(2) ** (aim + near + 1) * rounded
    if size * rounded < Fraction(2) ** (aim - near - 2) and any(
        terms
    ):  # then the vector is as large as can be
        assert 2.0 ** (most - 1) <= np.abs(scaled).max() <= 2.0**most
    exact = [Fraction(a) * Fraction(abs(b)) for a, b in zip(weights, scaled.tolist(), strict=True)]
    length = math.sqrt(sum(float(each / (max(exact) or 1)) ** 2 for each in exact))
    assert sizes == [pytest.approx(float(max(exact)) * length, rel=1e-6)]
    lost = Fraction(float(np.finfo(dtype).smallest_subnormal))  # and half an ulp of float32
    for each, number in zip(scaled.tolist(), w.tolist(), strict=True):
        if not adjoint and not c[np.flatnonzero(w == number)].all():
            continue  # a number that meets only zeros
        exact = Fraction(number) * Fraction(2) ** -found[0]
        rounding = abs(exact) * Fraction(float(np.finfo(dtype).eps)) if dtype == np.float32 else 0
        assert abs(Fraction(each) - exact) <= max(rounding, lost)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_number_that_is_none_is_refused_in_any_column(bad, column):
    W = np.ones((4, 3))
    W[2, column] = bad
    for c in np.ones(4), np.array([1.0, 1.0, 0.0, 1.0]):
        with pytest.raises(NotFiniteError):
            Scales(c, np.float64).prepare(W, np.empty((3, 4)))
        with pytest.raises(NotFiniteError):
            Scales(c, np.float64).prepare_adjoint(W, np.empty((4, 3)))


@given(st.lists(FINITE, min_size=1, max_size=9), st.integers(-2500, 2500))
def test_a_product_with_a_power_of_two_is_rounded_once(values, exponent):
    found = scale_by_powers(np.array(values), np.array([exponent]))
    for value, each in zip(values, found.tolist(), strict=True):
        exact = Fraction(value) * Fraction(2) ** exponent
        try:
            expected = float(exact)  # rounded to even, subnormal numbers too
        except OverflowError:
            expected = np.copysign(np.inf, value)
        assert each == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [5e-324, 1e-46, 1e-19, 1.0, 1e39, 1.7e308])
def test_columns_of_different_sizes_have_exponents_of_their_own(size, dtype):
    rng = np.random.default_rng(3)
    W = rng.integers(1, 9, (3, 40)).astype(float)
    W[2] = 0
    W[1] *= size if size < 1 else size / 9
    scales = Scales(rng.uniform(1, 9, 40), dtype)
    shared = np.empty(W.shape, dtype)
    exponents = np.array(scales.prepare(W.T, shared)[0])[:, np.newaxis]
    found = scale_by_powers(shared.astype(float), exponents)
    np.testing.assert_allclose(found, W, rtol=float(np.finfo(dtype).eps) if size != 5e-324 else 0)
    assert exponents[2] == 0


def test_a_column_of_zeros_of_x_may_meet_any_number():
    scales = Scales([0.0, 1.0], np.float64)
    W, shared = np.array([[1e308, 1e308], [1e-20, 0.0]]), np.empty((2, 2))
    exponents, _ = scales.prepare(W, shared)
    assert np.isfinite(shared).all()
    assert np.ldexp(shared[0, 1], exponents[0]) == 1e-20


@given(
    st.lists(st.tuples(FINITE, st.integers(-1100, 1100)), min_size=1, max_size=9),
    st.integers(-600, 1500),
)
def test_rows_and_columns_are_multiplied_together(numbers, exponent):
    """One of the two powers alone would overflow, or lose what the other brings back."""
    values, rows = (np.array(each) for each in zip(*numbers, strict=True))
    scales = Scales([1.0], np.float64, rows)
    found = scales.scale_rows(values[:, np.newaxis], [exponent])[:, 0]
    for value, row, each in zip(values.tolist(), rows.tolist(), found.tolist(), strict=True):
        try:
            expected = float(Fraction(value) * Fraction(2) ** (row + exponent))
        except OverflowError:
            expected = np.copysign(np.inf, value)
        assert each == expected or abs(each - expected) <= 5e-324


@given(
    st.lists(st.tuples(FINITE, st.integers(-1074, 1024)), min_size=1, max_size=9),
    st.floats(1e-300, 1e300),
)
def test_an_adjoint_with_scaled_rows_does_not_overflow(numbers, c):
    v, rows = (np.array(each)[:, np.newaxis] for each in zip(*numbers, strict=True))
    scales = Scales([c], np.float64, [*rows[:, 0], 7])  # of a shard's padding, too
    sent = np.empty(v.shape)
    scales.prepare_adjoint(v, sent)
    assert np.abs(sent).max() <= 2.0**480
    assert Fraction(c) * sum(abs(Fraction(each)) for each in sent[:, 0].tolist()) < 2**129


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_vectors_are_measured_like_short_ones(columns, dtype):
    rng = np.random.default_rng(4)
    c, W = rng.uniform(1, 9, 100_000), rng.standard_normal((100_000, columns))
    scales, shared = Scales(c, dtype), np.empty((columns, len(c)), dtype)
    exponents, terms = scales.prepare(W, shared)
    expected = np.linalg.norm(c[:, np.newaxis] * W, axis=0)
    np.testing.assert_allclose(np.ldexp(terms, exponents), expected, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(shared, np.array(exponents)[:, np.newaxis]), W.T, rtol=1e-6)
    sent = np.empty(W.shape)
    exponents, terms = scales.prepare_adjoint(W, sent)
    expected = c.max() * np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(np.ldexp(terms, exponents), expected, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(sent, exponents), W)
    assert max_abs_of_columns(W) == np.abs(W).max(axis=0).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 50_000, 99_999])
def test_a_number_that_is_none_is_found_anywhere_in_a_long_vector(bad, place):
    w = np.ones((100_000, 1))
    w[place] = bad
    assert not math.isfinite(max_abs_of_columns(w)[0])
    with pytest.raises(NotFiniteError):
        Scales(np.ones(len(w)), np.float64).prepare(w, np.empty((1, len(w))))


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e100])
def test_sizes_of_terms_are_root_sums_of_squares_also_of_small_numbers(size):
    scales = Scales([3.0, 4.0, 0.0], np.float64)
    exponents, terms = scales.prepare(np.array([[size], [size], [7.0]]), np.empty((1, 3)))
    assert np.ldexp(terms[0], exponents[0]) == pytest.approx(5 * size)
    exponents, terms = scales.prepare_adjoint(np.array([[3 * size], [4 * size]]), np.empty((2, 1)))
    assert np.ldexp(terms[0], exponents[0]) == pytest.approx(20 * size)


def test_powers_of_two_may_be_out_of_range():
    assert cancellation([1.0], [-1060], [math.ldexp(1.0, -1060)]) == 1.0
    assert cancellation([1.0], [2000], [1.0]) == math.inf


def test_columns_without_a_result_do_not_count():
    assert cancellation([1.0, 2.0], [0, 0], [0.0, 1.0]) == 2.0
    assert cancellation([0.0, 1.0], [0, 0], [0.0, math.inf]) is None
    assert cancellation([1.0], [0], [math.nan]) is None
