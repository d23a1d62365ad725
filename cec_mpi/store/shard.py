"""What a machine multiplies with: its shard, of whatever kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Holding = Literal["mmap", "ram"]
"""Rows in the page cache, or in memory."""
Verify = Literal["first-read", "never"]
"""When rows are checked against their checksums."""
Precision = Literal["double", "shard"]
"""What products are computed in: float64 whatever the shards are, or the dtype of the shards."""
Intervals = Sequence[tuple[int, int]]
"""Rows ``start <= row < stop`` of a shard, ascending."""


class Loaded(NamedTuple):
    """What reading rows for the first time took.

    Attributes
    ----------
    seconds : float
    bytes : int
    replaced : bool
        Some rows come from elsewhere than before.
    """

    seconds: float = 0.0
    bytes: int = 0
    replaced: bool = False


class Mended(NamedTuple):
    """Rows of a shard that were computed from others, for a run.

    Attributes
    ----------
    rows : int
        How many.
    first, last : int
        The first and the last of them.
    error_bound : float
        Of all that was computed so far, as in `Rebuilt`.
    """

    rows: int = 0
    first: int = 0
    last: int = 0
    error_bound: float = 0.0


NOTHING_LOADED, NOTHING_MENDED = Loaded(), Mended()
"""Of nearly every step."""


class Shard(Protocol):
    """The shard of one machine, which multiplies some of its R rows at a time.

    A kind of shard that inherits from this and is ready when it is made needs the two products
    alone. One whose rows come from a file, or from a shard inside it, has to `load` them, since
    that is where they are checked, and to say what has `changed` and what was `mended`.

    Attributes
    ----------
    path : Path
        The file that its rows are from.
    count : int
        Rows, R.
    """

    path: Path
    count: int

    @abstractmethod
    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """Multiply these rows with each of k vectors.

        Parameters
        ----------
        W : (k, r) ndarray
            In the dtype of the shard, or in a wider one, which products are then computed in.
        intervals : sequence of (int, int)
            Of m rows.
        out : (m, k) ndarray
            Receives the products, in the dtype of W.
        """

    @abstractmethod
    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """Multiply the transpose of these rows with k vectors.

        Parameters
        ----------
        U : (m, k) ndarray
            In the dtype of the shard, or in a wider one, which products are then computed in.
        intervals : sequence of (int, int)
            Of m rows.
        out : (r, k) ndarray of float64
            Receives the sums.
        """

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that its rows are from."""
        return (self.path,)

    def load(self, intervals: Intervals) -> Loaded:
        """Have these rows ready; says what was read for the first time, or again.

        Raises
        ------
        DamagedStoreError
            Rows differ from what was written: names them.
        """
        return NOTHING_LOADED

    def changed(self) -> bool:
        """Whether rows that were ready may be others now: `load` looks again."""
        return False

    def mended(self) -> Mended:
        """Rows that were computed from other shards since this was asked last."""
        return NOTHING_MENDED
