"""Elastic steps in this process, with machines that are late, lost or faulty, or join later."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.master.computation import copy_and_check_finite
from cec_mpi.runtime.roster import State
from cec_mpi.store.reader import open_store
from helpers.elastic import open_master
from helpers.interrupts import interrupt_at_line
from helpers.recording import MemoryRecorder

RECOVERY, ROWS, COLUMNS = 3, 60, 7
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Return paths and manifests of stores of X for L + 2 and L + 3 machines, by this number."""
    path = tmp_path_factory.mktemp("stores")
    for machines in (5, 6):
        cec_mpi.encode(X, path / str(machines), machines, RECOVERY)
    return {n: (path / str(n), open_store(path / str(n)).manifest) for n in (5, 6)}


@pytest.fixture
def recorder():
    return MemoryRecorder()


@pytest.fixture
def make_master(manifests, recorder):
    """Return a function that opens a master and its hub, on a store for `total` machines."""
    return lambda total=5, **options: open_master(*manifests[total], recorder, **options)


def check_products(master):
    w, v = np.arange(COLUMNS) - 2.0, np.arange(ROWS) / ROWS
    np.testing.assert_allclose(master.matvec(w), X @ w, atol=1e-9)
    np.testing.assert_allclose(master.rmatvec(v), X.T @ v, atol=1e-9)


def check_block(master, adjoint):
    W = np.random.default_rng(1).standard_normal((ROWS if adjoint else COLUMNS, 3))
    if adjoint:
        np.testing.assert_allclose(master.rmatmat(W), X.T @ W, atol=1e-12)
    else:
        np.testing.assert_allclose(master.matmat(W), X @ W, atol=1e-12)


# --- losses, spares and deadlines ---------------------------------------------------------


def test_a_lost_machine_is_replaced_by_others_and_then_by_a_spare(make_master, recorder):
    master, hub = make_master(spares=1)
    hub.dying = {2}
    check_products(master)
    assert recorder.records[0].events[0] == {"lost": 2, "reason": "it died"}
    assert recorder.records[1].available == (1, 2, 3, 4, 5)
    assert hub.roster.serving_host(2).rank == 6
    hub.dying = {4}
    check_products(master)
    check_products(master)
    assert [record.absent_since for record in recorder.records] == [{}] * 3 + [{"lost": {4: 3}}] * 3


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_step_waits_for_spares_if_too_few_machines_remain(make_master, recorder, adjoint):
    master, hub = make_master(spares=2)
    hub.dying = {1, 2, 3}
    check_block(master, adjoint)
    check_products(master)
    assert len(recorder.records[1].available) == 4
    assert sum("joined" in event for event in recorder.all_events) == 2


def test_a_step_that_loses_too_many_machines_waits_for_the_next_tick(make_master, recorder):
    ticks = ListedAvailability([{1, 2, 3}, {4, 5, 6}], repeat=True)
    master, hub = make_master(6, availability=ticks, wait=True)
    check_products(master)
    hub.dying = {3}
    check_products(master)
    check_products(master)
    assert {record.available for record in recorder.records[2:]} == {(4, 5, 6)}


def test_a_late_machine_gets_rows_again_after_its_answer(make_master, recorder):
    master, hub = make_master(deadline=0.05)
    hub.silent = {4}
    check_products(master)
    first, second = recorder.records
    assert first.events == [{"late": 4}]
    assert first.unanswered == [4]
    assert hub.roster.state_of(4) is State.LATE
    assert (second.available, second.absent_since) == ((1, 2, 3, 5), {"late": {4: 1}})
    ((machine, seconds),) = first.delays.items()
    assert machine == 4
    assert 0.05 <= seconds <= first.announce_seconds + first.collect_seconds
    hub.silent = set()
    check_products(master)
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}
    assert recorder.records[-1].available == (1, 2, 3, 4, 5)


# --- faults -------------------------------------------------------------------------------


def shard_error(error, start, stop):
    rows = np.zeros((ROWS // RECOVERY, COLUMNS))
    rows[start:stop] = error
    return rows


def corruption(size, machine, adjoint=True, once=False, entry=0):
    """Return a fault: one entry of a machine's answers is wrong by `size` times the largest."""
    remaining = [1] if once else None

    def spoil(job, values):
        if job.machine != machine or job.product.adjoint != adjoint or remaining == []:
            return values
        if remaining:
            remaining.pop()
        spoiled = values.copy()
        spoiled[entry] += size * np.abs(values).max()
        return spoiled

    return spoil


def kill_at(machines, adjoint, count=1):
    """Return a fault: machines die at their first (or later) job of X W or of X' V."""
    jobs = []

    def kill(job):
        jobs.append(job.machine)
        is_due = jobs.count(job.machine) == count + adjoint
        return job.machine in machines and job.product.adjoint == adjoint and is_due

    return kill


EXCLUSION = [{"wrong": 2}, {"excluded": 2, "reason": "wrong in step 0"}]
LOSS = [{"lost": 2, "reason": "it died"}]
CHECK = {"check": True}


@pytest.mark.parametrize(
    ("total", "options", "faults", "adjoint", "events"),
    [
        (5, {}, {"broken": {2}}, False, [{"lost": 2, "reason": "it raised"}]),
        (6, CHECK, {"errors": {2: shard_error(1, 0, 20)}}, False, EXCLUSION),
        (
            5,
            CHECK,
            {"corrupt": corruption(np.nan, 2, adjoint=False)},
            False,
            [{"wrong": 2, "reason": "answered nan for row 4 of its shard"}, *EXCLUSION[1:]],
        ),
        # the product of its shard with the probe disagrees with those of the others
        (6, CHECK, {"errors": {2: shard_error(0.01, 3, 9)}}, True, EXCLUSION),
        (6, CHECK, {"corrupt": corruption(1e-3, 2, adjoint=False, once=True)}, True, EXCLUSION),
        # a term disagrees with the product of its shard with the probe
        (5, CHECK, {"corrupt": corruption(1e-9, 2)}, True, EXCLUSION),
        (5, CHECK, {"corrupt": corruption(1e100, 2, entry=3 * COLUMNS - 1)}, True, EXCLUSION),
        (5, CHECK, {"should_die": kill_at({2}, adjoint=False)}, True, LOSS),
        (5, CHECK, {"should_die": kill_at({2}, adjoint=True)}, True, LOSS),
        # machine 4 dies when it computes the term of machine 2
        (
            6,
            CHECK,
            {"corrupt": corruption(1, 2), "should_die": kill_at({4}, adjoint=True, count=2)},
            True,
            [*EXCLUSION[:1], {"lost": 4, "reason": "it died"}, *EXCLUSION[1:]],
        ),
    ],
)
def test_a_step_continues_without_a_faulty_machine(
    make_master, recorder, total, options, faults, adjoint, events
):
    master, hub = make_master(total, **options)
    vars(hub).update(faults)
    for _ in range(2):
        check_block(master, adjoint)
    assert sorted(map(str, recorder.all_events)) == sorted(map(str, events))
    lost_machines = {machine for event in events for machine in event.values() if machine in {2, 4}}
    assert set(recorder.records[-1].available) == set(range(1, total + 1)) - lost_machines


@pytest.mark.parametrize(
    ("total", "options", "faults", "adjoint", "message"),
    [
        (
            5,
            {"spares": 1, "machines": (1, 2, 3), "deadline": 0.05},
            {"dying": {3}, "silent": {3}},
            False,
            "2 machines remain",
        ),
        (
            5,
            {},
            {"dying": {1, 2, 3}},
            False,
            r"step 0 cannot be completed: 2 machines remain \(4, 5\), and a step needs 3; last lost"
            ": machine 3, it died$",
        ),
        (5, {}, {"corrupt": lambda job, values: values * np.nan}, False, "both are wrong"),
        (
            5,
            CHECK,
            {"errors": {2: shard_error(1, 0, 20)}},
            False,
            "step 0 has failed: the answers of machines 1, 2, 3, 4, 5 .* machine 2 is wrong, or "
            r"several are \(6 answers would identify one faulty machine: "
            r"encode with --machines 6\)$",
        ),
        (
            6,
            CHECK,
            {"errors": {2: shard_error(0.5, 3, 4), 5: shard_error(-0.7, 3, 4)}},
            False,
            "machines 2 and 5 are wrong, or more are$",
        ),
        (
            5,
            CHECK,
            {"errors": {2: shard_error(0.01, 3, 9)}},
            True,
            "machines 1, 2, 3, 4, 5 .*disagree.* machine 2 is wrong",
        ),
        (
            5,
            CHECK,
            {"should_die": kill_at({1, 2}, adjoint=False)},
            True,
            "3 machines remain .* a step needs 4",
        ),
        (
            5,
            {**CHECK, "machines": (1, 2, 3, 4)},
            {"corrupt": corruption(1e-6, 2), "should_die": kill_at({4}, adjoint=True)},
            True,
            "step 0 has failed: machine 2 sent wrong answers, and too few",
        ),
    ],
)
def test_a_failed_step_states_its_cause(make_master, total, options, faults, adjoint, message):
    master, hub = make_master(total, **options)
    vars(hub).update(faults)
    with pytest.raises((InfeasibleError, MachineError), match=message):
        check_block(master, adjoint)
    assert not hub.is_poisoned


@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
def test_a_number_that_is_not_finite_is_found_in_any_piece_of_an_answer(value):
    numbers, copy = np.arange(7.0), np.zeros(7)
    numbers[1] = value
    assert copy_and_check_finite(np.split(numbers, (2, 5)), copy) is (value == 1)
    np.testing.assert_array_equal(copy, numbers)


def test_later_steps_do_not_multiply_shards_by_the_probe(make_master):
    master, hub = make_master(check=True)
    check_block(master, adjoint=True)
    jobs = []
    hub.should_die = lambda job: jobs.append(job)
    check_block(master, adjoint=True)
    assert [job.product.adjoint for job in jobs] == [True] * 5


def test_a_machine_that_joins_is_checked_first(make_master):
    master, hub = make_master(6, check=True, machines=(1, 2, 3, 4, 5), spares=1)
    check_block(master, adjoint=True)
    hub.corrupt = corruption(1e-3, machine=2)
    check_block(master, adjoint=True)
    hub.corrupt = lambda job, values: values
    check_block(master, adjoint=True)
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}


def test_cancellation_is_not_mistaken_for_a_fault(tmp_path, recorder):
    """X w and X' v vanish, unlike their rounding errors."""
    rng = np.random.default_rng(0)
    X = 1 + 1e-6 * rng.standard_normal((ROWS, COLUMNS))
    manifest = cec_mpi.encode(X, tmp_path / "store", 5, RECOVERY, dtype="float64")
    w, v = rng.standard_normal(COLUMNS), rng.standard_normal(ROWS)
    w -= w.mean()
    v -= v.mean()
    master, _ = open_master(tmp_path / "store", manifest, recorder, check=True)
    assert np.abs(master.matvec(w) - X @ w).max() < 1e-12
    assert np.abs(master.rmatvec(v) - X.T @ v).max() < 1e-12
    assert recorder.all_events == []


@pytest.mark.parametrize("adjoint", [False, True])
def test_steps_after_an_interrupt_are_correct_or_refused(make_master, adjoint):
    refused_count = correct_count = 0
    for line in range(0, 20_000, 197):
        master, hub = make_master(check=True)
        check_products(master)
        step = partial(check_block, master, adjoint)
        if not interrupt_at_line(line, "cec_mpi", step):
            break
        if hub.is_poisoned:
            refused_count += 1
            for is_adjoint in (False, True):
                with pytest.raises(MachineError, match="the previous step was interrupted"):
                    check_block(master, is_adjoint)
        else:
            correct_count += 1
            check_products(master)
    assert refused_count > 3
    assert correct_count > 3
    assert not interrupt_at_line(line, "cec_mpi", step)
