"""An elastic master with machines in this process, which are late, wrong or lost on demand."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np

from cec_mpi.linear_operator.coded_operator import CodedOperator
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.local import LocalHub
from cec_mpi.runtime.session.session import ExecutionMode, Session
from cec_mpi.runtime.wire.orders import ReportFields


class Clock:
    """A clock whose sleeps take no time."""

    def __init__(self):
        self._slept = 0.0

    def monotonic(self):
        return time.monotonic() + self._slept

    def sleep(self, seconds):
        self._slept += seconds


class FaultyHub(LocalHub):
    """A hub whose machines have faults.

    Attributes
    ----------
    silent, broken, dying : set of int
        Machines that do not answer, raise an exception, or die when they receive a job.
    errors : dict of int to ndarray
        Errors in the shards of machines.
    should_die : callable
        Returns whether the machine of a job dies when it receives the job.
    corrupt : callable
        Returns a wrong answer to a job in place of the right one.
    """

    def __init__(self, spares):
        super().__init__(elastic=True, spares=spares, clock=Clock())
        self.silent, self.broken, self.dying = set(), set(), set()
        self.errors = {}
        self.should_die = lambda job: False
        self.corrupt = lambda job, values: values

    def compute(self, rank, job):
        machine = job.machine
        if self.should_die(job):
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
        job.pieces = [self.corrupt(job, job.pieces[0])]
        return True

    def last_error(self, machine):
        return "it raised"

    def _error(self, job):
        rows = np.concatenate([self.errors[job.machine][a:b] for a, b in job.intervals])
        if job.product.adjoint:
            return rows.T @ job.operand.reshape(len(rows), -1)
        return rows @ job.operand.T


def _make_session(hub):
    return Session(hub, [detect_process()], ExitStack(), mode=ExecutionMode.ELASTIC)


def open_master(path, manifest, recorder, spares=0, **options):
    """Open a store; return its master and its hub."""
    hub = FaultyHub(spares)
    options = {"speeds": (1.0,) * manifest.code.machines, **options}
    return _make_session(hub).open(path, SessionOptions(elastic=True, **options), recorder), hub


@contextmanager
def open_in_process(path, *, recorder=None, **options):
    """Open an operator as `cec_mpi.open_operator` does with ``local=N``."""
    session = _make_session(FaultyHub(0))
    master = session.open(path, SessionOptions(elastic=True, **options), recorder or Recorder())
    lifetime = Lifetime(lambda: nullcontext(session), lambda _: master)
    yield CodedOperator(lifetime, master.manifest, path)
