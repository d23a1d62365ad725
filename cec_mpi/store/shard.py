"""Interface of shards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import count_rows

Holding = Literal["mmap", "ram"]
"""Whether rows are memory-mapped or copied into memory."""
Verification = Literal["first-read", "never"]
"""When rows are verified against their checksums."""
Precision = Literal["double", "shard"]
"""Whether products are computed in float64, or in the dtype of the shards."""
CPU = "cpu"
"""The device of shards in main memory, which NumPy multiplies."""
Intervals = Sequence[tuple[int, int]]
"""Pairs ``(start, stop)`` of the rows ``start <= row < stop`` of a shard, in ascending order."""


class LoadCost(NamedTuple):
    """Cost of reading rows for the first time.

    Attributes
    ----------
    seconds : float
    bytes : int
    """

    seconds: float = 0.0
    bytes: int = 0


NOTHING_LOADED = LoadCost()
"""The result of `Shard.load` if no row was read, as in nearly every step."""


class Shard(Protocol):
    """The shard of one machine, which multiplies any of its R rows.

    A subclass must define the two products. A subclass whose rows come from a file or another shard
    must also define `load` and `has_changed`.

    Attributes
    ----------
    path : Path
        File of the rows.
    row_count : int
        Number of rows, R.
    """

    path: Path
    row_count: int

    @abstractmethod
    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """Multiply these rows by each of k vectors.

        Parameters
        ----------
        W : (k, r) ndarray
            In the dtype of the shard or a wider one; products are computed in the dtype of W.
        intervals : sequence of (int, int)
            Intervals of m rows in total.
        out : (m, k) ndarray
            Receives the products, in the dtype of W.
        """

    @abstractmethod
    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """Multiply the transpose of these rows by k vectors.

        Parameters
        ----------
        U : (m, k) ndarray
            In the dtype of the shard or a wider one; products are computed in the dtype of U.
        intervals : sequence of (int, int)
            Intervals of m rows in total.
        out : (r, k) ndarray of float64
            Receives the sums.
        """

    def sample_rows(self, size: int, row_bytes: int) -> tuple[int, int, int]:
        """Return rows for measuring the speed: start, stop, and the bytes of a row.

        Parameters
        ----------
        size : int
            Approximate size of these rows in bytes.
        row_bytes : int
            Bytes of a dense row.
        """
        return 0, max(1, min(self.row_count, size // row_bytes)), row_bytes

    def cost(self, intervals: Intervals) -> float:
        """Return the cost of these rows, in units of the mean cost of a row."""
        return count_rows(intervals)

    def load(self, intervals: Intervals) -> LoadCost:
        """Load rows that are not loaded or have changed, and return the cost of reading them.

        Raises
        ------
        DamagedStoreError
            Rows were altered. The message names them.
        """
        return NOTHING_LOADED

    def warm_up(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """Prepare for a product, so that the first one takes no longer than later ones.

        Parameters
        ----------
        adjoint : bool
        vectors : ndarray
            W or U of the product.
        intervals : sequence of (int, int)

        Returns
        -------
        float
            Seconds of a product that do not depend on the number of rows.
        """
        return 0.0

    def has_changed(self) -> bool:
        """Return whether loaded rows may have changed; `load` then checks them again."""
        return False
