"""Steps that all machines execute collectively, in lockstep or in this process."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from cec_mpi.core.checks.finite import NonfiniteChecker, is_finite
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
    """Executes steps in four phases: announce, share, collect and decode.

    Parameters
    ----------
    endpoint : LockstepEndpoint
    planner : StepPlanner
    recorder : Recorder
        Records the events of machines.
    """

    def __init__(
        self, endpoint: LockstepEndpoint, planner: StepPlanner, recorder: Recorder
    ) -> None:
        self._endpoint, self._planner, self._recorder = endpoint, planner, recorder

    def next_step(self, adjoint: bool) -> Step:
        """Return the next step, planned for all available machines."""
        return self._planner.plan(self._planner.next_step())

    def multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        """Announce, share, collect and decode; prepare decoding while the machines compute.

        Raises
        ------
        DamagedStoreError
            The shard of a machine is damaged.
        MachineError
            A machine failed.
        """
        endpoint, now = self._endpoint, step.clock.monotonic
        plan, adjoint = step.plan, step.product.adjoint
        operand = buffers.coefficients if adjoint else buffers.vectors
        announce_begin = now()
        announce_bytes = endpoint.announce(step.number, step.product, plan.assignment, operand)
        self._planner.begin(step)
        share_begin = now()
        share_bytes = endpoint.share(operand)
        collect_begin = now()
        try:
            buffers.prepare(plan)
        finally:
            answers = endpoint.collect()
        collect_end = now()
        seconds = step.seconds
        seconds["announce"], seconds["share"] = (
            share_begin - announce_begin,
            collect_begin - share_begin,
        )
        seconds["collect"] = collect_end - collect_begin
        collect_bytes = answers.values.nbytes
        step.payload_bytes = {
            "announce": announce_bytes,
            "share": share_bytes,
            "collect": collect_bytes,
        }
        for event in endpoint.hub.events():
            if not isinstance(event, JobsAnswered):
                step.events.append(event)
                self._recorder.add_event(event)
        step.delays = _delay_of_last(answers)
        if answers.failed:
            raise self._failure_error(step, answers)
        if not adjoint:
            decode_begin = now()
            buffers.codec.decode(answers.values, buffers.parts)
            seconds["decode"] += now() - decode_begin
        return ProductResult(answers, buffers.codec.condition, self._planner.count_rows(plan))

    def check_finite(self, step: Step, result: ProductResult) -> None:
        """Raise `MachineError` if an answer, or the sum of the answers to X' V, is not finite."""
        answers = result.answers
        if is_finite(answers.values):
            return
        if step.product.adjoint:
            raise self._nonfinite_sum_error(step, answers)
        raise self._nonfinite_error(step, answers.values, result.rows)

    def _failure_error(self, step: Step, answers: Answers) -> CecError:
        """Return the error for machines that failed."""
        errors = self._endpoint.last_errors()
        failures = [f"machine {n}: {errors.get(n, 'no report')}" for n in answers.failed]
        text = f"step {step.number} failed on {'; '.join(failures)}"
        if answers.damaged:
            return DamagedStoreError(f"{text}; {ELASTIC_CONTINUES}")
        return MachineError(text)

    def _nonfinite_error(self, step: Step, values: NDArray[Any], rows: list[int]) -> MachineError:
        """Return the error for answers to X W that are not finite."""
        columns = step.product.columns
        checker, begin, nonfinite_answers = NonfiniteChecker(columns), 0, []
        for machine in step.available:
            end = begin + rows[machine - 1] * columns
            intervals = step.plan.assignment.intervals(machine)
            nonfinite = checker.check(machine, intervals, values[begin:end])
            if nonfinite is not None and nonfinite.coincident_answer is not None:
                return step.conflict_error(nonfinite)
            nonfinite_answers += [nonfinite] if nonfinite is not None else []
            begin = end
        return step.no_replacement_error(nonfinite_answers[0], _NO_REPLACEMENT)

    @staticmethod
    def _nonfinite_sum_error(step: Step, answers: Answers) -> MachineError:
        """Return the error that names the machines whose parts of X' V are not finite."""
        if len(answers.not_finite) == 1:
            machine = answers.not_finite[0]
            return MachineError(
                f"the answer of machine {machine} to step {step.number} is not finite, "
                f"and {_NO_REPLACEMENT}"
            )
        if not answers.not_finite:
            return MachineError(f"the sum of the answers to step {step.number} is not finite")
        machines = ", ".join(map(str, answers.not_finite))
        return MachineError(
            f"the answers of machines {machines} to step {step.number} are not finite"
        )


def _delay_of_last(answers: Answers) -> dict[int, float]:
    """Return the machine that finished last, and how many seconds after the one before it."""
    finish_times = (answers.load_seconds + answers.seconds).tolist()
    *_, second_last, last = sorted([0.0, *finish_times])
    return {finish_times.index(last) + 1: last - second_last} if last > second_last else {}
