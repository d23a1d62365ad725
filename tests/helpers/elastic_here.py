"""An elastic master with all machines in this process, which can be late, wrong or die on order."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np

from cec_mpi.linear_operator.coded_operator import CodedOperator
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.local import LocalHub
from cec_mpi.runtime.session.session import ExecutionMode, Session
from cec_mpi.runtime.wire.orders import ReportFields


class Clock:
    """Sleeps take no time, and count."""

    def __init__(self):
        self._slept = 0.0

    def monotonic(self):
        return time.monotonic() + self._slept

    def sleep(self, seconds):
        self._slept += seconds


class Hub(LocalHub):
    """Machines with faults.

    Attributes
    ----------
    silent, broken, dying : set of int
        Machines that do not answer, raise, or die when they are asked.
    errors : dict of int to ndarray
        What is added to a machine's shard.
    kills, spoils : callable
        Whether a machine dies by a job; the answer that it gives instead of the right one.
    """

    def __init__(self, spares):
        super().__init__(elastic=True, spares=spares, clock=Clock())
        self.silent, self.broken, self.dying = set(), set(), set()
        self.errors = {}
        self.kills = lambda job: False
        self.spoils = lambda job, values: values

    def compute(self, rank, job):
        machine = job.machine
        if self.kills(job):
            self.dying.add(machine)
        if machine in self.dying and machine in self.roster[rank].machines:
            self.dying.discard(machine)
            self.lose(machine, "it died")
            return False
        if machine in self.silent:
            return False
        super().compute(rank, job)
        if machine in self.broken:
            job.report_fields = ReportFields(*[np.nan] * ReportFields.size())
        elif machine in self.errors:
            job.pieces[0] += self._error(job).ravel()
        job.pieces = [self.spoils(job, job.pieces[0])]
        return True

    def last_error(self, machine):
        return "it raised"

    def _error(self, job):
        rows = np.concatenate([self.errors[job.machine][a:b] for a, b in job.intervals])
        if job.product.adjoint:
            return rows.T @ job.operand.reshape(len(rows), -1)
        return rows @ job.operand.T


def _session(hub):
    return Session(hub, [detect_place()], ExitStack(), mode=ExecutionMode.ELASTIC)


def master_of(path, manifest, recorder, spares=0, **options):
    """The master of a store, and its hub."""
    hub = Hub(spares)
    options = {"speeds": (1.0,) * manifest.code.machines, **options}
    return _session(hub).open(path, SessionOptions(elastic=True, **options), recorder), hub


@contextmanager
def opened_here(path, *, recorder=None, **options):
    """The operator of an elastic session, as `cec_mpi.open_operator` opens it with ``local=N``."""
    session = _session(Hub(0))
    master = session.open(path, SessionOptions(elastic=True, **options), recorder or Recorder())
    lifetime = Lifetime(lambda: nullcontext(session), lambda _: master)
    yield CodedOperator(lifetime, master.manifest, path)
