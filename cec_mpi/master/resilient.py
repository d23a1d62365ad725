"""The master of the exchange by messages: late and lost machines do not hold up a step."""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cec_mpi.core.checks.locating import ParityChecker
from cec_mpi.core.checks.terms import TermChecks
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.core.step.decoders import Decoders
from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError, InfeasibleError, MachineError
from cec_mpi.master.adjoint import AdjointStep
from cec_mpi.master.checked import CheckedAdjoint
from cec_mpi.master.forward import ForwardStep
from cec_mpi.master.master import Found, Master, OpenStore
from cec_mpi.master.numbers.buffers import Buffers
from cec_mpi.master.schedule import Moment
from cec_mpi.master.step import Multiplied, Step
from cec_mpi.options.deadline import as_deadline
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.waiting import Patience, Rhythm
from cec_mpi.roster.changes import Excluded, Lost
from cec_mpi.roster.roster import State
from cec_mpi.store.shard import Mended
from cec_mpi.text import plural
from cec_mpi.wire.jobs import Answered, Event, Intervals, Jobs
from cec_mpi.wire.orders import CUT_OFF

log = logging.getLogger(__name__)

_LOST_AFTER = 10.0  # deadlines without an answer: the machine is taken for lost
_LEAST_LOST_AFTER = 5.0  # seconds
_SAMPLE = 4  # rows that are compared in a step, with check="sample"
_QUARANTINE = 3  # steps with wrong answers, after which a machine is asked no more


class ResilientMaster(Master):
    """A `Master` whose steps end without the answers of machines that are late or lost.

    Parameters
    ----------
    end : Jobs
        The wire.
    options : SessionOptions
        With S, stragglers: each row is computed by L + S machines where as many are available.
    store : OpenStore
    """

    def __init__(self, end: Jobs, options: SessionOptions, store: OpenStore) -> None:
        super().__init__(end.close, store)
        self.end = end
        self._stragglers = options.stragglers
        self.steps.all_count = options.stragglers < 1
        self.deadline = None if options.deadline is None else as_deadline(options.deadline)
        code = self.manifest.code
        self._decoders = Decoders(code)
        self.checker: ParityChecker | None = None
        self.samples = options.check == "sample"
        self._random = np.random.default_rng(options.seed)
        self._largest = store.scaling.largest
        self.terms: TermChecks | None = None
        if options.check != "none":
            manifest = self.manifest
            self.checker = ParityChecker(
                code.generator, self.arithmetic, manifest.columns, self.bounds.shards
            )
            self.terms = TermChecks(
                np.abs(code.generator).sum(axis=1) + self.bounds.shards,
                self._largest,
                manifest.rows_per_shard,
                self.arithmetic,
                self._random,
            )
        self._has_warned = False  # of a store that is damaged
        self._wrong: Counter[int] = Counter()  # steps in which a machine was wrong
        self.up: set[int] = set()  # machines that are up, lost or not
        self.rhythm = Rhythm()

    def _begin(self, product: Product) -> Step:
        self._check_open()
        if self.end.hub.is_cut_off:
            raise MachineError(CUT_OFF)
        compares = not product.adjoint and self.checker is not None and not self.samples
        events: list[dict[str, Any]] = []
        moment = self._moment(compares, events)
        planned = self.steps.plan(moment, 0 if product.adjoint else self._stragglers)
        self.up = self.steps.schedule.listed(moment)
        step = Step(product, planned)
        step.events.extend(events)
        return step

    def _moment(self, more: int, events: list[dict[str, Any]]) -> Moment:
        """The moment of the next step, with the machines that can be asked then."""
        hub, patience = self.end.hub, Patience()
        with self._whole():
            hub.hear()
        while True:
            with self._whole():
                hub.start_processes()
                for event in hub.events():
                    self.note(events, event)
                    if isinstance(event, Lost):
                        self.check_loss(event, "between steps")
                self.give_up_silent(None)
                awaited = hub.busy().keys() | hub.joining()
            try:
                moment = self.steps.next(more)
            except InfeasibleError:
                if not awaited:
                    raise
            else:
                idle = hub.roster.machines(State.IDLE)
                able = tuple(n for n in moment.available if n in idle)
                if len(able) >= self.manifest.code.recovery + more:
                    return replace(moment, available=able)
            self.steps.schedule.gate()
            patience.pause()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Ask the hub no more where this was cut off: jobs may be asked half, and events lost."""
        hub = self.end.hub
        hub.is_cut_off = True
        try:
            yield
        except CecError:  # after which it is as it should be
            hub.is_cut_off = False
            raise
        hub.is_cut_off = False

    def _multiply(
        self, step: Step, buffers: Buffers, meanwhile: Callable[[], Found]
    ) -> tuple[Multiplied, Found]:
        found = meanwhile()  # now: for machines that are late W becomes another array
        manifest, columns = self.manifest, step.product.columns
        answers = RowAnswers(
            self._decoders,
            manifest.code.recovery,
            manifest.rows_per_shard,
            columns,
            buffers.parts,
            buffers.work,
            self.checker,
            self._largest @ np.abs(buffers.shared.T),
            self._sample(step) if self.samples else None,
            self.bounds.amplifier,
        )
        on_its_way = ForwardStep(self, step, buffers.shared, answers)
        with self._whole():
            on_its_way.to_its_end(buffers)
            self._count_wrong(answers.accused)
        return on_its_way.collected(answers.condition, answers.amplification), found

    def _multiply_transposed(
        self, step: Step, buffers: Buffers, meanwhile: Callable[[], Found]
    ) -> tuple[Multiplied, Found]:
        found = meanwhile()
        on_its_way = AdjointStep(self, step, buffers.coded, self.manifest.columns)
        with self._whole():
            if self.terms is None:
                on_its_way.to_its_end(buffers)
            else:
                probes = partial(self._probe_answers, self.terms.scale)
                CheckedAdjoint(self, self.terms, probes).to_its_end(on_its_way, buffers)
        amplification = self.bounds.of_plan(step.plan)
        terms = on_its_way.errors(self.bounds)
        done = on_its_way.collected(buffers.codec.condition, amplification)._replace(terms=terms)
        if not np.isfinite(done.answers.values).all():
            raise MachineError(f"the answers, added up, to step {step.number} are not finite")
        self._count_wrong(on_its_way.refused.keys() | on_its_way.wrong)
        return done, found

    def _probe_answers(self, scale: float, step: Step) -> RowAnswers:
        """Take answers to a probe, which are compared where machines are to spare."""
        recovery, rows = self.manifest.code.recovery, self.manifest.rows_per_shard
        spare = len(step.moment.available) > recovery
        return RowAnswers(
            self._decoders,
            recovery,
            rows,
            1,
            np.empty((recovery, rows)),
            np.empty(recovery * rows),
            self.checker if spare else None,
            np.array([scale]),
            self._sample(step) if self.samples else None,
        )

    def _sample(self, step: Step) -> list[int]:
        """Rows to be compared; none where no machine is to spare."""
        if len(step.moment.available) <= self.manifest.code.recovery:
            return []
        rows: list[int] = self._random.integers(self.manifest.rows_per_shard, size=_SAMPLE).tolist()
        return rows

    def _count_wrong(self, machines: Collection[int]) -> None:
        """Ask a machine no more that was wrong in several steps."""
        for n in machines:
            self._wrong[n] += 1
            if self._wrong[n] >= _QUARANTINE:
                self.end.hub.exclude(n, f"wrong in {plural(self._wrong[n], 'step')}", Excluded)

    def intervals_of(self, plan: Plan) -> Mapping[int, Intervals]:
        """The rows of each machine."""
        return plan.assignment.intervals_of_all()

    def check_loss(self, event: Lost, when: str) -> None:
        """Refuse to lose a machine, where the session does not go on without it."""
        if not self.end.hub.continues:
            raise MachineError(
                f"machine {event.machine} was lost {when} ({event.reason}): on_loss='continue' "
                "goes on without it"
            )

    def note(self, events: list[dict[str, Any]], event: Event) -> None:
        """Keep who is there, for the records and for the next steps."""
        before = len(events)
        if not isinstance(event, Answered):
            self.steps.schedule.hear(event)
            log.warning("%s", event)
            events.append(event.record)
        elif self.end.gave(event.job):
            self._note_mended(events, event.job.machine, event.job.mended)
        self.recorder.note(events[before:])

    def _note_mended(self, events: list[dict[str, Any]], machine: int, mended: Mended) -> None:
        """A machine has computed rows of its shard from others: what it answers is less exact."""
        if mended.rows and self.terms is not None:
            self.terms.forget(machine)
        if self.bounds.allow(machine, mended.error_bound) and self.checker is not None:
            self.checker.allow(self.bounds.answers)
        if not mended.rows:
            return
        events.append({"rebuilt": machine} | mended._asdict())
        if not self._has_warned:
            self._has_warned = True
            text = (
                f"machine {machine} cannot read rows {mended.first}..{mended.last} of its shard, "
                "and computes them from other shards, in memory: cec-mpi repair "
                f"{self.end.path} mends the store"
            )
            warnings.warn(text, stacklevel=2)

    def give_up_silent(self, allowed: float | None) -> None:
        """Give up machines that have not answered for long, though so many seconds were enough."""
        if self.deadline is None:
            return
        enough = max(_LEAST_LOST_AFTER, _LOST_AFTER * (allowed or self.deadline.seconds or 0.0))
        now = time.monotonic()
        for n, job in self.end.hub.busy().items():
            if now - job.begun > enough:
                self.end.hub.give_up(n, f"no answer for {now - job.begun:.1f} s")
