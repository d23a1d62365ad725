"""What is measured of the wire and of products."""

from __future__ import annotations

import pytest

from cec_mpi.doctor.measure import measure_products, measure_wires


def test_wires_from_rank_0_to_all_others(comm):
    wires = measure_wires(comm, seconds=0.3)
    assert len(wires) == (comm.size - 1 if comm.rank == 0 else 0)
    for wire in wires:
        assert 0 < wire.latency <= wire.waking
        assert wire.bandwidth > 0


@pytest.mark.mpi(min_size=2)
def test_all_but_the_waiting_rank_0_multiply(comm):
    rates = measure_products(comm, threads=1)
    if comm.rank == 0:
        assert rates[0] == 0
        assert all(rate > 0 for rate in rates[1:])
    else:
        assert rates == []
