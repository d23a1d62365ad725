"""A machine that computes few rows, and takes as long as those that they stand for."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike, NDArray

from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.product import Product
from cec_mpi.store.shard import Shard


class SimulatedMachine(Machine):
    """A machine whose times are those of its emulated speed.

    Parameters
    ----------
    number, shard, columns, arithmetic
        See `Machine`.
    tall : float
        Rows that a row stands for.
    call : float
        Seconds of a product, whatever its rows.
    """

    def __init__(
        self,
        number: int,
        shard: Shard | None,
        columns: int,
        arithmetic: DTypeLike,
        tall: float,
        call: float,
    ) -> None:
        super().__init__(number, shard, columns, arithmetic)
        self._tall, self._call = tall, call

    def compute(self, product: Product, values: NDArray[Any], step: int) -> float:
        """See `Machine.compute`; nothing is waited for."""
        shard = self._shard
        if not self.count or shard is None or self.emulation is None:
            return 0.0
        self._multiply(shard, product, values)
        seconds = self._call + self.count * self._tall / self.emulation.rate(self.number, step)
        if self.faults:
            given = self.number, step, self._answers, seconds
            seconds = self.faults.after(*given, sleep=lambda seconds: None)
        return seconds
