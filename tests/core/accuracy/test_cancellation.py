"""The size of the terms over the size of a result."""

import math

import numpy as np
import pytest

from cec_mpi.core.accuracy.cancellation import TermSizes, cancellation


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e100])
def test_sizes_of_terms_are_root_sums_of_squares_also_of_small_numbers(size):
    sizes = TermSizes([3.0, 4.0, 0.0], np.float64)
    assert sizes.of_product(np.array([[size, size, 7.0]])) == [pytest.approx(5 * size)]
    assert sizes.of_adjoint(np.array([[3 * size], [4 * size]])) == [pytest.approx(20 * size)]


def test_powers_of_two_may_be_out_of_range():
    assert cancellation([1.0], [-1060], [math.ldexp(1.0, -1060)]) == 1.0
    assert cancellation([1.0], [2000], [1.0]) == math.inf


def test_columns_without_a_result_do_not_count():
    assert cancellation([1.0, 2.0], [0, 0], [0.0, 1.0]) == 2.0
    assert cancellation([0.0, 1.0], [0, 0], [0.0, math.inf]) is None
    assert cancellation([1.0], [0], [math.nan]) is None
