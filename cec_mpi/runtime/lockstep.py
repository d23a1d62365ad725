"""The master of the default exchange: each step waits for all of its machines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import MachineError
from cec_mpi.runtime.buffers import Buffers
from cec_mpi.runtime.exchange import Answers, MasterEnd
from cec_mpi.runtime.master import Master, Multiplied
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.runtime.step import Step

__all__ = ["LockstepMaster"]


class LockstepMaster(Master):
    """A `Master` on an end with the three verbs of a step.

    Parameters
    ----------
    end : MasterEnd
        The wire.
    options : SessionOptions
    *given
        As for `Master`.
    """

    def __init__(self, end: MasterEnd, options: SessionOptions, *given: Any) -> None:
        super().__init__(end.close, *given)
        self._end = end
        self._rows: list[int] = []

    def _multiply(self, step: Step, buffers: Buffers, scale: float) -> Multiplied:
        answers = self._exchange(step, buffers.shared, buffers)
        with step.timed("code"):
            buffers.codec.decode(answers.values, buffers.parts)
        return Multiplied(answers, buffers.codec.condition, buffers.codec.gain, self._rows)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> Multiplied:
        answers = self._exchange(step, buffers.coded, buffers)
        return Multiplied(answers, buffers.codec.condition, buffers.codec.gain, self._rows)

    def _exchange(self, step: Step, values: NDArray[Any], buffers: Buffers) -> Answers:
        """Announce, share and collect; the codec is prepared while the machines compute."""
        with step.timed("announce"):
            step.bytes["announce"] = self._end.announce(
                step.number, step.product, step.plan.assignment
            )
        if step.plan is not self._plan:
            self._rows = step.plan.assignment.counts(self.manifest.code.machines).tolist()
        self.begun(step)
        with step.timed("share"):
            step.bytes["share"] = self._end.share(values)
        with step.timed("collect"):
            try:
                buffers.prepare(step.plan)
            finally:
                answers = self._end.collect()
        step.bytes["collect"] = answers.values.nbytes
        self._check(step, answers, buffers)
        for machine in answers.leaving:
            if self._schedule.leave(machine):
                step.events.append({"leaving": machine})
        return answers

    def _check(self, step: Step, answers: Answers, buffers: Buffers) -> None:
        if answers.failed:
            reports = self._end.reports()
            told = [f"machine {n}: {reports.get(n, 'no report')}" for n in answers.failed]
            raise MachineError(f"step {step.number} failed on {'; '.join(told)}")
        values = answers.values
        if step.product.adjoint:
            if not np.isfinite(values).all():
                raise MachineError(
                    f"the machines' answers to step {step.number} are not finite: X' v is too "
                    f"large for {self._dtype}, or an answer was short"
                )
        elif not np.isfinite(values, out=buffers.good).all():
            position = int(np.flatnonzero(~buffers.good)[0])
            ends = np.cumsum(self._rows) * step.product.columns
            machine = int(np.searchsorted(ends, position, side="right")) + 1
            raise MachineError(
                f"machine {machine} answered {values[position]} in step {step.number}: "
                f"X w is too large for {self._dtype}, or the answer was short"
            )
