"""Vectors are brought to one size by powers of two, and nothing is lost but what underflows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.scaling import NotFiniteError, Scales, multiplied

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SIZES = st.floats(0, np.finfo(np.float64).max)


@given(
    st.lists(st.tuples(FINITE, SIZES), min_size=1, max_size=9),
    st.sampled_from([np.float64, np.float32]),
    st.booleans(),
)
def test_the_scale_of_a_product_is_known_before_it_is_computed(numbers, dtype, adjoint):
    w, c = (np.array(each) for each in zip(*numbers, strict=True))
    scales, block = Scales(c, dtype), w[np.newaxis]
    if adjoint:
        found = scales.of_adjoint(block.T, np.empty(block.T.shape))
    else:
        found = scales.of_product(block, np.empty(block.shape))
    scaled = multiplied(w, -found, np.empty(len(w), dtype))
    assert np.isfinite(scaled).all()
    weights = np.full(len(w), c.max()) if adjoint else c
    terms = [Fraction(a) * abs(Fraction(b)) for a, b in zip(weights, w, strict=True)]
    size = sum(terms) * Fraction(2) ** int(-found[0])
    aim, most = {8: (128, 480), 4: (48, 80)}[np.dtype(dtype).itemsize]
    rounded = 1 + Fraction(2) ** -40  # what sums of floats may be off by
    near = 0 if found.any() or dtype == np.float32 else 256  # sums that need no scaling
    assert size < Fraction(2) ** (aim + near + 1) * rounded
    if (
        size * rounded < Fraction(2) ** (aim - near - 2) and w.any() and c.any()
    ):  # then the vector is as large as can be
        assert 2.0 ** (most - 1) <= np.abs(scaled).max() <= 2.0**most
    lost = Fraction(float(np.finfo(dtype).smallest_subnormal))  # and half an ulp of float32
    for each, number in zip(scaled.tolist(), w.tolist(), strict=True):
        exact = Fraction(number) * Fraction(2) ** int(-found[0])
        rounding = abs(exact) * Fraction(float(np.finfo(dtype).eps)) if dtype == np.float32 else 0
        assert abs(Fraction(each) - exact) <= max(rounding, lost)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_number_that_is_none_is_refused_in_any_column(bad, column):
    W = np.ones((3, 4))
    W[column, 2] = bad
    with pytest.raises(NotFiniteError):
        Scales(np.ones(4), np.float64).of_product(W, np.empty(W.shape))


@given(st.lists(FINITE, min_size=1, max_size=9), st.integers(-2500, 2500))
def test_a_product_with_a_power_of_two_is_rounded_once(values, exponent):
    found = multiplied(np.array(values), np.array([exponent]))
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
    exponents = scales.of_product(W, np.empty(W.shape))[:, np.newaxis]
    shared = multiplied(W, -exponents, np.empty(W.shape, dtype))
    found = multiplied(shared.astype(float), exponents)
    np.testing.assert_allclose(found, W, rtol=float(np.finfo(dtype).eps) if size != 5e-324 else 0)
    assert exponents[2] == 0


def test_a_column_of_zeros_of_x_may_meet_any_number():
    scales = Scales([0.0, 1.0], np.float64)
    W = np.array([[1e308, 1e-20], [1e308, 0.0]])
    exponents = scales.of_product(W, np.empty(W.shape))
    shared = multiplied(W, -exponents[:, np.newaxis], np.empty(W.shape))
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
    found = scales.with_rows(values[:, np.newaxis], np.array([exponent]))[:, 0]
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
    scales = Scales([c], np.float64, rows[:, 0])
    exponents = scales.of_adjoint(v, np.empty(v.shape))
    sent = scales.with_rows(v, -exponents)
    assert np.abs(sent).max() <= 2.0**480
    assert Fraction(c) * sum(abs(Fraction(each)) for each in sent[:, 0].tolist()) < 2**129
