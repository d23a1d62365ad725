"""When a step computes longer than it communicates."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.doctor.balance import Balance


@pytest.mark.parametrize(("machines", "depth"), [(1, 1), (2, 2), (3, 2), (6, 3), (7, 3), (8, 4)])
def test_messages_to_all_machines_go_along_a_tree(machines, depth):
    assert Balance(machines, 1e-3, 1e9, 1e9).depth == depth


def test_a_step_by_hand():
    balance = Balance(machines=6, latency=1e-4, bandwidth=1e8, rate=2e9)
    # Six machines: three messages in a row for the header and for w, two for the answers.
    assert balance.communication(1000, 500) == pytest.approx(8e-4 + 8 * (3 * 500 + 1000) / 1e8)
    assert balance.computation(1000, 500) == pytest.approx(8 * 1000 * 500 / 2e9)


@pytest.mark.parametrize("seed", range(20))
def test_a_smaller_matrix_communicates_longer_and_a_larger_one_computes_longer(seed):
    rng = np.random.default_rng(seed)
    latency, bandwidth, rate = 10.0 ** rng.uniform([-6, 6, 8], [-2, 11, 13])
    balance = Balance(int(rng.integers(1, 1000)), latency, bandwidth, rate)
    n = balance.even()
    assert balance.computation(n, n) >= balance.communication(n, n) * (1 - 1e-9)
    assert balance.computation(n - 1, n - 1) < balance.communication(n - 1, n - 1) * (1 + 1e-9)
