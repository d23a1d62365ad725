"""A machine: holds a shard, computes the rows it is assigned, times itself."""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.runtime.emulation import Emulation, measure_rate
from cec_mpi.runtime.exchange import MachineEnd

__all__ = ["Machine", "serve"]

log = logging.getLogger(__name__)


class Machine:
    """One machine.

    Parameters
    ----------
    number : int
        Its number, from 1.
    shard : (R, r) ndarray
        C-contiguous; computed with as it is, never copied.
    emulation : Emulation, optional
        Makes it as slow as it is to appear.
    """

    def __init__(
        self, number: int, shard: NDArray[Any], emulation: Emulation | None = None
    ) -> None:
        self.number = number
        self.emulation = emulation
        self._shard = shard
        self._out = np.empty(len(shard), shard.dtype)
        self._intervals: tuple[tuple[int, int], ...] = ()
        self._count = 0

    def assign(self, assignment: Assignment) -> None:
        """Take the rows that this machine has in a new assignment."""
        self._intervals = assignment.intervals(self.number)
        self._count = assignment.count(self.number)

    @property
    def values(self) -> NDArray[Any]:
        """Answers to the last step, in the order of the rows: shape (rows assigned,)."""
        return self._out[: self._count]

    def measure_rate(self) -> float:
        """Rows per second at which this process multiplies its shard, for emulation."""
        return measure_rate(self._shard)

    def compute(self, w: NDArray[Any], step: int) -> float:
        """Multiply the assigned rows with w, into `values`; returns the seconds it took."""
        if not self._count:
            return 0.0
        begin = time.perf_counter()
        position = 0
        with np.errstate(over="ignore", invalid="ignore"):  # the master looks at the answers
            for start, stop in self._intervals:
                end = position + stop - start
                np.dot(self._shard[start:stop], w, out=self._out[position:end])
                position = end
        if self.emulation is not None:
            least = self._count / self.emulation.rate(self.number, step)
            time.sleep(max(0.0, begin + least - time.perf_counter()))
        return time.perf_counter() - begin


def serve(machine: Machine, end: MachineEnd) -> int:
    """Answer steps until the master says stop; returns the exit code to leave with.

    An exception in a computation is logged and reported; the machine then stays in step
    with the others until the master ends the run.
    """
    problem = ""
    while True:
        order = end.announced()
        if order.stop is not None:
            return order.stop
        if order.report:
            end.report(problem)
            continue
        if order.assignment is not None:
            machine.assign(order.assignment)
        w = end.shared()
        seconds, failed = 0.0, False
        try:
            seconds = machine.compute(w, order.step)
        except Exception as error:
            log.exception("machine %d failed in step %d", machine.number, order.step)
            problem = "".join(traceback.format_exception_only(error)).strip()
            machine.values.fill(np.nan)
            failed = True
        end.answer(machine.values, seconds, failed)
