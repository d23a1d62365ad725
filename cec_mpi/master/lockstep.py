"""The master of the default exchange: each step waits for all of its machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.finite import NotFinite
from cec_mpi.core.plan.planner import Plan
from cec_mpi.errors import MachineError
from cec_mpi.master.master import Found, Master, OpenStore
from cec_mpi.master.numbers.buffers import Buffers
from cec_mpi.master.step import Multiplied, Step
from cec_mpi.options.session import SessionOptions
from cec_mpi.roster.changes import WARNED, Left
from cec_mpi.wire.answers import Answers
from cec_mpi.wire.protocol import Lockstep

_WITHOUT_OTHERS = "no other machine can replace it in lockstep; use --elastic"


class LockstepMaster(Master):
    """A `Master` on an end with the three verbs of a step.

    Parameters
    ----------
    end : Lockstep
        The wire.
    options : SessionOptions
    store : OpenStore
    """

    def __init__(self, end: Lockstep, options: SessionOptions, store: OpenStore) -> None:
        super().__init__(end.close, store)
        self._end = end
        self._counted: tuple[Plan | None, list[int]] = None, []  # rows of each machine

    def _multiply(
        self, step: Step, buffers: Buffers, meanwhile: Callable[[], Found]
    ) -> tuple[Multiplied, Found]:
        answers, found = self._exchange(step, buffers.shared, buffers, meanwhile)
        with step.timed("code"):
            buffers.codec.decode(answers.values, buffers.parts)
        return self._done(step, answers, buffers), found

    def _multiply_transposed(
        self, step: Step, buffers: Buffers, meanwhile: Callable[[], Found]
    ) -> tuple[Multiplied, Found]:
        answers, found = self._exchange(step, buffers.coded, buffers, meanwhile)
        return self._done(step, answers, buffers), found

    def _done(self, step: Step, answers: Answers, buffers: Buffers) -> Multiplied:
        amplification = self.bounds.of_plan(step.plan)
        return Multiplied(answers, buffers.codec.condition, amplification, self._rows_of(step))

    def _rows_of(self, step: Step) -> list[int]:
        """Rows of each machine; they are counted where the plan is another one."""
        counted, rows = self._counted
        if counted is not step.plan:
            rows = step.plan.counts(self.steps.placement.machines).tolist()
            self._counted = step.plan, rows
        return rows

    def _exchange(
        self,
        step: Step,
        values: NDArray[Any],
        buffers: Buffers,
        meanwhile: Callable[[], Found],
    ) -> tuple[Answers, Found]:
        """Announce, share and collect; what can be done while the machines compute is done then."""
        with step.timed("announce"):
            step.bytes["announce"] = self._end.announce(
                step.number, step.product, step.plan.assignment, values
            )
        self.steps.begun(step.planned)
        with step.timed("share"):
            step.bytes["share"] = self._end.share(values)
        with step.timed("collect"):
            try:
                buffers.prepare(step.plan)
                found = meanwhile()
            finally:
                answers = self._end.collect()
        step.bytes["collect"] = answers.values.nbytes
        self._check(step, answers, buffers)
        for machine in answers.leaving:
            left = Left(machine, WARNED)
            if self.steps.schedule.hear(left):
                step.events.append(left.record)
        return answers, found

    def _check(self, step: Step, answers: Answers, buffers: Buffers) -> None:
        if answers.failed:
            reports = self._end.reports()
            told = [f"machine {n}: {reports.get(n, 'no report')}" for n in answers.failed]
            raise MachineError(f"step {step.number} failed on {'; '.join(told)}")
        values = answers.values
        if step.product.adjoint:
            if not np.isfinite(values).all():
                raise self._not_finite_sum(step, answers)
        elif not np.isfinite(values, out=buffers.good).all():
            raise self._not_finite(step, values)

    def _not_finite(self, step: Step, values: NDArray[Any]) -> MachineError:
        """Whose error it is that answers to X W are not finite."""
        columns = step.product.columns
        answers, place, found = NotFinite(columns, rows=self.steps.rows_of_shards), 0, []
        rows = self._rows_of(step)
        for machine in step.moment.available:
            end = place + rows[machine - 1] * columns
            intervals = step.plan.intervals(machine)
            unusable = answers.take(machine, intervals, values[place:end])
            if unusable is not None and unusable.other is not None:
                return step.both_wrong(unusable)
            found += [unusable] if unusable is not None else []
            place = end
        return step.cannot_replace(found[0], _WITHOUT_OTHERS)

    def _not_finite_sum(self, step: Step, answers: Answers) -> MachineError:
        """Whose error it is that X' V is not finite."""
        if len(answers.not_finite) == 1:
            machine = answers.not_finite[0]
            return MachineError(
                f"machine {machine} answered numbers that are not finite in step {step.number}, "
                f"and {_WITHOUT_OTHERS}"
            )
        named = ", ".join(map(str, answers.not_finite))
        whose = f" of machines {named}" if named else ", added up,"
        return MachineError(f"the answers{whose} to step {step.number} are not finite")
