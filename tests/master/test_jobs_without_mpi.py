"""Steps by jobs on a wire without MPI: machines that are late, lost, wrong, or come later."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

import numpy as np
import pytest

import cec_mpi
from cec_mpi.availability.models import Listed
from cec_mpi.core.speeds.given import GivenSpeeds
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.master.master import OpenStore
from cec_mpi.master.planning import StepPlanner
from cec_mpi.master.resilient import ResilientMaster
from cec_mpi.master.schedule import Schedule
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.recorder import Recorder
from cec_mpi.roster.changes import Excluded
from cec_mpi.roster.roster import Roster, State
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.reader import open_store
from cec_mpi.wire.jobs import Answered, Job
from cec_mpi.wire.orders import Report, reported
from helpers.interrupts import interrupted

MACHINES, RECOVERY, ROWS, COLUMNS = 5, 3, 60, 7


class Hub:
    """Machines that compute when they are looked at, and spares that join at once.

    Attributes
    ----------
    silent, broken, dying : set of int
        Machines that do not answer, raise, or are lost when they are asked.
    kills, spoils : callable
        Whether a machine is lost by a job; the answer that it gives instead of the right one.
    """

    continues = True
    is_cut_off = False

    def __init__(self, shards, spares=0):
        self._events = deque()
        self._shards = shards
        self._given = {}
        self.silent, self.broken, self.dying = set(), set(), set()
        self.kills = lambda job: False
        self.spoils = lambda job, values: values
        self.roster = Roster(len(shards) + spares, time.monotonic, self._events.append)
        for n in range(1, len(shards) + 1):
            self.roster.serve(n, n)

    def ask(self, job, content):
        rank = self.roster.serving_as(job.machine).rank
        self.roster.ask(rank)
        self._given[rank] = job, content

    def busy(self):
        states = State.COMPUTING, State.LATE
        return {j.machine: j for r, (j, _) in self._given.items() if self.roster[r].state in states}

    def joining(self):
        return self.roster.machines(State.JOINING)

    def hear(self):
        pass

    def events(self):
        for process in self.roster.living():
            if process.state is State.JOINING:
                self.roster.joined(process.rank)
        for rank, (job, content) in list(self._given.items()):
            if self.kills(job):
                self.dying.add(job.machine)
            if job.machine in self.dying and self.roster[rank].machine == job.machine:
                self.dying.discard(job.machine)
                del self._given[rank]
                self.roster.lose(rank, "it died")
                self._fill()
            elif job.machine not in self.silent:
                del self._given[rank]
                report = Report(1e-3, failed=job.machine in self.broken)
                job.report[:] = reported(report, job.shard)
                job.values[:] = self.spoils(job, self._product(job, content).ravel())
                self.roster.answer(rank)
                self._events.append(Answered(job))
            while self._events:
                yield self._events.popleft()

    def late(self, machine):
        self.roster.late(self.roster.serving_as(machine).rank)

    def give_up(self, machine, reason):
        self.roster.give_up(self.roster.serving_as(machine).rank, reason)

    def exclude(self, machine, reason, change):
        self.roster.exclude(self.roster.serving_as(machine).rank, reason, change)
        self._fill()

    def report(self, machine):
        return "it raised"

    def start_processes(self, soon=False):
        pass

    def close(self, store):
        pass

    def _fill(self):
        while self.roster.vacant and self.roster.spare() is not None:
            self.roster.join(self.roster.spare().rank, self.roster.vacant[0])

    def _product(self, job, content):
        shard = self._shards[job.shard - 1]
        rows = np.concatenate([shard[start:stop] for start, stop in job.intervals])
        if job.product.adjoint:
            return rows.T @ content.reshape(len(rows), -1)
        return rows @ content.T


class End:
    """The wire of one store."""

    def __init__(self, hub, path):
        self.hub, self.path = hub, path

    def ask(self, machine, step, product, intervals, content):
        rows = COLUMNS if product.adjoint else sum(stop - start for start, stop in intervals)
        values = np.empty(rows * product.columns)
        job = Job(machine, 0, step, machine, product, intervals, values)
        self.hub.ask(job, content)
        return job

    def gave(self, job):
        return True

    def release(self, jobs):
        pass

    def close(self):
        pass


class Kept(Recorder):
    def __init__(self):
        super().__init__()
        self.records = []

    def step(self, record):
        self.records.append(record)
        super().step(record)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("jobs")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    np.save(path / "X.npy", X)
    cec_mpi.encode(path / "X.npy", path / "store", MACHINES, RECOVERY)
    return X, path / "store"


@pytest.fixture
def made(store):
    """X, what makes a master, and what it recorded."""
    X, path = store
    recorder = Kept()
    manifest = open_store(path).manifest
    return X, partial(master_of, path, manifest, recorder), recorder


def master_of(path, manifest, recorder, spares=0, **options):
    shards = [np.load(path / shard.file) for shard in manifest.shards]
    hub = Hub(shards, spares)
    options = SessionOptions(on_loss="continue", **options).checked(manifest)
    rows, everyone = manifest.rows_per_shard, tuple(range(1, MACHINES + 1))
    schedule = Schedule(Listed([everyone]), everyone)
    speeds = GivenSpeeds([1.0] * MACHINES, RECOVERY, rows)
    steps = StepPlanner(schedule, speeds, MACHINES, RECOVERY, rows)
    scaling, arithmetic = read_scaling(path, manifest), np.dtype(np.float64)
    store = OpenStore(path, manifest, scaling, steps, recorder, 0, arithmetic)
    return ResilientMaster(End(hub, path), options, store), hub


def check(X, master):
    w, v = np.arange(COLUMNS) - 2.0, np.arange(ROWS) / ROWS
    np.testing.assert_allclose(master.matvec(w), X @ w, atol=1e-9)
    np.testing.assert_allclose(master.rmatvec(v), X.T @ v, atol=1e-9)


def test_all_answer(made):
    X, make, recorder = made
    master, hub = make()
    check(X, master)
    assert [record.events for record in recorder.records] == [[], []]
    assert hub.roster.machines(State.IDLE) == {1, 2, 3, 4, 5}


def test_a_lost_machine_is_replaced_in_the_step_and_by_a_spare(made):
    X, make, recorder = made
    master, hub = make(spares=1)
    hub.dying = {2}
    check(X, master)
    first = recorder.records[0].events
    assert first[0] == {"lost": 2, "reason": "it died"}
    assert recorder.records[1].available == (1, 2, 3, 4, 5)
    assert hub.roster.serving_as(2).rank == 6


def test_a_late_machine_is_asked_again_when_it_has_answered(made):
    X, make, recorder = made
    master, hub = make(deadline=0.05)
    hub.silent = {4}
    check(X, master)
    assert recorder.records[0].events == [{"late": 4}]
    assert hub.roster.state_of(4) is State.LATE
    assert recorder.records[1].available == (1, 2, 3, 5)
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
    assert hub.roster[1].state is State.EXCLUDED
    assert hub.roster.vacant == [1]


def test_too_few_are_left(made):
    _, make, _ = made
    master, hub = make()
    hub.dying = {1, 2, 3}
    with pytest.raises(InfeasibleError, match="2 of its machines are left"):
        master.matvec(np.ones(COLUMNS))
    assert sorted(hub.roster.vacant) == [1, 2, 3]


def test_a_loss_ends_a_session_that_does_not_go_on(made):
    _, make, _ = made
    master, hub = make()
    hub.continues, hub.dying = False, {3}
    with pytest.raises(MachineError, match="machine 3 was lost in step 0"):
        master.matvec(np.ones(COLUMNS))


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


@pytest.mark.parametrize("options", [{"check": "parity", "stragglers": 1}, {"check": "sample"}])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e100])
def test_a_wrong_term_of_an_adjoint_is_replaced_and_its_machine_named(made, options, columns, size):
    X, make, recorder = made
    master, hub = make(**options)
    V = np.random.default_rng(1).standard_normal((ROWS, columns))
    np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-12)
    hub.spoils = wrong_by(size, machine=2, where=columns * COLUMNS - 1)
    for _ in range(4):
        np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-12)
    events = [record.events for record in recorder.records]
    assert events[:3] == [[], [{"wrong": 2}], [{"wrong": 2}]]
    assert hub.roster[2].state is State.EXCLUDED
    assert recorder.records[-1].available == (1, 3, 4, 5)


def test_a_machine_that_is_wrong_in_a_row_of_all_its_products_is_named(made):
    """Its terms agree with its own answers to the probe, and these not with those of others."""
    X, make, recorder = made
    master, hub = make(check="parity", stragglers=1)
    hub._shards = [shard.copy() for shard in hub._shards]
    hub._shards[1][3:9] += 0.01
    for _ in range(2):
        v = np.random.default_rng(1).standard_normal(ROWS)
        np.testing.assert_allclose(master.rmatvec(v), X.T @ v, atol=1e-12)
    assert {"wrong": 2} in recorder.records[0].events


def test_nothing_is_asked_twice_for_a_check(made):
    _, make, recorder = made
    master, hub = make(check="parity", stragglers=1)
    asked, ask = [], hub.ask
    hub.ask = lambda job, content: (asked.append(job.product.adjoint), ask(job, content))
    for _ in range(3):
        master.rmatvec(np.ones(ROWS))
    first = len(asked) - 10
    assert asked[-10:] == [True] * 10
    assert asked[:5] == [True] * 5
    assert set(asked[5:first]) == {False}
    assert [record.events for record in recorder.records] == [[]] * 3


def test_with_l_machines_a_wrong_term_is_refused(made):
    X, make, _ = made
    master, hub = make(check="sample")
    for n in (4, 5):
        hub.exclude(n, "gone", Excluded)
    np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    hub.spoils = wrong_by(1e-6, machine=2)
    with pytest.raises(MachineError, match=r"step 1 is refused: machine 2 answered wrong numbers"):
        master.rmatvec(np.ones(ROWS))


def test_a_wrong_answer_to_the_probe_is_not_taken_for_a_wrong_term(made):
    X, make, recorder = made
    master, hub = make(check="parity", stragglers=1)
    hub.spoils = wrong_by(1e-3, machine=2, adjoint=False, once=True)
    for _ in range(3):
        np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
    assert [record.events for record in recorder.records] == [[{"wrong": 2}], [], []]


@pytest.mark.parametrize("dying", [(2,), (1, 2)])
def test_machines_that_die_while_they_are_checked_are_done_without(made, dying):
    X, make, recorder = made
    master, hub = make(check="parity", stragglers=1)
    hub.kills = lambda job: job.machine in dying and not job.product.adjoint
    for _ in range(2):
        np.testing.assert_allclose(master.rmatvec(np.ones(ROWS)), X.sum(axis=0), atol=1e-12)
        hub.kills = lambda job: False
    lost = [event["lost"] for event in recorder.records[0].events]
    assert sorted(lost) == list(dying)
    assert not any("wrong" in event for record in recorder.records for event in record.events)


def test_too_few_are_left_while_terms_are_checked(made):
    _, make, _ = made
    master, hub = make(check="parity", stragglers=1)
    hub.kills = lambda job: job.machine in (1, 2, 3) and not job.product.adjoint
    with pytest.raises(InfeasibleError, match="2 of its machines are left"):
        master.rmatvec(np.ones(ROWS))


def test_a_machine_that_dies_instead_of_standing_in_is_done_without(made):
    X, make, recorder = made
    master, hub = make(check="parity", stragglers=1)
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
    master, hub = make(check="parity", stragglers=1, deadline=0.05)
    answer, held = hub.events, set()

    def events():
        hub.silent = {j.machine for j, _ in hub._given.values() if not j.product.adjoint} & {3}
        held.update(hub.silent)
        return answer()

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
    for options in ({"check": "parity", "stragglers": 1}, {"check": "sample"}):
        recorder = Kept()
        master, _ = master_of(tmp_path / "store", manifest, recorder, **options)
        assert np.abs(master.matvec(w) - X @ w).max() < 1e-12
        assert np.abs(master.rmatvec(v) - X.T @ v).max() < 1e-12
        assert [record.events for record in recorder.records] == [[], []]


@pytest.mark.parametrize("adjoint", [False, True])
def test_after_an_interrupt_steps_are_right_or_refused(made, adjoint):
    X, make, _ = made
    refused = whole = 0
    for place in range(0, 20_000, 97):
        master, hub = make(check="parity", stragglers=1)
        check(X, master)
        product, size = (master.rmatvec, ROWS) if adjoint else (master.matvec, COLUMNS)
        step = partial(product, np.ones(size))
        if not interrupted(place, "cec_mpi", step):
            break
        if hub.is_cut_off:
            refused += 1
            for again in (master.matvec, master.rmatvec):
                with pytest.raises(MachineError, match="cut off half-way: the job has to end"):
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
    assert not hub.is_cut_off
