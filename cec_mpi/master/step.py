"""One step: what is computed, when, with whom, and how long each part of it took."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from cec_mpi.core.accuracy.finite import Unusable
from cec_mpi.core.deviation.amplification import Amplification, TransposedErrors
from cec_mpi.core.deviation.figures import Deviation
from cec_mpi.core.step.product import Product
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.master.planning import Makespans, Planned, StepPlanner
from cec_mpi.records.step import StepRecord
from cec_mpi.wire.answers import Answers


class CannotEnd(InfeasibleError):
    """A step has lost so many machines that it cannot end; a later one may have others."""


class Step:
    """A step that begins.

    Parameters
    ----------
    product : Product
    planned : Planned

    Attributes
    ----------
    number : int
    moment : Moment
        When, and with whom.
    plan : Plan
    bytes : dict
        Sent or received, by verb.
    events : list of dict
        What happened to machines, for the records.
    """

    def __init__(self, product: Product, planned: Planned) -> None:
        self.product = product
        self.planned = planned
        self.moment, self.plan = planned.moment, planned.plan
        self.number = self.moment.step
        self.bytes: dict[str, int] = {}
        self.events: list[dict[str, Any]] = []
        self._seconds = {"announce": 0.0, "share": 0.0, "collect": 0.0, "code": 0.0}
        self._is_announced = False

    def beside(self, product: Product) -> Step:
        """Another product that this step needs: what it takes is counted for this one."""
        other = Step(product, self.planned)
        other.bytes, other.events, other._seconds = self.bytes, self.events, self._seconds
        other._is_announced = self._is_announced
        return other

    def announce(self, steps: StepPlanner) -> None:
        """Count as a step, once: the machines hear of it now."""
        if not self._is_announced:
            self._is_announced = True
            steps.begun(self.planned)

    def count(self, **sizes: int) -> None:
        """Count bytes, by verb."""
        for verb, size in sizes.items():
            self.bytes[verb] = self.bytes.get(verb, 0) + size

    def note_wrong(self, machine: int, **reason: str) -> None:
        """Note that a machine was wrong, once, however many of its answers were."""
        if not any(event.get("wrong") == machine for event in self.events):
            self.events.append({"wrong": machine, **reason})

    def record(
        self, done: Multiplied, known: Makespans, store: int, deviation: Deviation, now: str
    ) -> StepRecord:
        """What happened until now, for the records of the store with this number."""
        answers = done.answers
        seconds = answers.seconds.tolist()
        return StepRecord(
            step=self.number,
            tick=self.moment.tick,
            time=now,
            waited_ticks=self.moment.waited,
            available=self.moment.available,
            adjoint=self.product.adjoint,
            columns=self.product.columns,
            seconds=seconds,
            load_seconds=answers.load_seconds.tolist(),
            load_bytes=list(map(int, answers.load_bytes.tolist())),
            measured_makespan=max(seconds),
            announce_seconds=self._seconds["announce"],
            share_seconds=self._seconds["share"],
            collect_seconds=self._seconds["collect"],
            decode_seconds=self._seconds["code"],
            bytes=self.bytes,
            events=self.events,
            plan_changed=self.planned.changed,
            store=store,
            rows=done.rows,
            predicted_makespan=known.predicted,
            bound=known.bound,
            hindsight_makespan=known.hindsight,
            condition=done.condition,
            error_bound=deviation.bound,
            error_estimate=deviation.estimate,
            assignment=self.plan.bounds(len(done.rows)),
        )

    def answered(self, found: Unusable) -> str:
        """What a machine answered that is not finite, and where."""
        return f"answered {found.value} {self._at(found)}"

    def both_wrong(self, found: Unusable) -> MachineError:
        """Two machines are not finite at one place: what they multiply may be the reason."""
        other = found.other
        assert other is not None
        return MachineError(
            f"machines {other.machine} and {found.machine} answered {other.value} and "
            f"{found.value} {self._at(found, 'their shards')} in step {self.number}: both are "
            "wrong, or their shards are (--machines leaves machines out)"
        )

    def cannot_replace(self, found: Unusable, why: str = "") -> MachineError:
        """One machine is not finite, and no other can say whose error it is."""
        why = why or "no other machine is there to compute its rows"
        return MachineError(
            f"machine {found.machine} {self.answered(found)} in step {self.number}, and {why}"
        )

    def _at(self, found: Unusable, whose: str = "its shard") -> str:
        if self.product.adjoint:
            return f"for row {found.place} of X' v"
        return f"to row {found.place} of {whose}"

    def timed(self, verb: str) -> _Timed:
        """Add to the time of a verb, or of ``code``: decoding, or the transposed decoder."""
        return _Timed(self._seconds, verb)


class _Timed:
    """Adds what a ``with`` takes to the seconds of a verb."""

    __slots__ = ("_begin", "_seconds", "_verb")

    def __init__(self, seconds: dict[str, float], verb: str) -> None:
        self._seconds, self._verb = seconds, verb

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._verb] += time.perf_counter() - self._begin


class Multiplied(NamedTuple):
    """What a product came to.

    Attributes
    ----------
    answers : Answers
        What the machines did; for X' V with the result.
    condition : float
        The largest condition number that was decoded with.
    amplification : Amplification
        The most that the decoders make of errors of answers.
    rows : list of int
        That machines 1..N computed.
    terms : TransposedErrors or None
        Of X' V: errors of the terms that were added up.
    """

    answers: Answers
    condition: float
    amplification: Amplification
    rows: list[int]
    terms: TransposedErrors | None = None
