"""The broadcast of a long vector to ranks on several nodes."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.runtime.wire.collective.packets import broadcast_vector, split_into_rounds


@pytest.mark.parametrize("is_multi_node", [True, False])
@pytest.mark.parametrize(("columns", "dtype"), [(1, np.float32), (3, np.float64)])
@pytest.mark.parametrize("size", [1, 5, 8_191, 100_003])
def test_all_ranks_receive_the_vector(comm, size, columns, dtype, is_multi_node):
    sent = np.random.default_rng(0).standard_normal((columns, size)).astype(dtype)
    array = sent.copy() if comm.rank == 0 else np.full_like(sent, np.nan)
    for _ in range(2):
        broadcast_vector(comm, array, is_multi_node)
        np.testing.assert_array_equal(array, sent)


@pytest.mark.parametrize(
    ("size", "machines", "rounds"), [(10, 3, 2), (2, 3, 1), (1000, 7, 16), (1, 1, 1)]
)
def test_the_master_sends_each_number_once(size, machines, rounds):
    parts = split_into_rounds(size, machines, rounds)
    assert len(parts) == rounds
    sent = [
        number
        for counts, starts in parts
        for count, start in zip(counts, starts, strict=True)
        for number in range(start, start + count)
    ]
    assert sent == list(range(size))
    assert all(counts[0] == 0 and counts.size == machines + 1 for counts, _ in parts)
