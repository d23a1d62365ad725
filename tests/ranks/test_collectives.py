"""Messages of all ranks before and during steps."""

from __future__ import annotations

import os

import numpy as np
import pytest

from cec_mpi.runtime.processes.resources import gather_processes
from cec_mpi.runtime.wire.collective.messages import broadcast_vector

pytestmark = pytest.mark.mpi(min_size=4)


@pytest.mark.parametrize("is_multi_node", [True, False])
@pytest.mark.parametrize(("columns", "dtype"), [(1, np.float32), (3, np.float64)])
@pytest.mark.parametrize("size", [1, 5, 8_191, 100_003])
def test_all_ranks_receive_the_vector(comm, size, columns, dtype, is_multi_node):
    sent = np.random.default_rng(0).standard_normal((columns, size)).astype(dtype)
    array = sent.copy() if comm.rank == 0 else np.full_like(sent, np.nan)
    for _ in range(2):
        broadcast_vector(comm, array, is_multi_node)
        np.testing.assert_array_equal(array, sent)


def test_hosts_and_cores_of_all_ranks_are_gathered(comm):
    processes = gather_processes(comm)
    assert len(processes) == comm.size
    assert {p.host_name for p in processes} == {os.uname().nodename}
    assert all(p.ranks == comm.size for p in processes)
    mine = processes[comm.rank]
    assert 1 <= mine.own_cores <= mine.cores <= mine.unbound_cores <= os.cpu_count()
