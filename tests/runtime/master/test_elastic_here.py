"""Elastic steps in this process: machines that are late, lost, wrong, or come later."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import MachineExcluded
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.roster import State
from cec_mpi.store.reader import open_store
from helpers.elastic_here import master_of
from helpers.interrupts import interrupted
from helpers.recording import Kept

MACHINES, RECOVERY, ROWS, COLUMNS = 5, 3, 60, 7


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """X, and its stores by number of machines."""
    path = tmp_path_factory.mktemp("jobs")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    np.save(path / "X.npy", X)
    counts = MACHINES, MACHINES + 1
    for machines in counts:
        cec_mpi.encode(path / "X.npy", path / str(machines), machines, RECOVERY)
    return X, {machines: path / str(machines) for machines in counts}


def makes(stores, machines):
    X, paths = stores
    recorder = Kept()
    manifest = open_store(paths[machines]).manifest
    return X, partial(master_of, paths[machines], manifest, recorder), recorder


@pytest.fixture
def made(stores):
    """X, what makes a master of L + 2 machines, and what it recorded."""
    return makes(stores, MACHINES)


@pytest.fixture
def made_of_six(stores):
    """As `made`, with L + 3 machines."""
    return makes(stores, MACHINES + 1)


def check(X, master):
    w, v = np.arange(COLUMNS) - 2.0, np.arange(ROWS) / ROWS
    np.testing.assert_allclose(master.matvec(w), X @ w, atol=1e-9)
    np.testing.assert_allclose(master.rmatvec(v), X.T @ v, atol=1e-9)


def test_a_lost_machine_is_replaced_in_the_step_and_by_a_spare(made):
    X, make, recorder = made
    master, hub = make(spares=1)
    hub.dying = {2}
    check(X, master)
    first = recorder.records[0].events
    assert first[0] == {"lost": 2, "reason": "it died"}
    assert recorder.records[1].available == (1, 2, 3, 4, 5)
    assert hub.roster.serving_host(2).rank == 6
    assert [record.away for record in recorder.records] == [{}, {}]


def test_spares_end_a_step_that_has_too_few_machines_left(made):
    X, make, recorder = made
    master, hub = make(spares=2)
    hub.dying = {1, 2, 3}
    check(X, master)
    assert len(recorder.records[1].available) == 4
    assert sum("joined" in event for event in recorder.happened) == 2


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_spare_gives_what_only_its_machine_can(made, adjoint):
    X, make, recorder = made
    master, hub = make(spares=1, machines=(1, 2, 3))
    check(X, master)
    first = hub.roster.serving_host(3)
    hub.kills = lambda job: (
        hub.roster.serving_host(3) is first and (job.machine, job.product.adjoint) == (3, adjoint)
    )
    check(X, master)
    assert sum("joined" in event for event in recorder.happened) == 1


def test_a_machine_that_joins_in_a_step_and_is_silent_is_not_waited_for(made):
    _, make, _ = made
    master, hub = make(spares=1, machines=(1, 2, 3), deadline=0.05)
    hub.dying, hub.silent = {3}, {3}
    with pytest.raises(InfeasibleError, match="2 machines remain"):
        master.matvec(np.ones(COLUMNS))


def test_the_next_tick_is_waited_for_when_a_step_cannot_end(made_of_six):
    X, make, recorder = made_of_six
    master, hub = make(
        availability=ListedAvailability([{1, 2, 3}, {4, 5, 6}], repeat=True), wait=True
    )
    check(X, master)
    hub.dying = {3}
    check(X, master)
    check(X, master)
    assert {record.available for record in recorder.records[2:]} == {(4, 5, 6)}


def test_records_say_who_is_away_why_and_since_when(made):
    X, make, recorder = made
    master, hub = make()
    check(X, master)
    hub.dying = {2}
    check(X, master)
    first, second, third, fourth = recorder.records
    assert (first.away, second.away, third.away) == ({}, {}, {})
    assert fourth.away == {"lost": {2: 3}}
    check(X, master)
    assert recorder.records[-1].away == {"lost": {2: 3}}


def test_a_late_machine_gets_rows_again_when_it_has_answered(made):
    X, make, recorder = made
    master, hub = make(deadline=0.05)
    hub.silent = {4}
    check(X, master)
    assert recorder.records[0].events == [{"late": 4}]
    assert hub.roster.state_of(4) is State.LATE
    assert recorder.records[1].available == (1, 2, 3, 5)
    assert recorder.records[1].away == {"late": {4: 1}}
    assert recorder.records[0].unanswered == [4]
    ((machine, seconds),) = recorder.records[0].delays.items()
    assert machine == 4
    first = recorder.records[0]
    assert 0.05 <= seconds <= first.announce_seconds + first.collect_seconds
    hub.silent = set()
    check(X, master)
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}
    assert recorder.records[-1].available == (1, 2, 3, 4, 5)


def test_a_machine_that_raises_is_excluded(made):
    X, make, recorder = made
    master, hub = make()
    hub.broken = {1}
    check(X, master)
    assert recorder.records[0].events == [{"lost": 1, "reason": "it raised"}]
    assert hub.roster[1].is_excluded
    assert hub.roster.vacant == [1]


def test_too_few_are_left(made):
    _, make, _ = made
    master, hub = make()
    hub.dying = {1, 2, 3}
    with pytest.raises(InfeasibleError, match="2 machines remain"):
        master.matvec(np.ones(COLUMNS))
    assert sorted(hub.roster.vacant) == [1, 2, 3]


# --- wrong answers ------------------------------------------------------------------------


def test_a_machine_that_is_wrong_is_replaced_and_excluded(made_of_six):
    X, make, recorder = made_of_six
    master, hub = make(check=True)
    hub.errors = {2: np.ones((ROWS // RECOVERY, COLUMNS))}
    W = np.random.default_rng(1).standard_normal((COLUMNS, 2))
    for _ in range(2):
        np.testing.assert_allclose(master.matmat(W), X @ W, atol=1e-12)
    assert recorder.happened == [{"wrong": 2}, {"excluded": 2, "reason": "wrong in step 0"}]
    assert recorder.records[-1].available == (1, 3, 4, 5, 6)


def test_a_machine_of_l_plus_2_is_a_suspect_and_not_excluded(made):
    _, make, _ = made
    master, hub = make(check=True)
    hub.errors = {2: np.ones((ROWS // RECOVERY, COLUMNS))}
    for step in range(4):
        with pytest.raises(MachineError) as error:
            master.matvec(np.ones(COLUMNS))
        message, hint = str(error.value), "6 answers would identify it: encode with --machines 6"
        assert message.startswith(f"step {step} has failed: the answers of machines 1, 2, 3, 4, 5")
        assert message.endswith(f"machine 2 is wrong, or several are ({hint})")
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}


def test_two_machines_that_are_wrong_in_the_same_rows_are_suspects(made_of_six):
    _, make, _ = made_of_six
    master, hub = make(check=True)
    hub.errors = {2: rows_with(0.5, 3, 4), 5: rows_with(-0.7, 3, 4)}
    with pytest.raises(MachineError, match=r"machines 2 and 5 are wrong, or more are$"):
        master.matvec(np.ones(COLUMNS))


def rows_with(error, start, stop):
    rows = np.zeros((ROWS // RECOVERY, COLUMNS))
    rows[start:stop] = error
    return rows


# --- X' V that is checked -----------------------------------------------------------------


def wrong_by(size, machine, adjoint=True, once=False, where=0):
    """Answers of a machine with one number that is wrong, relative to the largest."""
    left = [1] if once else None

    def spoils(job, values):
        if job.machine != machine or job.product.adjoint != adjoint or left == []:
            return values
        if left:
            left.pop()
        spoiled = values.copy()
        spoiled[where] += size * np.abs(values).max()
        return spoiled

    return spoils


@pytest.mark.parametrize(("columns", "size"), [(1, 1e-9), (3, 1.0), (3, 1e100)])
def test_a_wrong_term_of_an_adjoint_is_replaced_and_its_machine_excluded(made, columns, size):
    X, make, recorder = made
    master, hub = make(check=True)
    V = np.random.default_rng(1).standard_normal((ROWS, columns))
    np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-12)
    hub.spoils = wrong_by(size, machine=2, where=columns * COLUMNS - 1)
    for _ in range(2):
        np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-12)
    assert recorder.happened == [{"wrong": 2}, {"excluded": 2, "reason": "wrong in step 1"}]
    assert recorder.records[-1].available == (1, 3, 4, 5)


def test_a_machine_whose_shard_is_wrong_is_named_by_its_product_with_the_probe(made_of_six):
    """Its terms agree with its own product, and that not with those of others."""
    X, make, recorder = made_of_six
    master, hub = make(check=True)
    hub.errors = {2: rows_with(0.01, 3, 9)}
    v = np.random.default_rng(1).standard_normal(ROWS)
    np.testing.assert_allclose(master.rmatvec(v), X.T @ v, atol=1e-12)
    assert recorder.happened == [{"wrong": 2}, {"excluded": 2, "reason": "wrong in step 0"}]


def test_of_l_plus_2_products_with_the_probe_nobody_is_named(made):
    _, make, _ = made
    master, hub = make(check=True)
    hub.errors = {2: rows_with(0.01, 3, 9)}
    with pytest.raises(MachineError, match=r"machines 1, 2, 3, 4, 5 .*disagree.* machine 2 is wr"):
        master.rmatvec(np.ones(ROWS))


def test_the_probe_is_one_product_of_each_machine(made):
    X, make, _ = made
    master, hub = make(check=True, spares=1)
    sent, send_jobs = [], hub.send_jobs
    hub.send_jobs = lambda rank, jobs: (
        sent.append((jobs[0].machine, jobs[0].step)),
        send_jobs(rank, jobs),
    )
    for _ in range(2):
        np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    assert [step for _, step in sent] == [0] * 10 + [1] * 5
    assert {n for n, _ in sent[:5]} == {1, 2, 3, 4, 5}
    hub.dying = {2}
    master.rmatvec(np.ones(ROWS))
    master.rmatvec(np.ones(ROWS))  # the spare is machine 2, whose product is known
    assert [step for _, step in sent].count(3) == 5


def test_a_machine_that_joins_computes_its_product_first(made_of_six):
    X, make, _ = made_of_six
    master, hub = make(check=True, machines=(1, 2, 3, 4, 5), spares=1)
    master.rmatvec(np.ones(ROWS))
    hub.spoils = wrong_by(1e-3, machine=2)
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    hub.spoils = lambda job, values: values
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}


def test_with_l_machines_there_is_nothing_to_compare(made):
    _, make, _ = made
    master, hub = make(check=True)
    for n in (4, 5):
        hub.exclude(n, "gone", MachineExcluded)
    for product, size in ((master.matvec, COLUMNS), (master.rmatvec, ROWS)):
        with pytest.raises(InfeasibleError, match="a step needs 4"):
            product(np.ones(size))


def test_where_l_machines_are_left_a_wrong_term_is_refused(made):
    X, make, _ = made
    master, hub = make(check=True)
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    hub.exclude(5, "gone", MachineExcluded)
    hub.kills = lambda job: job.machine == 4
    hub.spoils = wrong_by(1e-6, machine=2)
    with pytest.raises(MachineError, match=r"step 1 has failed: machine 2 sent wrong answers"):
        master.rmatvec(np.ones(ROWS))


def test_a_wrong_product_with_the_probe_excludes_its_machine(made_of_six):
    X, make, recorder = made_of_six
    master, hub = make(check=True)
    hub.spoils = wrong_by(1e-3, machine=2, adjoint=False, once=True)
    for _ in range(2):
        np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    assert recorder.happened == [{"wrong": 2}, {"excluded": 2, "reason": "wrong in step 0"}]


def test_a_machine_that_dies_while_it_is_checked_is_done_without(made):
    X, make, recorder = made
    master, hub = make(check=True)
    hub.kills = lambda job: job.machine == 2 and not job.product.adjoint
    for _ in range(2):
        np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
        hub.kills = lambda job: False
    assert recorder.happened == [{"lost": 2, "reason": "it died"}]


def test_too_few_are_left_while_terms_are_checked(made):
    _, make, _ = made
    master, hub = make(check=True)
    hub.kills = lambda job: job.machine in (1, 2) and not job.product.adjoint
    with pytest.raises(InfeasibleError, match=r"3 machines remain .* a step needs 4"):
        master.rmatvec(np.ones(ROWS))


def test_a_machine_that_dies_instead_of_standing_in_is_done_without(made):
    X, make, recorder = made
    master, hub = make(check=True)
    master.rmatvec(np.ones(ROWS))
    seen = []

    def kills(job):
        seen.append(job.machine)
        return job.machine == 4 and seen.count(4) == 2

    hub.spoils, hub.kills = wrong_by(1.0, machine=2), kills
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    events = recorder.records[1].events
    assert events[0] == {"wrong": 2}
    assert {"lost": 4, "reason": "it died"} in events


def test_a_machine_that_is_late_with_the_probe_is_done_without(made):
    X, make, recorder = made
    master, hub = make(check=True, deadline=0.05)
    answer, held = hub.events, set()

    def events(until):
        hub.silent = {n for n, job in hub.pending_jobs().items() if not job.product.adjoint} & {3}
        held.update(hub.silent)
        return answer(until)

    hub.events = events
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    assert held == {3}
    assert recorder.records[0].events == [{"late": 3}]


def test_first_products_that_cancel_are_not_doubted(tmp_path):
    """X w and X' v are next to nothing, and their rounding errors are not."""
    rng = np.random.default_rng(0)
    X = 1 + 1e-6 * rng.standard_normal((ROWS, COLUMNS))
    cec_mpi.encode(X, tmp_path / "store", MACHINES, RECOVERY, dtype="float64")
    manifest = open_store(tmp_path / "store").manifest
    w, v = rng.standard_normal(COLUMNS), rng.standard_normal(ROWS)
    w -= w.mean()
    v -= v.mean()
    recorder = Kept()
    master, _ = master_of(tmp_path / "store", manifest, recorder, check=True)
    assert np.abs(master.matvec(w) - X @ w).max() < 1e-12
    assert np.abs(master.rmatvec(v) - X.T @ v).max() < 1e-12
    assert recorder.happened == []


@pytest.mark.parametrize("adjoint", [False, True])
def test_after_an_interrupt_steps_are_right_or_refused(made, adjoint):
    X, make, _ = made
    refused = whole = 0
    for place in range(0, 20_000, 197):
        master, hub = make(check=True)
        check(X, master)
        product, size = (master.rmatvec, ROWS) if adjoint else (master.matvec, COLUMNS)
        step = partial(product, np.ones(size))
        if not interrupted(place, "cec_mpi", step):
            break
        if hub.is_poisoned:
            refused += 1
            for again in (master.matvec, master.rmatvec):
                with pytest.raises(MachineError, match="the previous step was interrupted"):
                    again(np.ones(ROWS if again == master.rmatvec else COLUMNS))
        else:
            whole += 1
            check(X, master)
    assert refused > 3
    assert whole > 3
    assert not interrupted(place, "cec_mpi", step)


def test_an_error_of_ours_amid_a_step_cuts_nothing_off(made):
    X, make, _ = made
    master, hub = make()
    hub.spoils = lambda job, values: values * np.nan
    with pytest.raises(MachineError, match="both are wrong"):
        check(X, master)
    hub.spoils = lambda job, values: values
    check(X, master)
    assert not hub.is_poisoned
