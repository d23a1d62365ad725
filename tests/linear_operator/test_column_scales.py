"""X w where columns of X differ by hundreds of orders of magnitude, and w makes up for it."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import InputError, ScaleWarning
from cec_mpi.runtime.records.recorder import Recorder

ROWS, COLUMNS = 60, 7


def product(tmp_path, scale, columns=1):
    """The error of a product relative to its largest number, its record, and warnings."""
    rng = np.random.default_rng(0)
    sizes = np.array([scale, 1 / scale] * COLUMNS)[:COLUMNS]
    X = rng.standard_normal((ROWS, COLUMNS)) * sizes
    W = rng.standard_normal((columns, COLUMNS)) / sizes
    records = []
    encode(X, tmp_path / "store", 5, 3)
    with (
        warnings.catch_warnings(record=True) as caught,
        open_operator(tmp_path / "store", None, recorder=Recorder(watch=records.append)) as A,
    ):
        warnings.simplefilter("always")
        found = A @ W.T if columns > 1 else (A @ W[0])[:, np.newaxis]
    fractions = np.vectorize(Fraction, otypes=[object])
    exact = (fractions(X) @ fractions(W.T)).astype(float)
    errors = np.abs(found - exact).max(axis=0) / np.abs(exact).max(axis=0)
    return errors.max(), records[-1], [each.category for each in caught]


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("exponent", [100, 150, 155, 200])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_result_is_right_and_nothing_cancels(tmp_path, sign, exponent, columns):
    error, record, warned = product(tmp_path, 10.0 ** (sign * exponent), columns)
    assert error < 1e-13
    assert 0.1 < record.cancellation < 1e3
    assert ScaleWarning not in warned


@pytest.mark.parametrize("exponent", [250, 290, -250, -290])
def test_a_result_that_underflow_has_spoilt_is_warned_of(tmp_path, exponent):
    error, _, warned = product(tmp_path, 10.0**exponent)
    assert error > 0.1
    assert ScaleWarning in warned


@pytest.mark.parametrize(
    ("machines", "recovery", "scaling", "X", "w"),
    [
        (4, 1, "none", [[1e200, 0], [2e200, 0]], [6e-201, 2e200]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-20, 1e300]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-250, -1e300]),  # lost next to the other, if it was sent
        (5, 3, "none", [[0, 1.4e155]] * 3, [-9.2e176, -5.2e-133]),
    ],
)
@pytest.mark.parametrize("copies", [1, 2])
def test_what_meets_columns_of_zeros_does_not_count(
    tmp_path, machines, recovery, scaling, X, w, copies
):
    records = []
    encode(np.array(X), tmp_path / "store", machines, recovery, scaling=scaling)
    with (
        warnings.catch_warnings(action="error"),
        open_operator(tmp_path / "store", None, recorder=Recorder(watch=records.append)) as A,
    ):
        found = A @ np.array([w] * copies).T
    fractions = np.vectorize(Fraction, otypes=[object])
    exact = (fractions(X) @ fractions(w)).astype(float)[:, np.newaxis]
    np.testing.assert_allclose(found, np.tile(exact, copies), rtol=1e-14, atol=0)
    assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_meets_a_column_of_zeros_must_be_finite(tmp_path, number):
    encode(np.array([[1.0, 0]] * 4), tmp_path / "store", 4, 2)
    with (
        open_operator(tmp_path / "store", None) as A,
        pytest.raises(InputError, match=rf"w\[1\] is {number}"),
    ):
        A @ np.array([1.0, number])


@pytest.mark.parametrize(
    ("X", "scaling", "message"),
    [
        ([[1e20], [1.0]], "none", r"factor of 1e\+20.*--scaling rows"),
        ([[1e200, 1e-200], [1.0, 1.0]], "rows", "entries too far apart to be scaled in float64"),
    ],
)
def test_encoding_warns_of_rows_that_lose_their_digits(tmp_path, X, scaling, message):
    with pytest.warns(ScaleWarning, match=message):
        encode(np.array(X), tmp_path / "store", 4, 2, scaling=scaling)


@pytest.mark.parametrize(
    ("X", "scaling"),
    [
        ([[1e20], [1.0]], "rows"),
        ([[1e200, 1e-200], [2e200, 1e-200]], "rows"),
        ([[1e20], [1e19]], "none"),
    ],
)
def test_encoding_does_not_warn_of_rows_that_keep_their_digits(tmp_path, X, scaling):
    with warnings.catch_warnings(action="error"):
        encode(np.array(X), tmp_path / "store", 4, 2, scaling=scaling)
