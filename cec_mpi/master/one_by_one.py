"""Elastic steps: machines get jobs one by one, and a step does not wait for late or lost ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cec_mpi.core.checks.parity import ParityChecker, answer_checker
from cec_mpi.core.checks.terms import TermChecks
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.step.answers import Decoders, RowAnswers
from cec_mpi.errors import CecError, InfeasibleError, MachineError
from cec_mpi.master.adjoint import AdjointStep
from cec_mpi.master.buffers import Buffers
from cec_mpi.master.checked import ProbeStep
from cec_mpi.master.forward import ForwardStep
from cec_mpi.master.planning import OpenStore
from cec_mpi.master.postponed import PostponedWarnings
from cec_mpi.master.step import Multiplied, Step
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.waiting import RESOLUTION, Patience, Rhythm, never
from cec_mpi.records.events import Event as EventRecord
from cec_mpi.roster import State
from cec_mpi.times import IDLE_SLEEP, LOST_DEADLINES, LOST_SECONDS
from cec_mpi.wire.jobs import Answered, Event, JobsEnd
from cec_mpi.wire.orders import HUB_POISONED

log = logging.getLogger(__name__)


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
    terms : TermChecks or None
        Checks of terms of X' V, if answers are compared.
    spare : int
        Number of machines, whichever they are, that a step must be able to miss.
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
        self.spare = int(options.check)
        self._more = options.stragglers + self.spare  # machines that compute a row, beyond L
        self.steps.all_count = self._more < 1
        assert not isinstance(options.deadline, float | str)  # they are checked
        self.deadline = options.deadline
        self._decoders = Decoders(self.manifest.code)
        self.checker: ParityChecker | None = None
        self.terms: TermChecks | None = None
        if options.check:
            generator, errors = self.manifest.code.generator, self.manifest.shard_errors
            self._largest = store.scaling.largest
            self.checker = answer_checker(generator, self.arithmetic, self.manifest.columns, errors)
            self.terms = TermChecks(
                np.abs(generator).sum(axis=1) + errors,
                self._largest,
                self.arithmetic,
                np.random.default_rng(options.seed),
            )
        self._has_warned = False  # of a store that is damaged
        self.up: set[int] = set()  # machines that are up, lost or not
        self.rhythm = Rhythm()
        self._allowed: float | None = None  # seconds, of the last deadline

    def next(self, adjoint: bool) -> Step:
        """Return the next step, planned for the machines that can be asked."""
        if self.end.hub.is_poisoned:
            raise MachineError(HUB_POISONED)
        step = self._next(self.spare)
        self.steps.plan(step, 0 if adjoint else self._more)
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
            *self._who_is_able(),
        )
        on_its_way = ForwardStep(self, step, buffers.shared, answers)
        with self._whole():
            on_its_way.to_its_end()
        return on_its_way.collected(answers.condition)

    def _multiply_transposed(self, step: Step, buffers: Buffers) -> Multiplied:
        with self._whole():
            if self.checker is not None and self.terms is not None:
                ProbeStep(self, step, self.checker, self.terms).to_its_end()
            on_its_way = AdjointStep(self, step, buffers.coded, self.manifest.columns)
            on_its_way.to_its_end()
        done = on_its_way.collected(buffers.codec.condition)
        if not np.isfinite(done.answers.values).all():
            raise MachineError(f"the sum of the answers to step {step.number} is not finite")
        return done

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

    def to_spare(self, machines: Sequence[int]) -> int:
        """Return how many of these machines a step can miss; -1 if they are too few."""
        return self.steps.placement.to_spare(self.manifest.code.recovery, machines)

    def note(self, events: list[EventRecord], event: Event) -> None:
        """Note an event, for the records and for the next steps."""
        before = len(events)
        if not isinstance(event, Answered):
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
