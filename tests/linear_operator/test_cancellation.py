"""Digits of products: cancellation in records and warnings, and columns of very different size."""

import warnings
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import InputError, ScaleWarning
from helpers.recording import MemoryRecorder

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 40))


@pytest.fixture
def opened(tmp_path):
    """Encode X, and open it with a recorder."""

    @contextmanager
    def opened(X, machines=5, recovery=3, **options):
        encode(np.array(X), tmp_path / "store", machines, recovery, **options)
        recorder = MemoryRecorder()
        with open_operator(tmp_path / "store", recorder=recorder) as A:
            yield A, recorder.records

    return opened


# --- cancellation -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_it_is_the_size_of_the_terms_over_the_size_of_the_result(opened, size):
    largest = np.abs(X).max(axis=0)
    with opened(X, scaling="none") as (A, records):
        W, v = RNG.standard_normal((40, 3)), RNG.standard_normal(60)
        expected = [np.linalg.norm(largest * w) / np.abs(X @ w).max() for w in W.T]
        A @ (W[:, 0] * size)
        A @ (W * size)
        A.T @ (v * size)
        expected = [expected[0], max(expected)]
        expected += [largest.max() * np.linalg.norm(v) / np.abs(X.T @ v).max()]
        assert [record.cancellation for record in records] == pytest.approx(expected)


def test_scaled_rows_count_like_the_largest_row(opened):
    small = X * np.where(np.arange(60) % 2, 1e-6, 1.0)[:, np.newaxis]
    with opened(small) as (A, records):
        w, v = RNG.standard_normal(40), RNG.standard_normal(60)
        A @ w
        expected = np.linalg.norm(np.abs(small).max(axis=0) * w) / np.abs(small @ w).max()
        assert expected / 4 < records[-1].cancellation < expected * 4
        A.T @ v
        assert 1 < records[-1].cancellation < 100


def test_products_of_zeros_have_no_cancellation(opened):
    with opened([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]) as (A, records):
        for w in np.zeros(2), np.ones(2), np.zeros((2, 2)):
            A @ w
            assert records[-1].cancellation is None
        A @ np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
        assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize(
    ("dtype", "message"), [("float32", "--dtype float64"), ("float64", "--code.*subtract")]
)
def test_a_run_warns_once_of_few_digits(opened, dtype, message):
    M = RNG.standard_normal((30, 50)).astype(dtype).astype(np.float64)
    w = RNG.standard_normal(50)
    null = w - np.linalg.pinv(M) @ (M @ w)
    with opened(M, dtype=dtype) as (A, records):
        with warnings.catch_warnings(action="error"):
            A @ w
        with pytest.warns(ScaleWarning, match=f"step 1 may have fewer than three.*{message}"):
            A @ null
        with warnings.catch_warnings(action="error"):
            A @ null
        assert records[1].cancellation * A.accuracy > 1e-3


def test_a_vanishing_gradient_causes_no_warning(opened):
    M = RNG.standard_normal((50, 30))
    residual = M @ np.linalg.pinv(M) @ np.ones(50) - np.ones(50)
    with opened(M) as (A, records), warnings.catch_warnings(action="error"):
        A.T @ residual
        assert records[0].cancellation * A.accuracy > 1e-3


# --- columns that differ by hundreds of orders of magnitude -------------------------------


def exact_product(X, W):
    fractions = np.vectorize(Fraction, otypes=[object])
    return (fractions(X) @ fractions(W)).astype(float)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("exponent", [100, 155, 200, -100, -155, -200, 250, -290])
def test_products_of_scaled_columns_are_right_or_cause_a_warning(opened, exponent, columns):
    scale = 10.0**exponent
    sizes = np.array([scale, 1 / scale, scale, 1 / scale, scale])
    X = RNG.standard_normal((60, 5)) * sizes
    W = RNG.standard_normal((5, columns)) / sizes[:, np.newaxis]
    exact = exact_product(X, W)
    with opened(X) as (A, records), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = A @ W if columns > 1 else (A @ W[:, 0])[:, np.newaxis]
    error = (np.abs(product - exact).max(axis=0) / np.abs(exact).max(axis=0)).max()
    assert (ScaleWarning in [warning.category for warning in caught]) == (abs(exponent) > 200)
    if abs(exponent) > 200:
        assert error > 0.1
    else:
        assert error < 1e-13
        assert 0.1 < records[-1].cancellation < 1e3


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    ("machines", "recovery", "scaling", "X", "w"),
    [
        (4, 1, "none", [[1e200, 0], [2e200, 0]], [6e-201, 2e200]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-20, 1e300]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-250, -1e300]),
        (5, 3, "none", [[0, 1.4e155]] * 3, [-9.2e176, -5.2e-133]),
    ],
)
def test_large_factors_of_zero_columns_do_not_matter(
    opened, machines, recovery, scaling, X, w, columns
):
    W = np.array([w] * columns).T
    with (
        opened(X, machines, recovery, scaling=scaling) as (A, records),
        warnings.catch_warnings(action="error"),
    ):
        np.testing.assert_allclose(A @ W, exact_product(X, W), rtol=1e-14, atol=0)
        assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_factor_of_a_zero_column_must_be_finite(opened, number):
    with (
        opened([[1.0, 0]] * 4) as (A, _),
        pytest.raises(InputError, match=rf"w\[1\] is {number}"),
    ):
        A @ np.array([1.0, number])
