"""A step: its product, machines and plan, and its measured times and bytes."""

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
    """A step has lost too many machines; a later step may have enough."""


class Makespans(NamedTuple):
    """Makespans to compare the measured one with, in seconds; None if unknown.

    Attributes
    ----------
    predicted : float or None
        Of the rows that machines computed, at the speeds before the step.
    bound : float or None
        Of the best assignment at the same speeds.
    hindsight : float or None
        Of the best assignment at the speeds that were measured in the step. None with stragglers,
        because the speeds of machines with unused answers are not measured.
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
    waited_ticks : int
        Number of ticks with too few machines before the step.
    available : tuple of int
    clock : Clock
        Clock of the hub.
    waited_seconds : float
        Duration of the wait for machines.
    product : Product
    speeds : (N,) tuple of float
        Relative speeds of the plan.
    plan : Plan
    plan_changed : bool
        Whether it differs from the plan of the previous step.
    has_begun : bool
        Whether orders were sent.
    payload_bytes : dict
        Bytes sent or received in each phase.
    events : list of MachineEvent
    absent_since : dict
        For each reason for absence, the absent machines with the first step of their absence.
    unanswered : list of int
        See `StepRecord`.
    delays : dict of int to float
        See `StepRecord`.
    seconds : dict
        Seconds of each phase; ``decode`` is decoding, or the transposed decoding of X' V.
    """

    number: int
    tick: int
    waited_ticks: int
    available: tuple[int, ...]
    clock: Clock = time
    waited_seconds: float = 0.0
    product: Product = field(default_factory=Product)
    speeds: tuple[float, ...] = ()
    plan: Plan = field(init=False)
    plan_changed: bool = False
    has_begun: bool = False
    payload_bytes: dict[str, int] = field(default_factory=dict)
    events: list[MachineEvent] = field(default_factory=list)
    absent_since: AbsenceTable = field(default_factory=dict)
    unanswered: list[int] = field(default_factory=list)
    delays: dict[int, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(
        default_factory=lambda: {"announce": 0.0, "share": 0.0, "collect": 0.0, "decode": 0.0}
    )

    def count_bytes(self, **sizes: int) -> None:
        """Add sizes to the byte counts of phases."""
        for phase, size in sizes.items():
            self.payload_bytes[phase] = self.payload_bytes.get(phase, 0) + size

    def make_record(
        self,
        result: ProductResult,
        makespans: Makespans,
        cancellation: float | None,
        timestamp: str,
    ) -> StepRecord:
        """Return the record of the step, without its events."""
        answers = result.answers
        seconds = answers.seconds.tolist()
        return StepRecord(
            step=self.number,
            tick=self.tick,
            time=timestamp,
            waited_ticks=self.waited_ticks,
            waited_seconds=self.waited_seconds,
            available=self.available,
            adjoint=self.product.adjoint,
            columns=self.product.columns,
            compute_seconds=seconds,
            load_seconds=answers.load_seconds.tolist(),
            load_bytes=list(map(int, answers.load_bytes.tolist())),
            measured_makespan=max(seconds),
            announce_seconds=self.seconds["announce"],
            share_seconds=self.seconds["share"],
            collect_seconds=self.seconds["collect"],
            decode_seconds=self.seconds["decode"],
            payload_bytes=self.payload_bytes,
            absent_since=self.absent_since,
            unanswered=self.unanswered,
            delays=self.delays,
            plan_changed=self.plan_changed,
            rows=result.rows,
            predicted_makespan=makespans.predicted,
            makespan_bound=makespans.bound,
            hindsight_makespan=makespans.hindsight,
            condition_number=result.condition_number,
            cancellation=cancellation,
            assignment=self.plan.interval_bounds(len(result.rows)),
        )

    @property
    def product_name(self) -> str:
        """Either ``X w`` or ``X' v``."""
        return "X' v" if self.product.adjoint else "X w"

    def describe_nonfinite(self, answer: NonfiniteAnswer) -> str:
        """Describe the value that is not finite, and its row."""
        return f"answered {answer.value} {self._describe_row(answer)}"

    def conflict_error(self, answer: NonfiniteAnswer) -> MachineError:
        """Return the error for two machines whose answers for a row are not finite."""
        other = answer.coincident_answer
        assert other is not None
        return MachineError(
            f"machines {other.machine} and {answer.machine} answered {other.value} and "
            f"{answer.value} {self._describe_row(answer, 'their shards')} in step {self.number}: "
            "both are wrong, or their shards are (--machines leaves machines out)"
        )

    def no_replacement_error(self, answer: NonfiniteAnswer, reason: str = "") -> MachineError:
        """Return the error for a machine with a wrong answer that no other can replace."""
        reason = reason or "no other available machine can compute its rows"
        return MachineError(
            f"machine {answer.machine} {self.describe_nonfinite(answer)} in step {self.number}, "
            f"and {reason}"
        )

    def _describe_row(self, answer: NonfiniteAnswer, shard: str = "its shard") -> str:
        if self.product.adjoint:
            return f"for row {answer.row} of X' v"
        return f"for row {answer.row} of {shard}"

    def timed(self, phase: str) -> _Timer:
        """Return a context that adds its duration to the seconds of a phase."""
        return _Timer(self, phase)


class _Timer:
    __slots__ = ("_begin", "_phase", "_step")

    def __init__(self, step: Step, phase: str) -> None:
        self._step, self._phase = step, phase

    def __enter__(self) -> None:
        self._begin = self._step.clock.monotonic()

    def __exit__(self, *_: object) -> None:
        self._step.seconds[self._phase] += self._step.clock.monotonic() - self._begin


class ProductResult(NamedTuple):
    """The result of a product.

    Attributes
    ----------
    answers : Answers
        Reports of the machines; for X' V also the result.
    condition_number : float
        The largest condition number of the decoders.
    rows : list of int
        Number of rows that each machine computed.
    """

    answers: Answers
    condition_number: float
    rows: list[int]
