"""X' V of an elastic step whose terms are checked: see `core.checks.terms`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cec_mpi.core.checks.terms import TermChecks
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.core.step.product import Product
from cec_mpi.master.adjoint import AdjointStep
from cec_mpi.master.forward import ForwardStep
from cec_mpi.master.step import Step
from cec_mpi.roster import State
from cec_mpi.wire.jobs import Intervals, Job

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne

log = logging.getLogger(__name__)


class CheckedAdjoint:
    """X' V of an elastic step, whose terms are checked before they count.

    Parameters
    ----------
    master : MadeOneByOne
    checks : TermChecks
    answers : callable
        Makes the `RowAnswers` that take the answers to the probe in a step.
    """

    def __init__(
        self, master: MadeOneByOne, checks: TermChecks, answers: Callable[[Step], RowAnswers]
    ) -> None:
        self._master = master
        self._checks = checks
        self._answers = answers

    def to_its_end(self, on_its_way: AdjointStep) -> None:
        """Make a step, until all terms that are added up have passed.

        Parameters
        ----------
        on_its_way : AdjointStep
            Machines that were wrong are then in its `wrong`.
        """
        step, checks = on_its_way.step, self._checks
        while True:
            on_its_way.to_its_end()
            rows: dict[int, Intervals] = {}
            for term in on_its_way.used():
                rows[term.machine] = rows.get(term.machine, ()) + term.intervals
            wanted = {n: tuple(checks.unknown(n, intervals)) for n, intervals in rows.items()}
            wrong = self._probe(wanted, on_its_way) if any(wanted.values()) else set()
            unknown = set()  # of machines that were lost, or too late
            with step.timed("code"):
                for term in on_its_way.used():
                    machine, value = term.machine, term.value
                    if checks.unknown(machine, term.intervals):
                        unknown.add(machine)
                    elif (
                        machine not in wrong
                        and value is not None
                        and checks.fails(machine, term.intervals, term.coefficients, value)
                    ):
                        wrong.add(machine)
                        log.error("machine %d answered wrong numbers in %d", machine, step.number)
                        step.note_wrong(machine)
                        checks.forget(machine)  # it may have been the answer to the probe
            if not wrong and not unknown:
                return
            on_its_way.wrong |= wrong
            for machine in wrong | unknown:
                on_its_way.reject(machine)

    def _probe(self, wanted: dict[int, Intervals], on_its_way: AdjointStep) -> set[int]:
        """Get answers to the probe; returns the machines that were wrong."""
        answers = self._answers(on_its_way.step)
        beside = on_its_way.step.beside(Product(False, 1))
        probing = ProbeStep(self._master, beside, self._checks, answers, wanted)
        probing.machines = on_its_way.machines - set(on_its_way.outstanding)
        probing.wrong = set(on_its_way.wrong)
        probing.to_its_end()
        self._master.end.release(probing.answered)
        on_its_way.leave_answered()
        for machine in answers.accused:
            self._checks.forget(machine)
        return probing.blamed


class ProbeStep(ForwardStep):
    """Rows of shards times the probe, compared with the answers of one more machine.

    Parameters
    ----------
    master : MadeOneByOne
    step : Step
    checks : TermChecks
        Receives the answers.
    answers : RowAnswers
        Compares them, with those that are known.
    wanted : dict of int to Intervals
        Rows by machine.
    """

    def __init__(
        self,
        master: MadeOneByOne,
        step: Step,
        checks: TermChecks,
        answers: RowAnswers,
        wanted: dict[int, Intervals],
    ) -> None:
        super().__init__(master, step, checks.probe, answers)
        self._checks = checks
        self._wanted = wanted
        self._compares = True

    def first_jobs(self) -> None:
        """Send jobs for the rows that are wanted, and for the answers to compare with them."""
        recovery, rows = self.master.manifest.code.recovery, self.master.manifest.rows_per_shard
        idle = self.roster.machines(State.IDLE)
        needed = np.full(rows, recovery + 1)
        for n, intervals in self._wanted.items():
            for start, stop in intervals:
                self._set_aside(n, start, stop)
                self._answers.want(n, start, stop)
                needed[start:stop] -= 1
        for n in sorted(self.machines - self.wrong):
            unknown = self._checks.unknown(n, [(0, rows)])
            known = np.ones(rows, dtype=bool)
            for start, stop in unknown:
                known[start:stop] = False
            known &= needed > 0
            needed -= known
            for start, stop in _runs(known):
                self._answers.give(n, start, stop, self._checks.products(n, start, stop))
        for machine in list(self._aside):
            if machine not in idle:
                self.drop(machine)
            else:
                self.next_job(machine)
        if self._answers.missing(()):
            self._hand_on()

    def take(self, job: Job) -> None:
        """Keep an answer, and compare it."""
        place = 0
        for start, stop in job.intervals:
            values = job.values[place : place + stop - start]
            self._checks.take(job.machine, [(start, stop)], values)
            place += stop - start
        super().take(job)


def _runs(places: np.ndarray) -> list[tuple[int, int]]:
    """Return the intervals in which an array is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], places.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
