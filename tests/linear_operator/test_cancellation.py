"""How much of a product cancels: in records, and as a warning."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import ScaleWarning
from cec_mpi.records import Recorder

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 40))


@pytest.fixture
def records():
    return []


@pytest.fixture
def opened(tmp_path, records):
    """A function that encodes X, and opens it."""

    @contextmanager
    def opened(X, **options):
        cec_mpi.encode(X, tmp_path / "store", 5, 3, **options)
        recorder = Recorder(watch=records.append)
        with cec_mpi.open_operator(tmp_path / "store", None, recorder=recorder) as A:
            yield A

    return opened


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_it_is_the_size_of_the_terms_over_that_of_the_result(opened, records, size):
    sizes = np.abs(X).max(axis=0)
    with opened(X, scaling="none") as A:
        W = RNG.standard_normal((40, 3))
        A @ (W[:, 0] * size)
        expected = [np.linalg.norm(sizes * w) / np.abs(X @ w).max() for w in W.T]
        assert records[-1].cancellation == pytest.approx(expected[0])
        A @ (W * size)
        assert records[-1].cancellation == pytest.approx(max(expected))
        v = RNG.standard_normal(60)
        A.T @ (v * size)
        largest = sizes.max() * np.linalg.norm(v)
        assert records[-1].cancellation == pytest.approx(largest / np.abs(X.T @ v).max())


def test_scaled_rows_count_as_the_largest(opened, records):
    small = X * np.where(np.arange(60) % 2, 1e-6, 1.0)[:, np.newaxis]
    with opened(small) as A:
        w, v = RNG.standard_normal(40), RNG.standard_normal(60)
        A @ w
        expected = np.linalg.norm(np.abs(small).max(axis=0) * w) / np.abs(small @ w).max()
        assert expected / 4 < records[-1].cancellation < expected * 4
        A.T @ v
        assert 1 < records[-1].cancellation < 100


def test_of_zeros_it_is_not_known(opened, records):
    with opened(np.array([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]])) as A:
        for w in np.zeros(2), np.ones(2), np.zeros((2, 2)):
            A @ w
            assert records[-1].cancellation is None
        A @ np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
        assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize(
    ("dtype", "message"), [("float32", "--dtype float64"), ("float64", "--code.*subtract")]
)
def test_a_run_is_warned_once_of_few_digits(opened, records, dtype, message):
    M = RNG.standard_normal((30, 50)).astype(dtype).astype(np.float64)
    w = RNG.standard_normal(50)
    null = w - np.linalg.pinv(M) @ (M @ w)
    with opened(M, dtype=dtype) as A:
        with warnings.catch_warnings(action="error"):
            A @ w
        with pytest.warns(ScaleWarning, match=f"step 1 may have fewer than three.*{message}"):
            A @ null
        with warnings.catch_warnings(action="error"):
            A @ null
        assert records[1].cancellation * A.accuracy > 1e-3


def test_a_gradient_that_vanishes_is_no_reason_to_warn(opened, records):
    M = RNG.standard_normal((50, 30))
    residual = M @ np.linalg.pinv(M) @ np.ones(50) - np.ones(50)
    with opened(M) as A, warnings.catch_warnings(action="error"):
        A.T @ residual
        assert records[0].cancellation * A.accuracy > 1e-3
