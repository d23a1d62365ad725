"""Machines that compute in this process when they are looked at: a wire of jobs without MPI."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from cec_mpi.availability.models import Listed
from cec_mpi.core.step.product import Product
from cec_mpi.master.master import OpenStore
from cec_mpi.master.planning import StepPlanner
from cec_mpi.master.resilient import ResilientMaster
from cec_mpi.master.schedule import Schedule
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.recorder import Recorder
from cec_mpi.roster.roster import Roster, State
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.shard import Loaded
from cec_mpi.wire.jobs import Answered, Job
from cec_mpi.wire.orders import Report, reported


class Hub:
    """Machines that compute when they are looked at, and spares that join at once.

    Attributes
    ----------
    silent, broken, dying : set of int
        Machines that do not answer, raise, or are lost when they are asked.
    unseen : callable
        Whether a machine does not see a shard that it is to take over.
    kills, spoils : callable
        Whether a machine is lost by a job; the answer that it gives instead of the right one.
    """

    is_cut_off = False

    def __init__(self, shards, placement, spares=0):
        self._events = deque()
        self._shards, self._placement = shards, placement
        self._adopted = {}  # by rank: a process has what it has taken over
        self.unseen = lambda machine, shard: False
        self._given = {}
        self.silent, self.broken, self.dying = set(), set(), set()
        self.kills = lambda job: False
        self.spoils = lambda job, values: values
        self.roster = Roster(time.monotonic, self._events.append)
        self.roster.expect(machines := range(1, placement.machines + 1))
        for n in machines:
            self.roster.join(self.roster.come().rank, n)
            self.roster.joined(n, quietly=True)
        for _ in range(spares):
            self.roster.come()

    def ask(self, job, content):
        rank = self.roster.serving_as(job.machine).rank
        self.roster.ask(rank)
        self._given[rank] = job, content

    def busy(self):
        states = State.COMPUTING, State.LATE
        return {j.machine: j for r, (j, _) in self._given.items() if self.roster[r].state in states}

    def awaited(self):
        return self.roster.machines(State.JOINING)

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
                failed = job.machine in self.broken
                if job.adopted is not None:
                    failed = failed or self.unseen(job.machine, job.adopted[-1])
                    loaded = Loaded(1e-3, self._shards[0].nbytes)
                    job.report[:] = reported(Report(0.0, loaded, failed=failed), job.shard)
                    if not failed:
                        self._adopted[rank] = job.adopted
                else:
                    job.report[:] = reported(Report(1e-3, failed=failed), job.shard)
                    answer = self._product(job, content, self._adopted.get(rank, ()))
                    job.values[:] = self.spoils(job, answer.ravel())
                self.roster.answer(rank)
                self._events.append(Answered(job))
            while self._events:
                yield self._events.popleft()

    def late(self, machine):
        self.roster.late(self.roster.serving_as(machine).rank)

    def give_up(self, machine, reason):
        self.roster.give_up(self.roster.serving_as(machine).rank, reason)

    def exclude(self, machine, reason, change):
        rank = self.roster.serving_as(machine).rank
        self._given.pop(rank, None)
        self.roster.exclude(rank, reason, change)
        self._fill()

    def report(self, machine):
        return "it raised"

    def close(self, store):
        pass

    def _fill(self):
        while self.roster.vacant and self.roster.spares():
            self.roster.join(self.roster.spares()[0].rank, self.roster.vacant[0])

    def _product(self, job, content, adopted):
        mine = [*self._placement.of(job.shard), *adopted]
        shard = np.vstack([self._shards[n - 1] for n in mine])
        rows = np.concatenate([shard[start:stop] for start, stop in job.intervals])
        if job.product.adjoint:
            return rows.T @ content.reshape(len(rows), -1)
        return rows @ content.T


class End:
    """The wire of one store."""

    def __init__(self, hub, path, columns):
        self.hub, self.path, self._columns = hub, path, columns

    def ask(self, machine, step, product, intervals, content):
        rows = self._columns if product.adjoint else sum(stop - start for start, stop in intervals)
        values = np.empty(rows * product.columns)
        job = Job(machine, 0, step, machine, product, intervals, values)
        self.hub.ask(job, content)
        return job

    def adopt(self, machine, step, shards, allowance):
        job = Job(machine, 0, step, machine, Product(), (), np.empty(0))
        job.adopted, job.allowance = tuple(shards), allowance
        self.hub.ask(job, None)
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

    @property
    def happened(self):
        return [event for record in self.records for event in record.events]

    def step(self, record):
        self.records.append(record)
        super().step(record)


def master_of(path, manifest, recorder, spares=0, rates=None, **options):
    shards = [np.load(path / shard.file) for shard in manifest.shards]
    options = SessionOptions(elastic=True, **options).checked(manifest)
    placement, everyone = options.placement, options.machines
    hub = Hub(shards, placement, spares)
    listed = Listed([everyone]) if options.availability is None else options.availability
    schedule = Schedule(listed, everyone, wait=options.wait)
    speeds = rates or [1.0] * placement.machines
    steps = StepPlanner.of(manifest, schedule, speeds, "heterogeneous", placement)
    scaling, arithmetic = read_scaling(path, manifest), np.dtype(np.float64)
    store = OpenStore(path, manifest, scaling, steps, recorder, 0, arithmetic)
    return ResilientMaster(End(hub, path, manifest.columns), options, store), hub
