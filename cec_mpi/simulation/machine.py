"""A machine that computes a few rows in the modelled time of the rows that they represent."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike, NDArray

from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.product import Product
from cec_mpi.store.shard import Shard


class SimulatedMachine(Machine):
    """A machine whose times follow from its emulated speed.

    Parameters
    ----------
    number, shard, columns, arithmetic
        See `Machine`.
    row_scale : float
        Number of rows that each simulated row represents.
    overhead : float
        Fixed seconds of each product.
    """

    def __init__(
        self,
        number: int,
        shard: Shard | None,
        columns: int,
        arithmetic: DTypeLike,
        row_scale: float,
        overhead: float,
    ) -> None:
        super().__init__(number, shard, columns, arithmetic)
        self._row_scale, self._overhead = row_scale, overhead

    def compute(self, product: Product, values: NDArray[Any], step: int) -> float:
        """See `Machine.compute`; return modelled seconds without waiting."""
        shard = self._shard
        if not self.row_count or shard is None or self.emulation is None:
            return 0.0
        self._multiply(shard, product, values)
        rate = self.emulation.rate(self.number, step)
        seconds = self._overhead + self.row_count * self._row_scale / rate
        if self.faults:
            seconds = self.faults.inject_into_answer(
                self.number, step, self._answers, seconds, sleep=lambda seconds: None
            )
        return seconds
