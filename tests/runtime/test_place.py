"""Ranks, cores and threads."""

from __future__ import annotations

import os

import pytest

from cec_mpi.runtime.guards import Place
from cec_mpi.runtime.launch import limit_threads, place_of_ranks


@pytest.mark.parametrize(
    ("ranks", "cores", "own", "threads"),
    [(7, 2, 2, 1), (4, 16, 16, 4), (4, 16, 1, 1), (3, 16, 16, 5), (1, 8, 8, 8)],
)
def test_threads_are_the_share_of_the_cores(ranks, cores, own, threads):
    assert Place("host", ranks, cores, own).threads == threads


@pytest.mark.mpi(min_size=2)
def test_all_ranks_know_where_all_run(comm):
    places = place_of_ranks(comm)
    assert len(places) == comm.size
    assert {p.host for p in places} == {os.uname().nodename}
    assert all(p.ranks == comm.size for p in places)
    assert 1 <= places[comm.rank].own_cores <= places[comm.rank].cores <= os.cpu_count()


def test_blas_is_limited_whatever_the_launcher_set():
    from threadpoolctl import threadpool_info

    with limit_threads(1):
        assert {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"} == {1}
