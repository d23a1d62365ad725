"""Elastic steps: machines get separate jobs, and a step does not wait for late or lost ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.finite import NonfiniteAnswer, is_finite
from cec_mpi.core.checks.parity import ParityChecker, make_checker
from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.core.elastic.adjoint import ProbeLedger, TermLedger
from cec_mpi.core.elastic.events import (
    AvailabilityChanged,
    Decode,
    Disagreement,
    FaultsIdentified,
    MachineLost,
    StartStep,
    StepFailed,
    WaitUntil,
)
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.step import ElasticStep, Ledger
from cec_mpi.core.step.answers import DecoderCache, RowAnswers
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.master.buffers import Buffers
from cec_mpi.runtime.master.computation import (
    AdjointComputation,
    AnswerMemory,
    Computation,
    ForwardComputation,
    ProbeComputation,
)
from cec_mpi.runtime.master.driver import StepDriver, initial_states
from cec_mpi.runtime.master.measurements import Measurements
from cec_mpi.runtime.master.planning import ServedStore
from cec_mpi.runtime.master.postponed import PostponedWarnings
from cec_mpi.runtime.master.step import ProductResult, Step, StepInfeasibleError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.wire.jobs import JobsEndpoint
from cec_mpi.runtime.wire.orders import HUB_POISONED
from cec_mpi.text import plural


class ElasticExecutor:
    """Executes steps that can be completed without the answers of late or lost machines.

    Parameters
    ----------
    endpoint : JobsEndpoint
    options : SessionOptions
        With S stragglers each row is computed by L + S machines, if as many are available.
    store : ServedStore
    warnings : PostponedWarnings
    """

    def __init__(
        self,
        endpoint: JobsEndpoint,
        options: SessionOptions,
        store: ServedStore,
        warnings: PostponedWarnings,
    ) -> None:
        self._endpoint, self._hub = endpoint, endpoint.hub
        self._manifest, self._planner = store.manifest, store.planner
        self._recorder, self._warnings = store.recorder, warnings
        self._extra_answers = int(options.check)  # answers for each row beyond L, for comparison
        self._extra_machines = options.stragglers + self._extra_answers  # per row, beyond L
        self._planner.uses_all_answers = self._extra_machines < 1
        assert not isinstance(options.deadline, float | str)  # validated options have a Deadline
        self._deadline = options.deadline
        self._adopt_after = float("inf") if options.adopt is None else options.adopt
        self._decoders = DecoderCache(self._manifest.code)
        self._checker: ParityChecker | None = None
        self._term_checker: TermChecker | None = None
        if options.check:
            self._column_maxima = store.scaling.column_maxima
            self._checker, self._term_checker = _make_checkers(store, options.seed)
        self._has_warned_of_damage = False
        self._memory = AnswerMemory()
        self._last_time_limit: float | None = None  # seconds for an answer, in the last step
        # The state machine and the driver of the next step, until it begins.
        self._waiting_step: tuple[ElasticStep, StepDriver] | None = None

    def next_step(self, adjoint: bool) -> Step:
        """Return the next step, planned for the machines that can get requests.

        Raises
        ------
        InfeasibleError
            Too few machines are available, and no others are expected.
        MachineError
            An earlier step was interrupted.
        """
        self._planner.schedule.check_cancelled()  # before the hub, which may have stopped
        if self._hub.is_poisoned:
            raise MachineError(HUB_POISONED)
        return self._planner.plan(self._wait_for_machines(), 0 if adjoint else self._extra_machines)

    def multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        """Send requests to machines, and process their answers, until the product is complete.

        Raises
        ------
        InfeasibleError, MachineError
            Too few machines remain, or their answers are wrong.
        """
        if step.product.adjoint:
            return self._multiply_transposed(step, buffers)
        return self._multiply(step, buffers)

    def check_finite(self, step: Step, result: ProductResult) -> None:
        """Raise `MachineError` if a sum is not finite; each answer has been checked."""
        if step.product.adjoint and not is_finite(result.answers.values):
            raise MachineError(f"the sum of the answers to step {step.number} is not finite")

    def _wait_for_machines(self) -> Step:
        """Wait until enough machines can get requests, and return the next step."""
        elastic_step, driver = self._waiting_step = self._make_driver()
        clock, schedule = self._hub.clock, self._planner.schedule
        begin, has_waited, poll_until = clock.monotonic(), False, -math.inf
        while True:
            driver.poll_hub(poll_until)
            earlier_jobs, error = self._hub.pending_jobs(), None
            can_adopt = elastic_step.allows_adoption and self._hub.roster.adoptable
            try:
                step = self._planner.next_step(
                    self._extra_answers,
                    bool(earlier_jobs or self._hub.expected_machines() or can_adopt),
                )
            except InfeasibleError as shortage:
                error = shortage
            elastic_step.handle(AvailabilityChanged(schedule.last_listed), clock.monotonic())
            outcome = driver.follow_instructions()
            if isinstance(outcome, StartStep):
                step.available, step.events = outcome.machines, driver.events
                if has_waited:
                    step.waited_seconds = clock.monotonic() - begin
                return step
            if not isinstance(outcome, WaitUntil):
                if error is not None:
                    raise error
                poll_until = -math.inf  # a machine just became unresponsive: plan again, then fail
                continue
            schedule.check_cancelled()
            has_waited, poll_until = True, min(outcome.clock_time, schedule.next_change())

    def _multiply(self, step: Step, buffers: Buffers) -> ProductResult:
        answers = RowAnswers(
            self._decoders,
            step.product.columns,
            buffers.parts,
            buffers.scratch,
            self._checker,
            None if self._checker is None else np.abs(buffers.vectors) @ self._column_maxima,
        )
        placement = self._planner.placement
        ledger = RowLedger(
            self._manifest.rows_per_shard,
            self._manifest.code.recovery,
            step.speeds,
            self._decoders,
            self._checker is not None,
            placement.holders_of,
            placement.cuts,
        )
        ledger.assign_plan(step.plan.assignment.all_intervals())
        self._memory.clear()
        computation = ForwardComputation(step.product, buffers.vectors, answers, self._memory)
        measurements = self._run(step, ledger, computation, redecode=ledger.redecode)
        return self._make_result(step, measurements, np.empty(0), ledger.condition)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> ProductResult:
        eligible_machines = None
        if self._checker is not None and self._term_checker is not None:
            self._run_probe(step, self._checker, self._term_checker)
            eligible_machines = self._term_checker.products.keys()
        rows = step.plan.assignment.all_intervals()
        spans = self._planner.placement.replacement_spans
        ledger = TermLedger(self._manifest.code.recovery, step.speeds, spans)
        ledger.assign_plan(rows)
        generator = self._manifest.code.generator
        computation = AdjointComputation(
            step.product, buffers.coefficients, rows, generator, self._term_checker
        )
        measurements = self._run(step, ledger, computation, eligible_machines=eligible_machines)
        values = computation.sum_terms(ledger.answered_terms())
        return self._make_result(step, measurements, values, buffers.codec.condition)

    def _run_probe(self, step: Step, checker: ParityChecker, term_checker: TermChecker) -> None:
        """Compute the products of shards with the probe, unless all are cached."""
        placement, rows = self._planner.placement, self._manifest.rows_per_shard
        if term_checker.products.keys() >= set(step.available):
            return
        spans = list(placement.spans(((0, rows),)))
        counts = [0] * placement.machines
        for start, stop, holders in spans:
            for machine in set(holders).intersection(step.available):
                counts[machine - 1] += stop - start
        ledger = ProbeLedger(checker.recovery, spans, term_checker.products)
        computation = ProbeComputation(term_checker, checker, rows)
        self._run(step, ledger, computation, counts)
        computation.keep_products(ledger.answered_machines)

    def _run(
        self,
        step: Step,
        ledger: Ledger,
        computation: Computation,
        rows: Sequence[int] | None = None,
        eligible_machines: Collection[int] | None = None,
        redecode: Callable[[], Decode | None] = lambda: None,
    ) -> Measurements:
        """Execute a step, or the probe before it.

        Parameters
        ----------
        step : Step
        ledger : Ledger
        computation : Computation
        rows : (N,) sequence of int, optional
            Number of rows of each machine; by default that in the plan.
        eligible_machines : collection of int, optional
            Machines that may get requests; by default all.
        redecode : callable
            See `StepDriver.run`.
        """
        elastic_step, driver = self._waiting_step or self._make_driver()
        self._waiting_step = None
        planner, clock = self._planner, self._hub.clock
        rows = planner.count_rows(step.plan) if rows is None else rows
        work = planner.estimate_work(step.plan, rows)
        predicted = planner.speeds.predict(computation.product, work)
        machines = range(1, planner.placement.machines + 1)
        listed_machines = planner.schedule.listed_machines(step.tick).intersection(machines)
        if eligible_machines is not None:
            listed_machines = listed_machines.intersection(eligible_machines)
        planner.begin(step)
        elastic_step.begin(ledger, listed_machines, predicted, clock.monotonic())
        outcome = driver.run(step, computation, planner, redecode)
        self._last_time_limit = elastic_step.time_limit
        if isinstance(outcome, StepFailed):
            raise self._failure_error(step, outcome, not computation.product.adjoint)
        return driver.measurements

    def _make_result(
        self, step: Step, measurements: Measurements, values: NDArray[np.float64], condition: float
    ) -> ProductResult:
        rows, planned_rows = measurements.rows(), self._planner.count_rows(step.plan)
        if rows == planned_rows:
            rows = planned_rows  # whose work is cached
        return ProductResult(measurements.answers(values), condition, rows)

    def _make_driver(self) -> tuple[ElasticStep, StepDriver]:
        """Return a state machine for the next step, and its driver."""
        placement, recovery = self._planner.placement, self._manifest.code.recovery
        earlier_jobs = self._hub.pending_jobs()
        elastic_step = ElasticStep(
            initial_states(self._hub.roster),
            {machine: job.sent_at for machine, job in earlier_jobs.items()},
            partial(placement.count_missing, recovery + self._extra_answers),
            self._deadline,
            self._last_time_limit,
            not self._planner.schedule.waits,
            self._adopt_after,
        )
        return elastic_step, StepDriver(
            self._endpoint, elastic_step, earlier_jobs, self._recorder, self._warn_of_damage
        )

    def _warn_of_damage(self, machine: int) -> None:
        """Warn once in a run that a machine leaves because its shard is damaged."""
        if not self._has_warned_of_damage:
            self._has_warned_of_damage = True
            self._warnings.add(f"machine {machine} leaves: {self._hub.last_error(machine)}")

    # Errors.

    def _failure_error(
        self, step: Step, failure: StepFailed, compares_answers: bool
    ) -> MachineError | InfeasibleError:
        """Return the error of a failed step."""
        cause = failure.cause
        if isinstance(cause, NonfiniteAnswer):
            return (
                step.no_replacement_error(cause)
                if cause.coincident_answer is None
                else step.conflict_error(cause)
            )
        if isinstance(cause, Disagreement):
            return self._disagreement_error(step, cause)
        if isinstance(cause, FaultsIdentified):
            faulty = sorted(set(cause.machines))
            ending, possessive = ("s", "their") if len(faulty) > 1 else ("", "its")
            return MachineError(
                f"step {step.number} has failed: machine{ending} {', '.join(map(str, faulty))} "
                f"sent wrong answers, and too few other machines are available to compute "
                f"{possessive} part of {step.product_name}"
            )
        remaining = cause.machines
        needed = self._manifest.code.recovery + (self._extra_answers if compares_answers else 0)
        losses = [event for event in step.events if isinstance(event, MachineLost)]
        last = f"; last lost: machine {losses[-1].machine}, {losses[-1].reason}" if losses else ""
        return StepInfeasibleError(
            f"step {step.number} cannot be completed: "
            f"{plural(len(remaining), 'machine', 'remains', 'remain')} "
            f"({', '.join(map(str, remaining)) or 'none'}), and "
            f"{self._planner.placement.describe_need(needed, remaining)}{last}"
        )

    def _disagreement_error(self, step: Step, cause: Disagreement) -> MachineError:
        """Return the error for answers that disagree without identifying the faulty machine."""
        disputed, recovery = cause.dispute, self._manifest.code.recovery
        needed = recovery + 3
        hint = (
            f" ({needed} answers would identify one faulty machine)"
            if len(disputed.machines) < needed
            else ""
        )
        if hint and (option := self._manifest.placement.encode_option(needed)):
            hint = f" ({needed} answers would identify one faulty machine: encode with {option})"
        names = " or ".join(" and ".join(map(str, candidate)) for candidate in disputed.candidates)
        if not names:
            suspects = f"several are wrong{hint}"
        elif len(disputed.candidates[0]) == 1:
            suspects = f"machine {names} is wrong, or several are{hint}"
        else:
            suspects = f"machines {names} are wrong, or more are"
        in_shards = " of their shards" if recovery > 1 else ""
        rows = f"for rows {disputed.start}..{disputed.stop - 1}{in_shards} "
        others = (
            f"(and for {plural(cause.other_intervals, 'other range')} of rows) "
            if cause.other_intervals
            else ""
        )
        return MachineError(
            f"step {step.number} has failed: the answers of machines "
            f"{', '.join(map(str, disputed.machines))} {rows}{others}disagree, and no other "
            f"machine is available: {suspects}"
        )


def _make_checkers(store: ServedStore, seed: int | None) -> tuple[ParityChecker, TermChecker]:
    """Return the checkers of answers to X W, and of terms of X' V."""
    manifest, dtype, column_maxima = store.manifest, store.arithmetic, store.scaling.column_maxima
    generator, errors = manifest.code.generator, manifest.shard_errors
    checker = make_checker(generator, dtype, manifest.columns, errors)
    entry_bounds = np.abs(generator).sum(axis=1) + errors
    rng = np.random.default_rng(seed)
    return checker, TermChecker(entry_bounds, column_maxima, dtype, rng)
