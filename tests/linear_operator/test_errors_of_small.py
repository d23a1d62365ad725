"""Error figures of results that float64 holds with few digits, or not at all."""

import warnings

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import ScaleWarning
from cec_mpi.records.recorder import Recorder


class Kept(Recorder):
    def step(self, record):
        self.last = record


ONE = np.array([[-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])  # one entry
TWO = np.array([[0.0, 0.0], [12.5, 3.0], [0.0, 0.0], [0.0, 0.0]])


def figures_of(X, W, path, adjoint=False, **options):
    """A product, and its figures: where there is no bound, a warning says so."""
    encode(X, path, 4, 2, **options)
    recorder = Kept()
    with (
        warnings.catch_warnings(record=True) as caught,
        open_operator(path, None, recorder=recorder) as operator,
    ):
        warnings.simplefilter("always")
        found = (operator.H if adjoint else operator) @ np.asarray(W)
    without = [each for each in caught if "no error bound" in str(each.message)]
    assert len(without) == (recorder.last.error_bound == np.inf)
    assert all(each.category is ScaleWarning for each in without)
    return found, recorder.last.error_bound, recorder.last.error_estimate


@pytest.mark.parametrize("scaling", ["rows", "none"])
def test_a_column_that_is_lost_beside_others_is_said_to_be(tmp_path, scaling):
    V = np.array([[1e200, 1.0], [1e-200, 1.0], [0.0, 1.0], [0.0, 2.0]])
    options = {"adjoint": True, "scaling": scaling}
    found, bound, _ = figures_of(TWO, V, tmp_path / "store", **options)
    exact = TWO.T @ V
    assert np.allclose(found[:, 1], exact[:, 1])
    error = np.abs(found - exact)[:, 0].max()
    assert bound == np.inf or error <= bound * np.abs(found[:, 0]).max()


@pytest.mark.parametrize("scaling", ["rows", "none"])
def test_of_zeros_nothing_is_bounded_unless_the_vectors_are_zeros(tmp_path, scaling):
    cancelling = np.array([[1.0, -1.0], [2.0, -2.0]])
    found, *figures = figures_of(cancelling, np.ones((2, 2)), tmp_path / "a", scaling=scaling)
    assert not found.any()
    assert figures == [np.inf, np.inf]
    meets_zeros = [[0.0, 0.0], [1, 1]]
    for W, store in (np.zeros((2, 2)), "b"), (meets_zeros, "c"):
        found, *figures = figures_of(ONE, W, tmp_path / store, scaling=scaling)
        assert not found.any()
        assert figures == [0.0, 0.0]


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("size", [1e-10, 1e-12])
def test_results_of_few_digits_are_no_more_exact_than_these(tmp_path, adjoint, size):
    v = np.array([1e-310, 0.0, 0.0] if adjoint else [1e-310, 0.0])
    found, bound, estimate = figures_of(size * ONE, v, tmp_path / "store", adjoint)
    assert abs(found[0]) == pytest.approx(1e-310 * size, abs=5e-324)
    least = 5e-324 / 4 / (1e-310 * size)  # half of the smallest number, or less
    assert least < estimate <= bound < 1


@pytest.mark.parametrize("adjoint", [False, True])
def test_what_is_too_small_for_any_digit_has_no_bound(tmp_path, adjoint):
    v = np.array([1e-300, 0.0, 0.0] if adjoint else [1e-300, 0.0])
    found, *figures = figures_of(1e-36 * ONE, v, tmp_path / "store", adjoint)
    assert not found.any()
    assert figures == [np.inf, np.inf]
