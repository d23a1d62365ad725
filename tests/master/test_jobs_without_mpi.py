"""Steps by jobs on a wire without MPI: machines that are late, lost, wrong, or come later."""

from __future__ import annotations

import time
from collections import deque

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
from cec_mpi.roster.roster import Roster, State
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.reader import open_store
from cec_mpi.wire.jobs import Answered, Job
from cec_mpi.wire.orders import Report, reported

MACHINES, RECOVERY, ROWS, COLUMNS = 5, 3, 60, 7


class Hub:
    """Machines that compute when they are looked at, and spares that join at once.

    Attributes
    ----------
    silent, broken, dying : set of int
        Machines that do not answer, raise, or are lost when they are asked.
    """

    continues = True

    def __init__(self, shards, spares=0):
        self._events = deque()
        self._shards = shards
        self._given = {}
        self.silent, self.broken, self.dying = set(), set(), set()
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
            if job.machine in self.dying and self.roster[rank].machine == job.machine:
                self.dying.discard(job.machine)
                del self._given[rank]
                self.roster.lose(rank, "it died")
                self._fill()
            elif job.machine not in self.silent:
                del self._given[rank]
                report = Report(1e-3, failed=job.machine in self.broken)
                job.report[:] = reported(report, job.shard)
                job.values[:] = self._product(job, content).ravel()
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
    manifest = open_store(path).manifest
    shards = [np.load(path / shard.file) for shard in manifest.shards]
    recorder = Kept()

    def make(spares=0, **options):
        hub = Hub(shards, spares)
        options = SessionOptions(on_loss="continue", **options).checked(manifest)
        rows, everyone = manifest.rows_per_shard, tuple(range(1, MACHINES + 1))
        schedule = Schedule(Listed([everyone]), everyone)
        speeds = GivenSpeeds([1.0] * MACHINES, RECOVERY, rows)
        steps = StepPlanner(schedule, speeds, MACHINES, RECOVERY, rows)
        scaling = read_scaling(path, manifest)
        store = OpenStore(path, manifest, scaling, steps, recorder, 0, np.dtype(np.float64))
        return ResilientMaster(End(hub, path), options, store), hub

    return X, make, recorder


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
