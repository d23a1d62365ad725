"""A machine: holds a shard, computes the rows it is assigned, times itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.errors import MachineError
from cec_mpi.runtime.emulation import Emulation, measure_rate
from cec_mpi.runtime.exchange import Product
from cec_mpi.runtime.faults import Faults
from cec_mpi.store.reader import Loaded, Shard

__all__ = ["Machine"]

_MEASURED_BYTES = 256 << 20  # of a shard, to measure how fast it is: more than caches hold

# Rows multiplied at once with several columns. OpenBLAS copies what it multiplies: some
# megabytes of it stay in the caches until they are used.
_SLAB_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 128, 4096


class Machine:
    """One machine.

    Parameters
    ----------
    number : int
        Its number, from 1; 0 when it has no part in a store.
    shard : Shard or None
        Its rows are computed with as they are, never copied.
    columns : int
        Of the shard, r.
    dtype : dtype
        Of the shard.

    Attributes
    ----------
    emulation : Emulation or None
        Makes it as slow as it is to appear.
    faults : Faults
        What goes wrong with it, on order.
    """

    def __init__(self, number: int, shard: Shard | None, columns: int, dtype: DTypeLike) -> None:
        self.number = number
        self.emulation: Emulation | None = None
        self.faults = Faults()
        self._shard = shard
        self._rows = np.empty((0, columns), dtype) if shard is None else shard.rows
        self._forward = np.empty(0, dtype)
        self._adjoint = np.empty((columns, 1))
        self._partial = np.empty((columns, 1), dtype)
        self._intervals: tuple[tuple[int, int], ...] = ()
        self._loaded = True
        self.count = 0
        row_bytes = max(1, columns * self._rows.itemsize)
        self._slab = min(_MOST_ROWS, max(_FEWEST_ROWS, _SLAB_BYTES // row_bytes))

    def assign(self, intervals: tuple[tuple[int, int], ...]) -> None:
        """Take other rows than before: intervals ``start <= row < stop``, ascending."""
        self._intervals = intervals
        self.count = sum(stop - start for start, stop in intervals)
        self._loaded = False

    def load(self) -> Loaded:
        """Have the assigned rows ready; says what was read for the first time.

        Raises
        ------
        DamagedStoreError
            Rows differ from what was written.
        """
        if self._loaded or self._shard is None:
            return Loaded()
        loaded = self._shard.load(self._intervals)
        self._loaded = True
        return loaded

    def values(self, product: Product) -> NDArray[Any]:
        """Answers to the last step.

        Returns
        -------
        (count * k,) ndarray
            For X W: in the order of the rows, in the dtype of the shard.
        (r * k,) ndarray of float64
            For X' V: this machine's part of the sum.
        """
        if product.adjoint:
            return self._adjoint.reshape(-1)
        return self._forward[: self.count * product.columns]

    @property
    def shard_file(self) -> str:
        """The file that it reads; empty when it has no part in a store."""
        return "" if self._shard is None else str(self._shard.path)

    def measure_rate(self) -> float:
        """Rows per second at which this process multiplies its shard, for emulation."""
        if self._shard is None:
            return 0.0
        some = max(1, min(len(self._rows), _MEASURED_BYTES // self._rows[0].nbytes))
        self._shard.load([(0, some)])
        return measure_rate(self._rows[:some])

    def prepare(self, product: Product) -> None:
        """Have arrays for the answers to this product; sums start at zero."""
        if not product.adjoint:
            if self._forward.size < (size := self.count * product.columns):
                self._forward = np.empty(size, self._forward.dtype)
            return
        if self._adjoint.shape[1] != product.columns:
            shape = (self._adjoint.shape[0], product.columns)
            self._adjoint, self._partial = np.empty(shape), np.empty(shape, self._partial.dtype)
        self._adjoint.fill(0)

    def compute(self, product: Product, values: NDArray[Any], step: int) -> float:
        """Multiply the assigned rows, into `values`; returns the seconds it took.

        Parameters
        ----------
        product : Product
        values : ndarray
            W, shape (k, r), or for the adjoint what to multiply each assigned row with,
            shape (count, k); in the dtype of the shard.
        step : int
        """
        if not self.count:
            return 0.0
        if self._shard is None:
            raise MachineError(f"machine {self.number} has no shard, and was asked for rows")
        self.faults.before(self.number, step)
        begin = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):  # the master looks at the answers
            if product.adjoint:
                self._multiply_transposed(values)
            elif product.columns == 1:
                self._multiply(values[0])
            else:
                self._multiply_columns(values)
        if self.emulation is not None:
            least = self.count / self.emulation.rate(self.number, step)
            time.sleep(max(0.0, begin + least - time.perf_counter()))
        seconds = time.perf_counter() - begin
        return self.faults.after(self.number, step, self.values(product), seconds)

    def _multiply(self, w: NDArray[Any]) -> None:
        position = 0
        for start, stop in self._intervals:
            end = position + stop - start
            np.dot(self._rows[start:stop], w, out=self._forward[position:end])
            position = end

    def _multiply_columns(self, W: NDArray[Any]) -> None:
        columns = len(W)
        out = self._forward[: self.count * columns].reshape(self.count, columns)
        for position, rows in self._slabs():
            np.dot(rows, W.T, out=out[position : position + len(rows)])

    def _multiply_transposed(self, U: NDArray[Any]) -> None:
        """Sums of slabs are added up in double precision, whatever the shard is."""
        columns = U.shape[1]
        for position, rows in self._slabs():
            part = U[position : position + len(rows)]
            if columns == 1:
                np.dot(part[:, 0], rows, out=self._partial[:, 0])
            else:
                np.dot(rows.T, part, out=self._partial)
            self._adjoint += self._partial

    def _slabs(self) -> Any:
        """The assigned rows, some at a time: where they stand among them, and the rows."""
        position = 0
        for start, stop in self._intervals:
            for first in range(start, stop, self._slab):
                rows = self._rows[first : min(stop, first + self._slab)]
                yield position, rows
                position += len(rows)
