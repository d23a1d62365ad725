"""Elastic steps: machines get jobs one by one, and a step does not wait for late or lost ones."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import encoding_error
from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.core.checks.terms import TermChecks
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.step.answers import Decoders, RowAnswers
from cec_mpi.errors import CecError, InfeasibleError, MachineError
from cec_mpi.master.adjoint import AdjointStep
from cec_mpi.master.buffers import Buffers
from cec_mpi.master.checked import CheckedAdjoint
from cec_mpi.master.forward import ForwardStep
from cec_mpi.master.planning import OpenStore
from cec_mpi.master.postponed import PostponedWarnings
from cec_mpi.master.step import Multiplied, Step
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.waiting import RESOLUTION, Patience, Rhythm, never
from cec_mpi.records.events import Event as EventRecord
from cec_mpi.roster import Excluded, Left, Lost, State
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import plural
from cec_mpi.times import IDLE_SLEEP, LOST_DEADLINES, LOST_SECONDS
from cec_mpi.wire.jobs import Answered, Event, JobsEnd
from cec_mpi.wire.orders import HUB_POISONED

log = logging.getLogger(__name__)

_SAMPLE = 4  # rows that are compared in a step, with check="sample"
_QUARANTINE = 3  # steps with wrong answers after which a machine is excluded


class MadeOneByOne:
    """Makes steps that end without the answers of machines that are late or lost.

    Parameters
    ----------
    end : JobsEnd
    options : SessionOptions
        With S stragglers each row is computed by L + S machines, if as many are available.
    store : OpenStore
    warnings : PostponedWarnings

    Attributes
    ----------
    end, manifest, arithmetic, steps
        Those of the store.
    deadline : Deadline or None
    samples : bool
        Whether only some rows are compared.
    spare : int
        Number of machines, whichever they are, that a product X W must be able to miss.
    up : set of int
        Machines that are available, including lost ones.
    rhythm : Rhythm
        Rhythm of waits for answers.
    """

    def __init__(
        self,
        end: JobsEnd,
        options: SessionOptions,
        store: OpenStore,
        warnings: PostponedWarnings,
    ) -> None:
        self.end, self.manifest, self.steps = end, store.manifest, store.steps
        self.arithmetic = store.arithmetic
        self._recorder, self._warnings = store.recorder, warnings
        self._stragglers = options.stragglers
        self.steps.all_count = options.stragglers < 1
        assert not isinstance(options.deadline, float | str)  # they are checked
        self.deadline = options.deadline
        compares = options.check != "none"
        self._decoders = Decoders(self.manifest.code)
        self.checker: ParityChecker | None = None
        self.samples = options.check == "sample"
        self._random = np.random.default_rng(options.seed)
        self.terms: TermChecks | None = None
        if compares:
            manifest, code = self.manifest, self.manifest.code
            placement, errors = self.steps.placement, _shard_errors(manifest)
            self._largest = store.scaling.largest
            self.checker = ParityChecker(code.generator, self.arithmetic, manifest.columns, errors)
            self.terms = TermChecks(
                np.abs(code.generator).sum(axis=1) + errors,
                self._largest,
                manifest.rows_per_shard,
                self.arithmetic,
                self._random,
                placement.bounds if isinstance(placement, ReplicaPlacement) else None,
            )
        self.spare = int(compares and not self.samples)  # that a product X W could miss
        self._has_warned = False  # of a store that is damaged
        self._wrong: Counter[int] = Counter()  # steps in which a machine was wrong
        self.up: set[int] = set()  # machines that are up, lost or not
        self.rhythm = Rhythm()
        self._allowed: float | None = None  # seconds, of the last deadline

    def next(self, adjoint: bool) -> Step:
        """Return the next step, planned for the machines that can be asked."""
        if self.end.hub.is_poisoned:
            raise MachineError(HUB_POISONED)
        spare = 0 if adjoint else self.spare
        step = self._next(spare)
        self.steps.plan(step, 0 if adjoint else self._stragglers)
        self.up = self.steps.schedule.listed(step)
        return step

    def _next(self, spare: int) -> Step:
        """Return the next step, when enough machines can be asked."""
        hub, events = self.end.hub, list[EventRecord]()
        begin, has_waited = hub.clock.monotonic(), False
        patience = Patience(clock=hub.clock)
        idle_patience = Patience(longest=IDLE_SLEEP, clock=hub.clock)
        while True:
            with self._whole():
                for event in hub.events():
                    self.note(events, event)
                self.give_up_silent(None)
                awaited = (busy := hub.busy().keys()) | hub.awaited()
            try:
                step = self.steps.next(spare, others_come=bool(awaited))
            except InfeasibleError:
                if not awaited:
                    raise
            else:
                idle = hub.roster.machines(State.IDLE)
                able = tuple(n for n in step.available if n in idle)
                if self.to_spare(able) >= spare:
                    step.available, step.events = able, events
                    if has_waited:
                        step.waited_seconds = hub.clock.monotonic() - begin
                    return step
            self.steps.schedule.gate()
            has_waited = True
            (patience if busy else idle_patience).pause(self._next_look)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Mark the hub as cut off if the block is interrupted: jobs may be sent half."""
        hub = self.end.hub
        hub.is_poisoned = True
        try:
            yield
        except CecError:  # the hub is as it should be
            hub.is_poisoned = False
            raise
        hub.is_poisoned = False

    def multiply(self, step: Step, buffers: Buffers) -> Multiplied:
        """Ask machines until the product is complete.

        Raises
        ------
        InfeasibleError, MachineError
            Too few machines are left, or their answers are wrong.
        """
        if step.product.adjoint:
            return self._multiply_transposed(step, buffers)
        return self._multiply(step, buffers)

    def _multiply(self, step: Step, buffers: Buffers) -> Multiplied:
        answers = RowAnswers(
            self._decoders,
            self.manifest.code.recovery,
            self.manifest.rows_per_shard,
            step.product.columns,
            buffers.parts,
            buffers.work,
            self.checker,
            None if self.checker is None else np.abs(buffers.shared) @ self._largest,
            self._sample(step) if self.samples else None,
            *self._who_is_able(),
        )
        on_its_way = ForwardStep(self, step, buffers.shared, answers)
        with self._whole():
            on_its_way.to_its_end()
            self._count_wrong(on_its_way.blamed)
        return on_its_way.collected(answers.condition)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> Multiplied:
        on_its_way = AdjointStep(self, step, buffers.coded, self.manifest.columns)
        with self._whole():
            if self.terms is None:
                on_its_way.to_its_end()
            else:
                probes = partial(self._probe_answers, self.terms.scale)
                CheckedAdjoint(self, self.terms, probes).to_its_end(on_its_way)
        done = on_its_way.collected(buffers.codec.condition)
        if not np.isfinite(done.answers.values).all():
            raise MachineError(f"the sum of the answers to step {step.number} is not finite")
        self._count_wrong(on_its_way.refused.keys() | on_its_way.wrong)
        return done

    def _probe_answers(self, scale: float, step: Step) -> RowAnswers:
        """Return what takes answers to a probe; they are compared if a machine can be missed."""
        recovery, rows = self.manifest.code.recovery, self.manifest.rows_per_shard
        compared = self.to_spare(step.available) > 0
        return RowAnswers(
            self._decoders,
            recovery,
            rows,
            1,
            np.empty((recovery, rows)),
            np.empty(recovery * rows),
            self.checker if compared else None,
            np.array([scale]),
            self._sample(step) if self.samples else None,
            *self._who_is_able(),
        )

    def _who_is_able(self) -> tuple[Callable[[int], Collection[int]] | None, Sequence[int]]:
        """Which machines can answer a row, and at which rows these change."""
        placement = self.steps.placement
        if isinstance(placement, ReplicaPlacement):
            return self._able, placement.bounds[1:-1]
        return None, ()

    def _able(self, row: int) -> Collection[int]:
        """The machines that hold a row of a sparse X by now."""
        placement = self.steps.placement
        assert isinstance(placement, ReplicaPlacement)
        return placement.able(row)

    def _sample(self, step: Step) -> list[int]:
        """Return the rows to compare; none if no machine can be missed."""
        if self.to_spare(step.available) < 1:
            return []
        return list(self._random.integers(self.manifest.rows_per_shard, size=_SAMPLE).tolist())

    def _count_wrong(self, machines: Collection[int]) -> None:
        """Exclude machines that were wrong in several steps."""
        for n in machines:
            self._wrong[n] += 1
            if self._wrong[n] >= _QUARANTINE:
                self.end.hub.exclude(n, f"wrong in {plural(self._wrong[n], 'step')}", Excluded)

    def to_spare(self, machines: Sequence[int]) -> int:
        """Return how many of these machines a step can miss; -1 if they are too few."""
        return self.steps.placement.to_spare(self.manifest.code.recovery, machines)

    def note(self, events: list[EventRecord], event: Event) -> None:
        """Note an event, for the records and for the next steps."""
        before = len(events)
        if not isinstance(event, Answered):
            if isinstance(event, Lost | Left | Excluded):  # another process may become it
                self._wrong.pop(event.machine, None)
            log.warning("%s", event)
            events.append(event.record)
        self._recorder.note(events[before:])

    def note_damage(self, machine: int) -> None:
        """Warn once that a machine leaves because its shard is damaged."""
        if not self._has_warned:
            self._has_warned = True
            self._warnings.add(f"machine {machine} leaves: {self.end.hub.report(machine)}")

    def give_up_silent(self, allowed: float | None) -> None:
        """Give up machines that have not answered for many times the allowed seconds."""
        enough = self._enough(allowed)
        now = self.end.hub.clock.monotonic()
        for n, job in self.end.hub.busy().items():
            if now - job.begun > enough:
                self.end.hub.give_up(n, f"no answer for {now - job.begun:.1f} s")

    def next_giving_up(self, allowed: float | None) -> float:
        """Return when `give_up_silent` gives up a machine, unless one answers before."""
        begun = (job.begun for job in self.end.hub.busy().values())
        return min(begun, default=never()) + self._enough(allowed) + RESOLUTION

    def _enough(self, allowed: float | None) -> float:
        """Return the seconds without an answer after which a machine is given up.

        Between steps those of the last step count. Nothing is expected of the very first answers.
        """
        if self.deadline is None:
            return never()
        self._allowed = self.deadline.seconds or allowed or self._allowed
        return max(LOST_SECONDS, LOST_DEADLINES * self._allowed) if self._allowed else never()

    def _next_look(self) -> float:
        """Return when the next step may be possible, unless a machine answers or joins before."""
        return min(self.next_giving_up(None), self.steps.schedule.next_change())


def _shard_errors(manifest: Manifest) -> NDArray[np.float64]:
    """Return error bounds of all shards, from encoding or from rebuilding: (N,)."""
    rebuilt = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in manifest.shards]
    return np.maximum(encoding_error(manifest.code.generator, manifest.dtype), rebuilt)
