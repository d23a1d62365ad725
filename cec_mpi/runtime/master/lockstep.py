"""Steps that all machines make at the same time, in lockstep or in this process."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from cec_mpi.core.checks.finite import NonfiniteChecker, is_finite
from cec_mpi.core.plan.planner import Plan
from cec_mpi.errors import CecError, DamagedStoreError, MachineError
from cec_mpi.runtime.master.buffers import Buffers
from cec_mpi.runtime.master.planning import StepPlanner
from cec_mpi.runtime.master.step import ProductResult, Step
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.wire.answers import Answers
from cec_mpi.runtime.wire.jobs import JobsAnswered
from cec_mpi.runtime.wire.protocol import LockstepEndpoint

ELASTIC_CONTINUES = "a run with --elastic continues without machines whose shards are damaged"
_NO_REPLACEMENT = "no other machine can replace it in lockstep; use --elastic"


class LockstepExecutor:
    """Makes steps by the three operations of an endpoint.

    Parameters
    ----------
    endpoint : LockstepEndpoint
    steps : StepPlanner
    recorder : Recorder
        Takes what happens to machines.
    """

    def __init__(self, endpoint: LockstepEndpoint, steps: StepPlanner, recorder: Recorder) -> None:
        self._endpoint, self._steps, self._recorder = endpoint, steps, recorder
        self._counted: tuple[Plan | None, list[int]] = None, []  # rows of each machine

    def next(self, adjoint: bool) -> Step:
        """Return the next step, planned for all available machines."""
        return self._steps.plan(self._steps.next())

    def multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        """Announce, share and collect; rank 0 prepares decoding while the machines compute.

        Raises
        ------
        DamagedStoreError
            The shard of a machine is damaged.
        MachineError
            A machine failed.
        """
        endpoint, now = self._endpoint, step.clock.monotonic
        plan, adjoint = step.plan, step.product.adjoint
        values = buffers.coded if adjoint else buffers.shared
        begin = now()
        announce_bytes = endpoint.announce(step.number, step.product, plan.assignment, values)
        self._steps.begin(step)
        sharing = now()
        shared = endpoint.share(values)
        collecting = now()
        try:
            buffers.prepare(plan)
        finally:
            answers = endpoint.collect()
        collected = now()
        seconds = step.seconds
        seconds["announce"], seconds["share"] = sharing - begin, collecting - sharing
        seconds["collect"] = collected - collecting
        step.bytes = {"announce": announce_bytes, "share": shared, "collect": answers.values.nbytes}
        for event in endpoint.hub.events():
            if not isinstance(event, JobsAnswered):
                step.events.append(event)
                self._recorder.note(event)
        step.delays = _last_delay(answers)
        rows = self._rows_of(plan)
        if answers.failed:
            raise self._failure(step, answers)
        if not adjoint:
            begin = now()
            buffers.codec.decode(answers.values, buffers.parts)
            seconds["code"] += now() - begin
        return ProductResult(answers, buffers.codec.condition, rows)

    def _rows_of(self, plan: Plan) -> list[int]:
        """Return the rows of each machine; they are counted once for a plan."""
        counted, rows = self._counted
        if counted is not plan:
            rows = plan.assignment.counts(self._steps.placement.machines).tolist()
            self._counted = plan, rows
        return rows

    def check_finite(self, step: Step, done: ProductResult) -> None:
        """Raise `MachineError` if a product is not finite because answers are not.

        A number that is not finite makes what is decoded from it so.
        """
        answers = done.answers
        if is_finite(answers.values):
            return
        if step.product.adjoint:
            raise self._not_finite_sum(step, answers)
        raise self._not_finite(step, answers.values, done.rows)

    def _failure(self, step: Step, answers: Answers) -> CecError:
        """Return the error for machines that failed."""
        reports = self._endpoint.last_errors()
        failures = [f"machine {n}: {reports.get(n, 'no report')}" for n in answers.failed]
        text = f"step {step.number} failed on {'; '.join(failures)}"
        if answers.damaged:
            return DamagedStoreError(f"{text}; {ELASTIC_CONTINUES}")
        return MachineError(text)

    def _not_finite(self, step: Step, values: NDArray[Any], rows: list[int]) -> MachineError:
        """Return the error that names the machines whose answers to X W are not finite."""
        columns = step.product.columns
        answers, place, found = NonfiniteChecker(columns), 0, []
        for machine in step.available:
            end = place + rows[machine - 1] * columns
            intervals = step.plan.assignment.intervals(machine)
            unusable = answers.check(machine, intervals, values[place:end])
            if unusable is not None and unusable.coincident is not None:
                return step.conflict_error(unusable)
            found += [unusable] if unusable is not None else []
            place = end
        return step.no_replacement_error(found[0], _NO_REPLACEMENT)

    @staticmethod
    def _not_finite_sum(step: Step, answers: Answers) -> MachineError:
        """Return the error that names the machines whose parts of X' V are not finite."""
        if len(answers.not_finite) == 1:
            machine = answers.not_finite[0]
            return MachineError(
                f"machine {machine} answered numbers that are not finite in step {step.number}, "
                f"and {_NO_REPLACEMENT}"
            )
        if not answers.not_finite:
            return MachineError(f"the sum of the answers to step {step.number} is not finite")
        named = ", ".join(map(str, answers.not_finite))
        return MachineError(f"the answers of machines {named} to step {step.number} are not finite")


def _last_delay(answers: Answers) -> dict[int, float]:
    """Return the machine that finished last, and how long after all others."""
    done = (answers.load_seconds + answers.seconds).tolist()
    *_, before, seconds = sorted([0.0, *done])
    last = done.index(seconds) if seconds else 0
    seconds -= before
    return {last + 1: seconds} if seconds > 0 else {}
