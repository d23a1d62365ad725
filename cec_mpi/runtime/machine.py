"""A machine: holds a shard, computes the rows it is assigned, times itself."""

from __future__ import annotations

import logging
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.errors import CecError
from cec_mpi.runtime.emulation import Emulation, measure_rate
from cec_mpi.runtime.exchange import MachineEnd, Report
from cec_mpi.store.reader import Loaded, Shard

__all__ = ["Machine", "describe", "serve"]

_MEASURED_BYTES = 256 << 20  # of a shard, to measure how fast it is: more than caches hold

log = logging.getLogger(__name__)


class Machine:
    """One machine.

    Parameters
    ----------
    number : int
        Its number, from 1.
    shard : Shard
        Its rows are computed with as they are, never copied.
    emulation : Emulation, optional
        Makes it as slow as it is to appear.
    """

    def __init__(self, number: int, shard: Shard, emulation: Emulation | None = None) -> None:
        self.number = number
        self.emulation = emulation
        self._shard = shard
        self._rows = shard.rows
        self._out = np.empty(len(shard.rows), shard.rows.dtype)
        self._intervals: tuple[tuple[int, int], ...] = ()
        self._count = 0
        self._loaded = True

    def assign(self, assignment: Assignment) -> None:
        """Take the rows that this machine has in a new assignment."""
        self._intervals = assignment.intervals(self.number)
        self._count = assignment.count(self.number)
        self._loaded = False

    def load(self) -> Loaded:
        """Have the assigned rows ready; says what was read for the first time.

        Raises
        ------
        DamagedStoreError
            Rows differ from what was written.
        """
        if self._loaded:
            return Loaded()
        loaded = self._shard.load(self._intervals)
        self._loaded = True
        return loaded

    @property
    def values(self) -> NDArray[Any]:
        """Answers to the last step, in the order of the rows: shape (rows assigned,)."""
        return self._out[: self._count]

    @property
    def shard_path(self) -> Path:
        """The file that it reads."""
        return self._shard.path

    def measure_rate(self) -> float:
        """Rows per second at which this process multiplies its shard, for emulation."""
        some = max(1, min(len(self._rows), _MEASURED_BYTES // self._rows[0].nbytes))
        self._shard.load([(0, some)])
        return measure_rate(self._rows[:some])

    def compute(self, w: NDArray[Any], step: int) -> float:
        """Multiply the assigned rows with w, into `values`; returns the seconds it took."""
        if not self._count:
            return 0.0
        begin = time.perf_counter()
        position = 0
        with np.errstate(over="ignore", invalid="ignore"):  # the master looks at the answers
            for start, stop in self._intervals:
                end = position + stop - start
                np.dot(self._rows[start:stop], w, out=self._out[position:end])
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
        try:
            loaded = machine.load()
            report = Report(machine.compute(w, order.step), loaded)
        except Exception as error:
            log.exception("machine %d failed in step %d", machine.number, order.step)
            problem = describe(error)
            machine.values.fill(np.nan)
            report = Report(failed=True)
        end.answer(machine.values, report)


def describe(error: Exception) -> str:
    """An error in one line: our own are sentences, others need their kind."""
    if isinstance(error, CecError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()
