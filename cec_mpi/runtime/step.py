"""One step on the wire: its verbs in order, each of them timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from cec_mpi.core.planner import Plan
from cec_mpi.records import StepRecord
from cec_mpi.runtime.elastic import Moment
from cec_mpi.runtime.exchange import Answers, MasterEnd, Product

__all__ = ["Step"]


class Step:
    """A step that begins.

    Parameters
    ----------
    end : MasterEnd
    product : Product
    moment : Moment
        Its number, when, and with whom.
    plan : Plan
    changed : bool
        Whether the plan is another one than in the step before.
    """

    def __init__(
        self,
        end: MasterEnd,
        product: Product,
        moment: Moment,
        plan: Plan,
        changed: bool,
    ) -> None:
        self.number = moment.step
        self.product = product
        self.moment = moment
        self.plan = plan
        self._end = end
        self._changed = changed
        self._bytes: dict[str, int] = {}
        self._seconds = {"announce": 0.0, "share": 0.0, "collect": 0.0, "code": 0.0}

    def announce(self) -> None:
        """Begin on all machines; from here on `collect` has to follow."""
        with self._timed("announce"):
            assignment = self.plan.assignment
            self._bytes["announce"] = self._end.announce(self.number, self.product, assignment)

    def share(self, values: NDArray[Any]) -> None:
        """Give the machines what they multiply with."""
        with self._timed("share"):
            self._bytes["share"] = self._end.share(values)

    def collect(self, meanwhile: Callable[[], None] | None = None) -> Answers:
        """Wait for the answers, doing something while the machines compute."""
        with self._timed("collect"):
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:
                answers = self._end.collect()
        self._bytes["collect"] = answers.values.nbytes
        return answers

    def coding(self) -> Any:
        """The time of decoding answers, or of the transposed decoder."""
        return self._timed("code")

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
            bytes=self._bytes,
            plan_changed=self._changed,
            **others,
        )

    @contextmanager
    def _timed(self, verb: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[verb] += time.perf_counter() - begin
