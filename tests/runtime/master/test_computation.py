"""Answers are copied and checked in one pass, into memory that is reused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from cec_mpi.runtime.master.computation import AnswerMemory, copy_and_check_finite

FLOAT = np.dtype(np.float64)
MIB = 1 << 20


@pytest.mark.parametrize("cuts", [(), (2, 5)])
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
def test_pieces_are_concatenated_and_checked(cuts, value):
    numbers, copy = np.arange(7.0), np.zeros(7)
    numbers[1] = value
    assert copy_and_check_finite(np.split(numbers, cuts), copy) is (value == 1)
    np.testing.assert_array_equal(copy, numbers)


def test_memory_is_reused_and_shrinks():
    memory, addresses = AnswerMemory(), []
    tracemalloc.start()
    try:
        for size in [1 << 20] * 3 + [1 << 17] * 3:
            memory.clear()
            first, second = memory.allocate(size, FLOAT), memory.allocate(7, np.dtype(np.float32))
            assert not np.may_share_memory(first, second)
            assert (first.size, first.dtype, second.size) == (size, FLOAT, 7)
            assert second.dtype == np.float32
            assert tracemalloc.get_traced_memory()[0] < 17 * MIB
            addresses.append(first.ctypes.data)
            del first, second
        assert tracemalloc.get_traced_memory()[0] < 2 * MIB
    finally:
        tracemalloc.stop()
    assert addresses[1] == addresses[2]
    assert addresses[4] == addresses[5]
