"""Steps on several ranks: results, messages and memory."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import gather_processes
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.static import static_session
from cec_mpi.runtime.wire.collective.messages import broadcast_vector
from helpers.recording import MemoryRecorder

pytestmark = pytest.mark.mpi(min_size=4)

HEADER_BYTES = 40


def multiply(comm, store, vectors, **options):
    """Return records and products on rank 0, None elsewhere."""
    recorder = MemoryRecorder()
    with open_operator(store, comm, recorder=recorder, **options) as X:
        if X is None:
            return None
        return recorder.records, np.array([X.matvec(w) for w in vectors])


@pytest.fixture(scope="module")
def vectors(X):
    return np.random.default_rng(3).standard_normal((12, X.shape[1]))


def test_a_plan_is_sent_only_if_it_has_changed(comm, store, vectors):
    ticks = [(1, 2, 3)] * 3 + [(1, 3)] * 3 + [(1, 2, 3)] * 6
    outcome = multiply(
        comm, store, vectors, availability=ListedAvailability(ticks), speeds=(1.0,) * 3
    )
    if outcome:
        records, _ = outcome
        changed = [record.plan_changed for record in records]
        assert changed == [True, False, False, True, False, False, True] + [False] * 5
        for record in records:
            assert (record.payload_bytes["announce"] == HEADER_BYTES) == (not record.plan_changed)


def test_an_unchanged_step_allocates_only_its_product(comm, store, X):
    w = np.ones(X.shape[1])
    with static_session(comm) as session:
        if session is not None:
            options = SessionOptions(speeds=(1.0, 1.0, 1.0))
            master = session.open(store, options, Recorder())
            for _ in range(8):
                master.matvec(w)
            tracemalloc.start()
            size = master.matvec(w).nbytes
            domain = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
            before = tracemalloc.take_snapshot().filter_traces(domain)
            tracemalloc.reset_peak()
            base = tracemalloc.get_traced_memory()[0]
            for _ in range(5):
                master.matvec(w)
            peak = tracemalloc.get_traced_memory()[1] - base
            after = tracemalloc.take_snapshot().filter_traces(domain)
            tracemalloc.stop()
            # Records, requests and views are small objects; w, answers and products are not.
            assert sum(s.size_diff for s in after.compare_to(before, "lineno")) < w.nbytes
            assert peak < 3 * size


@pytest.mark.parametrize(
    ("dtype", "tolerance", "options"),
    [
        ("float64", 1e-12, {"speeds": (1.0, 2.0, 5.0)}),
        ("float64", 1e-12, {"scheme": "cyclic"}),
        ("float32", 1e-5, {}),
        ("float32", 1e-4, {"precision": "shard"}),
    ],
)
def test_short_and_long_messages_are_right_in_any_order(comm, stores, X, dtype, tolerance, options):
    rng = np.random.default_rng(8)
    columns = [1, 2, 8, 9, 17, 130, 137, 210]  # with and without separate messages
    # Some plans last for more products than persistent messages.
    ticks = [tick for tick in [(1, 2, 3), (1, 3), (2, 3)] for _ in range(9)] + [(1, 3), (1, 2, 3)]
    availability = ListedAvailability(ticks, repeat=True)
    with open_operator(stores[dtype], comm, availability=availability, **options) as operator:
        if operator is None:
            return
        for _ in range(60):
            k, adjoint = int(rng.choice(columns)), rng.random() < 0.5
            block = rng.standard_normal((X.shape[not adjoint], k))
            found = operator.rmatmat(block) if adjoint else operator.matmat(block)
            expected = (X.T if adjoint else X) @ block
            assert np.linalg.norm(found - expected) < tolerance * np.linalg.norm(expected)


def test_a_machine_may_have_no_rows_or_all_rows(comm, store, X, vectors):
    outcome = multiply(comm, store, vectors[:2], speeds=(1.0, 1e9, 1e9))
    if outcome:
        records, products = outcome
        assert records[0].rows == [0, 501, 501]
        np.testing.assert_allclose(products, vectors[:2] @ X.T, rtol=1e-10, atol=1e-10)


def test_some_machines_may_be_left_out(comm, store, X, vectors):
    part = comm.Split(0 if comm.rank < 3 else 1)
    if comm.rank < 3:
        outcome = multiply(part, store, vectors[:2], machines=(1, 3))
        if outcome:
            records, products = outcome
            assert [r.available for r in records] == [(1, 3), (1, 3)]
            np.testing.assert_allclose(products, vectors[:2] @ X.T, rtol=1e-10, atol=1e-10)
    part.Free()


def test_sessions_follow_each_other_without_leaking_communicators(comm, store, X):
    w = np.ones(X.shape[1])
    for _ in range(40):
        with open_operator(store, comm) as operator:
            if operator is not None:
                np.testing.assert_allclose(operator.matvec(w), X @ w, rtol=1e-10, atol=1e-10)


# --- collective messages ------------------------------------------------------------------


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
    process = processes[comm.rank]
    assert 1 <= process.own_cores <= process.cores <= process.unbound_cores <= os.cpu_count()
