"""A machine, which multiplies the assigned rows of its shard and measures the time."""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.plan.assignment import count_rows
from cec_mpi.errors import CecError, DamagedStoreError, MachineError
from cec_mpi.runtime.machine.emulation import Emulation, measure_rate
from cec_mpi.runtime.machine.faults import Faults
from cec_mpi.runtime.product import Product
from cec_mpi.store.shard import NOTHING_LOADED, LoadCost, Shard

log = logging.getLogger(__name__)

_MIN_VARIABLE_FRACTION = 0.1  # minimum left of a product's time when its fixed part is subtracted
_SAMPLE_BYTES = 256 << 20  # of a shard, to measure its speed: more than processor caches hold


class Report(NamedTuple):
    """The report of a machine on its answer.

    Attributes
    ----------
    seconds : float
        Time of the computation.
    load_cost : LoadCost
        Time and bytes of reading rows before it.
    problem : str
        The exception that the machine raised; empty if it raised none.
    leaving : bool
        Whether the machine must leave soon.
    damaged : bool
        Whether the exception reports a damaged shard.
    """

    seconds: float = 0.0
    load_cost: LoadCost = NOTHING_LOADED
    problem: str = ""
    leaving: bool = False
    damaged: bool = False


class Machine:
    """A machine of the store, with its shard, assigned rows and last answers.

    Parameters
    ----------
    number : int
        Its number, from 1; 0 if it does not serve the store.
    shard : Shard or None
    columns : int
        Columns of the shard, r.
    arithmetic : dtype
        Dtype of vectors, and of answers to X W.

    Attributes
    ----------
    emulation : Emulation or None
        Emulated speed.
    faults : Faults
        Injected faults.
    machines_on_host : int
        Number of machines of its process. They compute one after another, so the
        emulation makes each this many times as fast.
    cache_problem : str
        Why its shard is not read from the cache; empty if it is, or if no cache is configured.
    device : str
        Device that multiplies its shard; empty for the processor.
    row_count : int
        Number of assigned rows.
    """

    def __init__(
        self, number: int, shard: Shard | None, columns: int, arithmetic: DTypeLike
    ) -> None:
        self.number = number
        self.emulation: Emulation | None = None
        self.faults = Faults()
        self.machines_on_host = 1
        self.cache_problem = self.device = ""
        self._shard = shard
        self._forward_answers = np.empty(0, arithmetic)
        self._adjoint_answers = np.empty((columns, 1))
        self._answers = self._forward_answers  # of the last step, one-dimensional
        self._answer_block = self._forward_answers.reshape(0, 1)  # of X W, shape (row_count, k)
        self._intervals: tuple[tuple[int, int], ...] = ()
        self._is_loaded = True
        self._prepared_product: Product | None = None  # its answers are in arrays of this machine
        self.row_count = 0

    @staticmethod
    def ignore_fp_warnings() -> np.errstate:
        """Return a context without warnings of overflow, because the master checks answers."""
        return np.errstate(over="ignore", invalid="ignore")

    def assign(self, intervals: tuple[tuple[int, int], ...]) -> None:
        """Assign the rows ``start <= row < stop`` of ascending intervals."""
        if intervals == self._intervals:
            return
        self._intervals = intervals
        self.row_count = count_rows(intervals)
        self._is_loaded = False
        self._prepared_product = None

    @property
    def weighted_rows(self) -> float:
        """Number of assigned rows, weighted by cost: a row of mean cost counts as 1."""
        return 0.0 if self._shard is None else self._shard.cost(self._intervals)

    def load(self) -> LoadCost:
        """Read the assigned rows that are not in memory; return the time and bytes.

        Raises
        ------
        DamagedStoreError
            Rows do not match their checksum.
        """
        shard = self._shard
        if shard is None:
            return NOTHING_LOADED
        # Newly assigned rows may be in blocks loaded earlier, so check for changes before loading.
        changed = shard.has_changed()
        if self._is_loaded and not changed:
            return NOTHING_LOADED
        load_cost = shard.load(self._intervals)
        self._is_loaded = True
        return load_cost

    @property
    def values(self) -> NDArray[Any]:
        """Answers of the last step.

        Returns
        -------
        (row_count * k,) ndarray
            For X W, in the order of the rows, in the dtype of vectors.
        (r * k,) ndarray of float64
            For X' V: the term of this machine.
        """
        return self._answers

    @property
    def shard_file(self) -> str:
        """Path of the shard; empty if the machine does not serve the store."""
        return "" if self._shard is None else str(self._shard.path)

    def measure_rate(self) -> float:
        """Return how many rows this process multiplies per second, in rows of mean cost."""
        if self._shard is None:
            return 0.0
        shard, columns = self._shard, len(self._adjoint_answers)
        w = np.ones((1, columns), self._forward_answers.dtype)
        first, end, row_bytes = shard.sample_rows(_SAMPLE_BYTES, w.nbytes)
        if first == end:  # no rows
            return 0.0
        shard.load([(first, end)])
        out = np.empty((end - first, 1), w.dtype)

        def multiply(start: int, stop: int) -> None:
            shard.multiply(w, [(first + start, first + stop)], out[start:stop])

        rate = measure_rate(multiply, end - first, row_bytes)
        return rate * shard.cost([(first, end)]) / (end - first)

    def prepare(self, product: Product, out: NDArray[Any] | None = None) -> None:
        """Provide arrays for the answers to this product.

        Parameters
        ----------
        product : Product
        out : ndarray, optional
            Array for `values`; by default an array of this machine.
        """
        if product == self._prepared_product and out is None and self.row_count:
            return
        self._prepared_product = product if out is None else None
        if not product.adjoint:
            size = self.row_count * product.columns
            if out is None and self._forward_answers.size < size:
                self._forward_answers = np.empty(size, self._forward_answers.dtype)
            self._answers = self._forward_answers[:size] if out is None else out
            self._answer_block = self._answers.reshape(self.row_count, product.columns)
            return
        if out is not None:
            self._adjoint_answers = out.reshape(-1, product.columns)
        elif self._adjoint_answers.shape[1] != product.columns:
            self._adjoint_answers = np.empty((len(self._adjoint_answers), product.columns))
        if not self.row_count:
            self._adjoint_answers.fill(0)  # the term of a machine without rows
        self._answers = self._adjoint_answers.reshape(-1)

    def execute(self, product: Product, operand: NDArray[Any], step: int) -> Report:
        """Read new rows and multiply all assigned rows; report an exception instead of raising it.

        Parameters
        ----------
        product, operand, step
            See `compute`.

        Returns
        -------
        Report
            If it contains an exception, the answers are NaN.
        """
        try:
            load_cost = self.load()
            return Report(self.compute(product, operand, step), load_cost)
        except Exception as error:
            log.exception("machine %d failed in step %d", self.number, step)
            self._answers.fill(np.nan)
            return Report(
                problem=_describe_error(error), damaged=isinstance(error, DamagedStoreError)
            )

    def compute(self, product: Product, operand: NDArray[Any], step: int) -> float:
        """Multiply the assigned rows; return the seconds of the computation.

        Parameters
        ----------
        product : Product
        operand : ndarray
            W', shape (k, r), or for the adjoint the coefficients of the assigned rows, shape
            (row_count, k).
        step : int

        Raises
        ------
        DamagedStoreError
            Rows were overwritten during the computation.
        MachineError
            Rows are assigned, but the machine has no shard.
        """
        if not self.row_count:
            return 0.0
        shard = self._shard
        if shard is None:
            raise MachineError(f"machine {self.number} has no shard, but received a job")
        self.faults.inject_signals(self.number, step)
        fixed_seconds = shard.warm_up(product.adjoint, operand, self._intervals)
        begin = time.perf_counter()
        self._multiply(shard, product, operand)
        if self.emulation is not None:
            min_seconds = (
                self.weighted_rows / self.emulation.rate(self.number, step) / self.machines_on_host
            )
            time.sleep(max(0.0, begin + min_seconds - time.perf_counter()))
        seconds = time.perf_counter() - begin
        if fixed_seconds:  # with these, a machine with few rows would seem slow and get fewer
            seconds = max(seconds - fixed_seconds, _MIN_VARIABLE_FRACTION * seconds)
        if shard.has_changed():
            shard.load(self._intervals)  # raises if rows were overwritten during the computation
        return self.faults.inject_into_answer(self.number, step, self._answers, seconds)

    def _multiply(self, shard: Shard, product: Product, operand: NDArray[Any]) -> None:
        if product.adjoint:
            shard.multiply_transposed(operand, self._intervals, self._adjoint_answers)
        else:
            shard.multiply(operand, self._intervals, self._answer_block)


def _describe_error(error: Exception) -> str:
    """Return an error as one line, with the class of an error of another package."""
    if isinstance(error, CecError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()
