"""Medians of as many numbers as a long run has steps."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.runtime.records.recorder import RunningMedian

MANY = 10_001  # more than have an exact median


def median_of(numbers):
    median = RunningMedian()
    for number in numbers:
        median.add(number)
    return median


@settings(max_examples=4)  # each adds 20,000 numbers
@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=60))
def test_the_median_is_exact_for_few_numbers_and_close_for_many(numbers):
    expected = float(np.median(numbers))
    assert median_of(numbers).value == pytest.approx(expected, rel=1e-15)
    many = numbers * (MANY // len(numbers) + 1)  # with the same median
    assert median_of(many).value == pytest.approx(expected, rel=3e-3, abs=0)
    assert median_of(sorted(many)).value == median_of(many).value


def test_memory_does_not_grow_with_more_numbers():
    numbers = np.random.default_rng(0).lognormal(math.log(3e-4), 1.0, 100_000)
    median = median_of(numbers)
    sizes = [sys.getsizeof(each) for each in vars(median_of(numbers[:10_000])).values()]
    assert sum(map(sys.getsizeof, vars(median).values())) <= 1.1 * sum(sizes)
    assert median.value == pytest.approx(np.median(numbers), rel=3e-3)
