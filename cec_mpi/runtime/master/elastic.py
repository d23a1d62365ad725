"""Elastic steps: each machine gets its own job, and a step ends without late and lost machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.finite import NonfiniteAnswer, is_finite
from cec_mpi.core.checks.parity import ParityChecker, answer_checker
from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.core.elastic.adjoint import ProbeLedger, TermLedger
from cec_mpi.core.elastic.events import (
    AvailabilityTick,
    Decode,
    Disagreement,
    FaultyIdentified,
    MachineLost,
    StartStep,
    StepFailed,
    WaitUntil,
)
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.step import ElasticStep, Ledger
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.step.answers import Decoders, RowAnswers
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.master.buffers import Buffers
from cec_mpi.runtime.master.driver import StepDriver, states_of
from cec_mpi.runtime.master.measurements import Measurements
from cec_mpi.runtime.master.planning import OpenStore
from cec_mpi.runtime.master.postponed import PostponedWarnings
from cec_mpi.runtime.master.products import (
    AdjointProducts,
    AnswerMemory,
    ForwardProducts,
    ProbeProducts,
    Products,
)
from cec_mpi.runtime.master.step import ProductResult, Step, StepInfeasibleError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.wire.jobs import JobsEnd
from cec_mpi.runtime.wire.orders import HUB_POISONED


class ElasticExecutor:
    """Makes steps that end without the answers of machines that are late or lost.

    Parameters
    ----------
    end : JobsEnd
    options : SessionOptions
        With S stragglers each row is computed by L + S machines, if as many are available.
    store : OpenStore
    warnings : PostponedWarnings
    """

    def __init__(
        self,
        end: JobsEnd,
        options: SessionOptions,
        store: OpenStore,
        warnings: PostponedWarnings,
    ) -> None:
        self._end, self._hub = end, end.hub
        self._manifest, self._steps = store.manifest, store.steps
        self._recorder, self._warnings = store.recorder, warnings
        self._spare = int(options.check)  # machines that a step must be able to miss
        # Machines that compute a row, beyond L.
        self._extra_machines = options.stragglers + self._spare
        self._steps.uses_all_answers = self._extra_machines < 1
        assert not isinstance(options.deadline, float | str)  # they are checked
        self._deadline = options.deadline
        self._adopt_after = float("inf") if options.adopt is None else options.adopt
        self._decoders = Decoders(self._manifest.code)
        self._checker: ParityChecker | None = None
        self._checks: TermChecker | None = None
        if options.check:
            self._largest = store.scaling.largest
            self._checker, self._checks = _make_checks(store, options.seed)
        self._has_warned = False  # of a store that is damaged
        self._memory = AnswerMemory()
        self._rows: list[int] = []  # that machines computed in the last step
        self._counted: tuple[Plan | None, NDArray[np.int64]] = None, np.zeros(0, np.int64)
        self._allowed: float | None = None  # seconds for an answer, in the last step
        # The state machine of the next step and its driver, until the step begins.
        self._planned_for: tuple[ElasticStep, StepDriver] | None = None

    def next(self, adjoint: bool) -> Step:
        """Return the next step, planned for the machines that can be asked.

        Raises
        ------
        InfeasibleError
            Too few machines are available, and none are awaited.
        MachineError
            A step was interrupted before.
        """
        if self._hub.is_poisoned:
            raise MachineError(HUB_POISONED)
        return self._steps.plan(self._wait(), 0 if adjoint else self._extra_machines)

    def multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        """Ask machines until the product is complete.

        Raises
        ------
        InfeasibleError, MachineError
            Too few machines are left, or their answers are wrong.
        """
        if step.product.adjoint:
            return self._multiply_transposed(step, buffers)
        return self._multiply(step, buffers)

    def check_finite(self, step: Step, done: ProductResult) -> None:
        """Raise `MachineError` if a sum is not finite; each answer has been checked."""
        if step.product.adjoint and not is_finite(done.answers.values):
            raise MachineError(f"the sum of the answers to step {step.number} is not finite")

    def _wait(self) -> Step:
        """Return the next step, when enough machines can be asked."""
        state, driver = self._planned_for = self._make_driver()
        clock, schedule = self._hub.clock, self._steps.schedule
        begin, has_waited, moment = clock.monotonic(), False, -math.inf
        while True:
            driver.poll_hub(moment)
            busy, error = self._hub.busy(), None
            can_adopt = state.can_adopt_machines and self._hub.roster.adoptable
            try:
                step = self._steps.next(
                    self._spare, bool(busy or self._hub.expected_machines() or can_adopt)
                )
            except InfeasibleError as found:
                error = found
            state.handle(AvailabilityTick(schedule.listed_last), clock.monotonic())
            outcome = driver.follow_instructions()
            if isinstance(outcome, StartStep):
                step.available, step.events = outcome.machines, driver.events
                if has_waited:
                    step.waited_seconds = clock.monotonic() - begin
                return step
            if not isinstance(outcome, WaitUntil):
                if error is not None:
                    raise error
                moment = -math.inf  # a machine was given up: the schedule raises the error
                continue
            schedule.check_cancelled()
            has_waited, moment = True, min(outcome.moment, schedule.next_change())

    def _multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        answers = RowAnswers(
            self._decoders,
            step.product.columns,
            buffers.parts,
            buffers.work,
            self._checker,
            None if self._checker is None else np.abs(buffers.shared) @ self._largest,
        )
        placement = self._steps.placement
        ledger = RowLedger(
            self._manifest.rows_per_shard,
            self._manifest.code.recovery,
            step.speeds,
            self._decoders,
            self._checker is not None,
            placement.holders_of,
            placement.cuts,
        )
        ledger.plan(step.plan.assignment.all_intervals())
        self._memory.clear()
        products = ForwardProducts(step.product, buffers.shared, answers, self._memory)
        measured = self._run(step, ledger, products, self._counts(step), refine=ledger.refine)
        return self._make_result(step, measured, np.empty(0), ledger.condition)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> ProductResult:
        able = None
        if self._checker is not None and self._checks is not None:
            self._probe(step, self._checker, self._checks)
            able = self._checks.products.keys()
        rows = step.plan.assignment.all_intervals()
        spans = self._steps.placement.spans_of_terms
        ledger = TermLedger(self._manifest.code.recovery, step.speeds, spans)
        ledger.plan(rows)
        generator = self._manifest.code.generator
        products = AdjointProducts(step.product, buffers.coded, rows, generator, self._checks)
        measured = self._run(step, ledger, products, self._counts(step), able)
        values = products.sum(
            ledger.answered_terms(), self._manifest.columns * step.product.columns
        )
        return self._make_result(step, measured, values, buffers.codec.condition)

    def _probe(self, step: Step, checker: ParityChecker, checks: TermChecker) -> None:
        """Compute the products of shards with the probe that are not known, and compare them."""
        placement, rows = self._steps.placement, self._manifest.rows_per_shard
        if checks.products.keys() >= set(step.available):
            return
        spans = list(placement.spans(((0, rows),)))
        counts = np.zeros(placement.machines, np.int64)
        for start, stop, holders in spans:
            for machine in set(holders).intersection(step.available):
                counts[machine - 1] += stop - start
        ledger = ProbeLedger(checker.recovery, spans, checks.products)
        products = ProbeProducts(checks, checker, rows)
        self._run(step, ledger, products, counts)
        products.keep(ledger.answered_by)

    def _run(
        self,
        step: Step,
        ledger: Ledger,
        products: Products,
        rows: NDArray[np.int64],
        able: Collection[int] | None = None,
        refine: Callable[[], Decode | None] = lambda: None,
    ) -> Measurements:
        """Make a step, or the probe before it.

        Parameters
        ----------
        step : Step
        ledger : Ledger
        products : Products
        rows : (N,) ndarray of int
            Rows that machines 1..N are to compute.
        able : collection of int, optional
            Machines that may be asked; by default all.
        refine : callable
            Returns rows that can be decoded again.
        """
        state, driver = self._planned_for or self._make_driver()
        self._planned_for = None
        steps, clock = self._steps, self._hub.clock
        predicted = steps.speeds.predict(products.product, step.plan.estimate_work(rows))
        listed = steps.schedule.listed(step).intersection(range(1, steps.placement.machines + 1))
        if able is not None:
            listed = listed.intersection(able)
        steps.begin(step)
        state.begin(ledger, listed, predicted, clock.monotonic())
        outcome = driver.run(step, products, steps, refine)
        self._allowed = state.time_limit
        if isinstance(outcome, StepFailed):
            raise self._error_of(step, outcome, not products.product.adjoint)
        return driver.measured

    def _counts(self, step: Step) -> NDArray[np.int64]:
        """Return the rows of the plan, by machine; the same array for the same plan."""
        if self._counted[0] is not step.plan:
            counts = step.plan.assignment.counts(self._steps.placement.machines)
            self._counted = step.plan, counts
        return self._counted[1]

    def _make_result(
        self, step: Step, measured: Measurements, values: NDArray[np.float64], condition: float
    ) -> ProductResult:
        """Return the result and what the machines did."""
        rows = measured.rows()
        if rows != self._rows:
            self._rows = rows  # the same list while they are the same
        return ProductResult(measured.answers(values), condition, self._rows)

    def _make_driver(self) -> tuple[ElasticStep, StepDriver]:
        """Return a new state machine with the states of all machines, and its driver."""
        placement, recovery = self._steps.placement, self._manifest.code.recovery
        busy = self._hub.busy()
        state = ElasticStep(
            states_of(self._hub.roster),
            {machine: job.sent_at for machine, job in busy.items()},
            partial(placement.count_missing, recovery + self._spare),
            self._deadline,
            self._allowed,
            not self._steps.schedule.waits,
            self._adopt_after,
        )
        return state, StepDriver(self._end, state, busy, self._recorder, self._note_damage)

    def _note_damage(self, machine: int) -> None:
        """Warn once that a machine leaves because its shard is damaged."""
        if not self._has_warned:
            self._has_warned = True
            self._warnings.add(f"machine {machine} leaves: {self._hub.last_error(machine)}")

    # Errors.

    def _error_of(
        self, step: Step, failed: StepFailed, is_compared: bool
    ) -> MachineError | InfeasibleError:
        """Return the error for a step that cannot end, whose rows may have been compared."""
        cause = failed.cause
        if isinstance(cause, NonfiniteAnswer):
            return (
                step.no_replacement_error(cause)
                if cause.other is None
                else step.conflict_error(cause)
            )
        if isinstance(cause, Disagreement):
            return self._disagreement(step, cause)
        if isinstance(cause, FaultyIdentified):
            numbers = ", ".join(map(str, sorted(set(cause.machines))))
            return MachineError(
                f"step {step.number} has failed: machine {numbers} answered wrong numbers, and "
                f"too few other machines are available to compute its part of {step.name}"
            )
        left = cause.machines
        needed = self._manifest.code.recovery + (self._spare if is_compared else 0)
        losses = [event for event in step.events if isinstance(event, MachineLost)]
        last = f"; lost last: machine {losses[-1].machine}, {losses[-1].reason}" if losses else ""
        return StepInfeasibleError(
            f"step {step.number} cannot end: {len(left)} of its machines are left "
            f"({', '.join(map(str, left)) or 'none'}), and "
            f"{self._steps.placement.describe_need(needed, left)}{last}"
        )

    def _disagreement(self, step: Step, cause: Disagreement) -> MachineError:
        """Return the error for answers that disagree, if the wrong machine cannot be identified."""
        found, recovery = cause.rows, self._manifest.code.recovery
        enough = recovery + 3
        hint = f" ({enough} answers would identify it)" if len(found.machines) < enough else ""
        if hint and (option := self._manifest.placement.option_for(enough)):
            hint = f" ({enough} answers tell which: encode with {option})"
        names = " or ".join(" and ".join(map(str, candidate)) for candidate in found.candidates)
        if not names:
            who = f"several are wrong{hint}"
        elif len(found.candidates[0]) == 1:
            who = f"machine {names} is wrong, or several are{hint}"
        else:
            who = f"machines {names} are wrong, or more are"
        whose = " of their shards" if recovery > 1 else ""
        rows = f"to rows {found.start}..{found.stop - 1}{whose} "
        more = f"(and {cause.others} more such places) " if cause.others else ""
        return MachineError(
            f"step {step.number} has failed: the answers of machines "
            f"{', '.join(map(str, found.machines))} {rows}{more}disagree, and no other machine is "
            f"available: {who}"
        )


def _make_checks(store: OpenStore, seed: int | None) -> tuple[ParityChecker, TermChecker]:
    """Return the checkers of answers to X W, and of terms of X' V."""
    manifest, dtype, largest = store.manifest, store.arithmetic, store.scaling.largest
    generator, errors = manifest.code.generator, manifest.shard_errors
    checker = answer_checker(generator, dtype, manifest.columns, errors)
    sizes = np.abs(generator).sum(axis=1) + errors
    return checker, TermChecker(sizes, largest, dtype, np.random.default_rng(seed))
