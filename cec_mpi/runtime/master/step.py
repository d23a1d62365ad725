"""A step: what is computed, when, by which machines, and how long each part took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.events import MachineEvent
from cec_mpi.core.plan.planner import Plan
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.records.step import AbsenceTable, StepRecord
from cec_mpi.runtime.wire.answers import Answers


class StepInfeasibleError(InfeasibleError):
    """A step has lost too many machines to end; a later step may have enough."""


class Makespans(NamedTuple):
    """Makespans that a step could have, in seconds; None if not known.

    Attributes
    ----------
    predicted : float or None
        With the rows that machines computed, at the speeds known before the step.
    bound : float or None
        With the best assignment at the same speeds.
    hindsight : float or None
        With the best assignment at the speeds that machines showed. None with stragglers, because
        machines whose answers do not count show no speed.
    """

    predicted: float | None
    bound: float | None
    hindsight: float | None


@dataclass(eq=False)
class Step:
    """A step, from the schedule to its record.

    Attributes
    ----------
    number, tick : int
        Counted from 0.
    waited : int
        Number of ticks with too few machines before it.
    waited_seconds : float
        Seconds of these ticks.
    available : tuple of int
    clock : Clock
        Clock of the hub.
    product : Product
    speeds : (N,) tuple of float
        Relative speeds of the plan.
    plan : Plan
    changed : bool
        Whether the plan differs from that of the step before.
    has_begun : bool
        Whether machines have been asked.
    bytes : dict
        Bytes sent or received, by verb.
    events : list of MachineEvent
        What happened to machines.
    away : dict
        Machines that are not available, by reason, and since which step.
    unanswered : list of int
        Machines for whose answers the step did not wait.
    delays : dict of int to float
        See `StepRecord`.
    seconds : dict
        Seconds of each verb, and of ``code``: decoding, or the transposed decoder.
    """

    number: int
    tick: int
    waited: int
    available: tuple[int, ...]
    clock: Clock = time
    waited_seconds: float = 0.0
    product: Product = field(default_factory=Product)
    speeds: tuple[float, ...] = ()
    plan: Plan = field(init=False)
    changed: bool = False
    has_begun: bool = False
    bytes: dict[str, int] = field(default_factory=dict)
    events: list[MachineEvent] = field(default_factory=list)
    away: AbsenceTable = field(default_factory=dict)
    unanswered: list[int] = field(default_factory=list)
    delays: dict[int, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(
        default_factory=lambda: {"announce": 0.0, "share": 0.0, "collect": 0.0, "code": 0.0}
    )

    def count(self, **sizes: int) -> None:
        """Count bytes, by verb."""
        for verb, size in sizes.items():
            self.bytes[verb] = self.bytes.get(verb, 0) + size

    def record(
        self, done: ProductResult, known: Makespans, cancellation: float | None, now: str
    ) -> StepRecord:
        """Return the record of the step; the recorder has noted its events."""
        answers = done.answers
        seconds = answers.seconds.tolist()
        return StepRecord(
            step=self.number,
            tick=self.tick,
            time=now,
            waited_ticks=self.waited,
            waited_seconds=self.waited_seconds,
            available=self.available,
            adjoint=self.product.adjoint,
            columns=self.product.columns,
            seconds=seconds,
            load_seconds=answers.load_seconds.tolist(),
            load_bytes=list(map(int, answers.load_bytes.tolist())),
            measured_makespan=max(seconds),
            announce_seconds=self.seconds["announce"],
            share_seconds=self.seconds["share"],
            collect_seconds=self.seconds["collect"],
            decode_seconds=self.seconds["code"],
            bytes=self.bytes,
            away=self.away,
            unanswered=self.unanswered,
            delays=self.delays,
            plan_changed=self.changed,
            rows=done.rows,
            predicted_makespan=known.predicted,
            bound=known.bound,
            hindsight_makespan=known.hindsight,
            condition=done.condition,
            cancellation=cancellation,
            assignment=self.plan.interval_bounds(len(done.rows)),
        )

    @property
    def name(self) -> str:
        """The product of one vector."""
        return "X' v" if self.product.adjoint else "X w"

    def describe(self, found: NonfiniteAnswer) -> str:
        """Return what a machine answered that is not finite, in words."""
        return f"answered {found.value} {self._at(found)}"

    def conflict_error(self, found: NonfiniteAnswer) -> MachineError:
        """Return the error for two machines whose answers are not finite at one place."""
        other = found.coincident
        assert other is not None
        return MachineError(
            f"machines {other.machine} and {found.machine} answered {other.value} and "
            f"{found.value} {self._at(found, 'their shards')} in step {self.number}: both are "
            "wrong, or their shards are (--machines leaves machines out)"
        )

    def no_replacement_error(self, found: NonfiniteAnswer, why: str = "") -> MachineError:
        """Return the error for one machine that no other can replace."""
        why = why or "no other available machine can compute its rows"
        return MachineError(
            f"machine {found.machine} {self.describe(found)} in step {self.number}, and {why}"
        )

    def _at(self, found: NonfiniteAnswer, whose: str = "its shard") -> str:
        if self.product.adjoint:
            return f"for row {found.row} of X' v"
        return f"to row {found.row} of {whose}"

    def timed(self, verb: str) -> _Timed:
        """Add the time of a ``with`` to a verb, or to ``code``."""
        return _Timed(self, verb)


class _Timed:
    """Adds the time of a ``with`` to the seconds of a verb."""

    __slots__ = ("_begin", "_step", "_verb")

    def __init__(self, step: Step, verb: str) -> None:
        self._step, self._verb = step, verb

    def __enter__(self) -> None:
        self._begin = self._step.clock.monotonic()

    def __exit__(self, *_: object) -> None:
        self._step.seconds[self._verb] += self._step.clock.monotonic() - self._begin


class ProductResult(NamedTuple):
    """The result of a product.

    Attributes
    ----------
    answers : Answers
        Reports of the machines; for X' V also the result.
    condition : float
        The largest condition number of the decoders.
    rows : list of int
        Rows that machines 1..N computed.
    """

    answers: Answers
    condition: float
    rows: list[int]
