"""Medians of as many numbers as a long run has steps."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.runtime.records.recorder import RunningMedian

MANY = 10_001  # more than are kept as they are
NUMBERS = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=60)


def taken(numbers):
    running = RunningMedian()
    for number in numbers:
        running.add(number)
    return running


@settings(max_examples=8)  # each takes 20,000 numbers
@given(NUMBERS)
def test_few_numbers_have_their_median_and_many_nearly(numbers):
    middle = float(np.median(numbers))
    assert taken(numbers).value == pytest.approx(middle, rel=1e-15)
    many = numbers * (MANY // len(numbers) + 1)  # with the same median
    assert taken(many).value == pytest.approx(middle, rel=3e-3, abs=0)
    assert taken(sorted(many)).value == taken(many).value


@pytest.mark.parametrize("number", [0.0, 1e-300, 1e300])
def test_what_no_run_has_is_counted_too(number):
    running = taken([*[1.0] * MANY, number])
    assert running.value == pytest.approx(1.0, rel=3e-3)
    for _ in range(MANY):
        running.add(number)
    assert running.value < 1e-11 or running.value > 1e11


def test_a_hundred_thousand_numbers_take_the_memory_of_ten_thousand():
    numbers = np.random.default_rng(0).lognormal(math.log(3e-4), 1.0, 100_000)
    running = taken(numbers)
    sizes = [sys.getsizeof(each) for each in vars(taken(numbers[:10_000])).values()]
    assert sum(map(sys.getsizeof, vars(running).values())) <= 1.1 * sum(sizes)
    assert running.value == pytest.approx(np.median(numbers), rel=3e-3)
