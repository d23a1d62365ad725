"""What becomes of answers: they are copied and checked in one pass, into memory that is kept."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from cec_mpi.runtime.master.products import AnswerMemory, copy_finite

FLOAT = np.dtype(np.float64)
MIB = 1 << 20


@pytest.mark.parametrize("cuts", [(), (1,), (2, 5)])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_pieces_are_copied_one_behind_the_other_and_checked(cuts, bad):
    numbers, copied = np.arange(7.0), np.zeros(7)
    if bad is not None:
        numbers[1] = bad
    assert copy_finite(np.split(numbers, cuts), copied) is (bad is None)
    np.testing.assert_array_equal(copied, numbers)


def test_the_next_step_has_the_same_memory_and_answers_have_their_own():
    memory, places = AnswerMemory(), []
    for _ in range(5):
        memory.clear()
        first, second = memory.allocate(1000, FLOAT), memory.allocate(7, np.dtype(np.float32))
        assert not np.may_share_memory(first, second)
        assert (first.size, first.dtype, second.size, second.dtype) == (1000, FLOAT, 7, np.float32)
        places.append(first.ctypes.data)
    assert len(set(places[1:])) == 1


def test_memory_is_that_of_the_last_steps():
    memory = AnswerMemory()
    tracemalloc.start()
    try:
        for size in [1 << 20] * 3 + [1 << 17] * 3:
            memory.clear()
            memory.allocate(size, FLOAT)
            assert tracemalloc.get_traced_memory()[0] < 9 * MIB
        assert tracemalloc.get_traced_memory()[0] < 2 * MIB
    finally:
        tracemalloc.stop()
