"""One step: what is computed, when, with whom, and how long each part of it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cec_mpi.core.planner import Plan
from cec_mpi.errors import InfeasibleError
from cec_mpi.records import StepRecord
from cec_mpi.runtime.elastic import Moment
from cec_mpi.runtime.exchange import Answers, Product

__all__ = ["CannotEnd", "Step"]


class CannotEnd(InfeasibleError):
    """A step has lost so many machines that it cannot end; a later one may have others."""


class Step:
    """A step that begins.

    Parameters
    ----------
    product : Product
    moment : Moment
        Its number, when, and with whom.
    plan : Plan
    changed : bool
        Whether the plan is another one than in the step before.

    Attributes
    ----------
    bytes : dict
        Sent or received, by verb.
    events : list of dict
        What happened to machines, for the records.
    """

    def __init__(
        self,
        product: Product,
        moment: Moment,
        plan: Plan,
        changed: bool,
    ) -> None:
        self.number = moment.step
        self.product = product
        self.moment = moment
        self.plan = plan
        self._changed = changed
        self.bytes: dict[str, int] = {}
        self.events: list[dict[str, Any]] = []
        self._seconds = {"announce": 0.0, "share": 0.0, "collect": 0.0, "code": 0.0}

    def record(self, answers: Answers, **others: Any) -> StepRecord:
        """What happened."""
        return StepRecord(
            step=self.number,
            tick=self.moment.tick,
            waited_ticks=self.moment.waited,
            available=self.moment.available,
            adjoint=self.product.adjoint,
            columns=self.product.columns,
            seconds=answers.seconds.tolist(),
            load_seconds=answers.load_seconds.tolist(),
            load_bytes=answers.load_bytes.astype(int).tolist(),
            measured_makespan=float(answers.seconds.max()),
            announce_seconds=self._seconds["announce"],
            share_seconds=self._seconds["share"],
            collect_seconds=self._seconds["collect"],
            decode_seconds=self._seconds["code"],
            bytes=self.bytes,
            events=self.events,
            plan_changed=self._changed,
            **others,
        )

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        """Add to the time of a verb, or of ``code``: decoding, or the transposed decoder."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[verb] += time.perf_counter() - begin
