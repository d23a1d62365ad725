"""Ranks, cores and threads."""

from __future__ import annotations

import os
from unittest.mock import Mock

import pytest

from cec_mpi.runtime.processes.resources import (
    ProcessInfo,
    gather_processes,
    limit_threads,
    unbound_processors,
)


@pytest.mark.parametrize(
    ("ranks", "cores", "own", "threads"),
    [(7, 2, 2, 1), (4, 16, 16, 4), (4, 16, 1, 1), (3, 16, 16, 5), (1, 8, 8, 8)],
)
def test_threads_are_the_share_of_the_cores(ranks, cores, own, threads):
    assert ProcessInfo("host", ranks, cores, own).threads == threads


@pytest.mark.mpi(min_size=2)
def test_places_of_all_ranks_are_gathered(comm):
    processes = gather_processes(comm)
    assert len(processes) == comm.size
    assert {p.host_name for p in processes} == {os.uname().nodename}
    assert all(p.ranks == comm.size for p in processes)
    mine = processes[comm.rank]
    assert 1 <= mine.own_cores <= mine.cores <= mine.unbound_cores <= os.cpu_count()


def test_unbound_processors_leave_the_process_bound(monkeypatch):
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert unbound_processors() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
    monkeypatch.setattr(os, "sched_setaffinity", Mock(side_effect=PermissionError))
    assert unbound_processors() == before


def test_blas_threads_are_limited():
    from threadpoolctl import threadpool_info

    with limit_threads(1):
        assert {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"} == {1}
