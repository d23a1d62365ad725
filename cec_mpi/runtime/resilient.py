"""The master of the exchange by messages: late and lost machines do not hold up a step."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.answers import Decoders, RowAnswers
from cec_mpi.core.locating import ParityChecker
from cec_mpi.core.planner import Plan, Planner
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.adjoint_run import AdjointRun
from cec_mpi.runtime.buffers import Buffers
from cec_mpi.runtime.deadline import as_deadline
from cec_mpi.runtime.elastic import Moment
from cec_mpi.runtime.exchange import Product
from cec_mpi.runtime.forward_run import ForwardRun
from cec_mpi.runtime.jobs import GivenUp, Intervals, Joined, Left, Lost
from cec_mpi.runtime.master import Master, Multiplied, shard_errors
from cec_mpi.runtime.messages import MessagesMasterEnd
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.runtime.step import Step
from cec_mpi.runtime.waiting import Patience

__all__ = ["ResilientMaster"]

log = logging.getLogger(__name__)

_LOST_AFTER = 10.0  # deadlines without an answer: the machine is taken for lost
_LEAST_LOST_AFTER = 5.0  # seconds
_SAMPLE = 4  # rows that are compared in a step, with check="sample"
_QUARANTINE = 3  # steps with wrong answers, after which a machine is asked no more


class ResilientMaster(Master):
    """A `Master` whose steps end without the answers of machines that are late or lost.

    Parameters
    ----------
    end : MessagesMasterEnd
        The wire.
    options : SessionOptions
        With S, stragglers: each row is computed by L + S machines where as many are available.
    *given
        As for `Master`.
    """

    def __init__(self, end: MessagesMasterEnd, options: SessionOptions, *given: Any) -> None:
        super().__init__(end.close, *given)
        self.end = end
        self._stragglers = options.stragglers
        self.deadline = None if options.deadline is None else as_deadline(options.deadline)
        code = self.manifest.code
        self._decoders = Decoders(code)
        self._planners = {code.recovery: self._planner} | {
            copies: Planner(copies, self.manifest.rows_per_shard, self._planner.scheme)
            for copies in range(code.recovery + 1, code.recovery + options.stragglers + 1)
        }
        self._intervals: tuple[Plan | None, dict[int, Intervals]] = None, {}
        self.checker: ParityChecker | None = None
        self._sampling = options.check == "sample"
        self._random = np.random.default_rng(options.seed)
        if options.check != "none":
            self.checker = ParityChecker(
                code.generator,
                self._dtype,
                self.manifest.columns,
                shard_errors(self.manifest),
            )
        self._wrong: Counter[int] = Counter()  # steps in which a machine was wrong
        self.mask: set[int] = set()  # machines that are up, lost or not
        self.planned_with: tuple[float, ...] = ()

    def _begin(self, product: Product) -> Step:
        self._check_open()
        recovery = self.manifest.code.recovery
        compares = not product.adjoint and self.checker is not None and not self._sampling
        needed = recovery + compares
        events: list[dict[str, Any]] = []
        moment = self._moment(needed, events)
        able = moment.available
        surplus = 0 if product.adjoint else self._stragglers
        planner = self._planners[min(recovery + surplus, len(able))]
        self.mask = self._schedule.listed(moment)
        self.planned_with = self.speeds.plan_speeds(able)
        plan = planner.plan(able, self.planned_with)
        step = Step(product, moment, plan, plan is not self._plan)
        step.events.extend(events)
        return step

    def _moment(self, needed: int, events: list[dict[str, Any]]) -> Moment:
        """The moment of the next step, with the machines that can be asked then."""
        hub, patience = self.end.hub, Patience()
        hub.hear()
        while True:
            hub.start_processes()
            for event in hub.events():
                self.note(events, event)
                if isinstance(event, Lost):
                    self.check_loss(event, "between steps")
            now = time.monotonic()
            for n, job in hub.busy().items():
                if now - job.begun > self.lost_after(None):
                    hub.give_up(n, f"no answer for {now - job.begun:.1f} s")
            awaited = {*hub.busy(), *hub.joining()}
            try:
                moment = self._schedule.next(needed, self.manifest.code.machines)
            except InfeasibleError:
                if not awaited:
                    raise
            else:
                idle = set(hub.idle())
                able = tuple(n for n in moment.available if n in idle)
                if len(able) >= needed:
                    return replace(moment, available=able)
            self._schedule.gate()
            patience.pause()

    def _multiply(self, step: Step, buffers: Buffers, scale: float) -> Multiplied:
        manifest, columns = self.manifest, step.product.columns
        answers = RowAnswers(
            self._decoders,
            manifest.code.recovery,
            manifest.rows_per_shard,
            columns,
            buffers.parts,
            buffers.work,
            self.checker,
            floor=scale,
            sample=self._sample(step) if self._sampling else None,
        )
        run = ForwardRun(self, step, buffers.shared, answers)
        run.to_its_end(buffers)
        self._count_wrong(answers.accused)
        return run.collected(answers.condition, answers.gain)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> Multiplied:
        run = AdjointRun(self, step, buffers.coded, self.manifest.columns)
        run.to_its_end(buffers)
        return run.collected(buffers.codec.condition, buffers.codec.gain)

    def check_finite(self, machine: int, step: Step, values: NDArray[Any]) -> None:
        """Refuse answers that are not numbers."""
        if not np.isfinite(values).all():
            found = values[~np.isfinite(values)][0]
            raise MachineError(
                f"machine {machine} answered {found} in step {step.number}: the product is too "
                f"large for {self._dtype}, or the answer is wrong"
            )

    def _sample(self, step: Step) -> list[int]:
        """Rows to be compared; none where no machine is to spare."""
        if len(step.moment.available) <= self.manifest.code.recovery:
            return []
        rows: list[int] = self._random.integers(self.manifest.rows_per_shard, size=_SAMPLE).tolist()
        return rows

    def _count_wrong(self, machines: Iterable[int]) -> None:
        """Ask a machine no more that was wrong in several steps."""
        for n in machines:
            self._wrong[n] += 1
            if self._wrong[n] >= _QUARANTINE:
                self.end.hub.let_go(n, f"wrong in {self._wrong[n]} steps")

    def intervals_of(self, plan: Plan) -> dict[int, Intervals]:
        """The rows of each machine."""
        known, intervals = self._intervals
        if known is not plan:
            assignment = plan.assignment
            intervals = {n: assignment.intervals(n) for n in assignment.available}
            self._intervals = plan, intervals
        return intervals

    def check_loss(self, event: Lost, when: str) -> None:
        """Refuse to lose a machine, where the session does not go on without it."""
        if not self.end.hub.continues:
            raise MachineError(
                f"machine {event.machine} was lost {when} ({event.reason}): on_loss='continue' "
                "goes on without it"
            )

    def gate(self) -> None:
        """Raise what ends the run, where something does."""
        self._schedule.gate()

    def note(self, events: list[dict[str, Any]], event: object) -> None:
        """Keep who is there, for the records and for the next steps."""
        if isinstance(event, Lost | Left | GivenUp):
            self._schedule.leave(event.machine)
        elif isinstance(event, Joined):
            self._schedule.come_back(event.machine)
        if isinstance(event, Lost):
            log.warning("machine %d is lost: %s", event.machine, event.reason)
            events.append({"lost": event.machine, "reason": event.reason})
        elif isinstance(event, GivenUp):
            log.warning("machine %d is given up: %s", event.machine, event.reason)
            events.append({"given up": event.machine, "reason": event.reason})
        elif isinstance(event, Left):
            log.warning("machine %d is asked no more: %s", event.machine, event.reason)
            events.append({"leaving": event.machine, "reason": event.reason})
        elif isinstance(event, Joined):
            log.warning("rank %d is machine %d now", event.rank, event.machine)
            events.append({"joined": event.machine, "rank": event.rank})

    def lost_after(self, allowed: float | None) -> float:
        """Seconds without an answer after which a machine is taken for lost."""
        if self.deadline is None:
            return float("inf")
        return max(_LEAST_LOST_AFTER, _LOST_AFTER * (allowed or self.deadline.seconds or 0.0))
