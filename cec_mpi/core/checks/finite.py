"""Detection of answers with NaN or infinity.

Vectors are scaled so that no product overflows (`vectors`). So a machine whose answer is not finite
is faulty, unless another machine's answer to the same rows is not finite either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Intervals

_CACHE_BLOCK = 1 << 15  # entries checked at a time


@dataclass(frozen=True)
class NonfiniteAnswer:
    """An answer with an entry that is not finite.

    Attributes
    ----------
    machine : int
    value : float
        The entry: NaN or infinity.
    row : int
        Row of the entry: of the shard for X W, of the sum for X' V.
    other : NonfiniteAnswer or None
        An answer of another machine that is not finite in the same row.
    """

    machine: int
    value: float
    row: int
    other: NonfiniteAnswer | None = None


@dataclass(frozen=True)
class _NonfiniteEntries:
    """The positions at which an answer is not finite."""

    machine: int
    intervals: Intervals
    positions: NDArray[np.int64]  # ascending, unique
    values: NDArray[np.floating]


class NonfiniteChecker:
    """Checks the answers of a step for NaN and infinity.

    Parameters
    ----------
    columns : int
        Columns of W or V, k.
    adjoint : bool
        Whether answers are terms of X' V.

    Examples
    --------
    >>> step = NonfiniteChecker(columns=1)
    >>> step.check(1, ((0, 3),), np.array([1.0, 2.0, 3.0]))
    >>> step.check(2, ((0, 3),), np.array([1.0, np.nan, 3.0]))
    NonfiniteAnswer(machine=2, value=nan, row=1, other=None)
    >>> step.check(3, ((1, 3),), np.array([np.inf, 3.0])).other
    NonfiniteAnswer(machine=2, value=nan, row=1, other=None)
    """

    def __init__(self, columns: int, adjoint: bool = False) -> None:
        self._columns = columns
        self._adjoint = adjoint
        self._nonfinite: list[_NonfiniteEntries] = []

    def check(
        self, machine: int, intervals: Intervals, values: NDArray[np.floating]
    ) -> NonfiniteAnswer | None:
        """Return a description of the answer if it is not finite.

        Parameters
        ----------
        machine : int
        intervals : tuple of (int, int)
            Its rows ``start <= row < stop``, ascending.
        values : (count * k,) or (r * k,) ndarray
            The rows of X W in row-major order, or a term of X' V.

        Returns
        -------
        NonfiniteAnswer or None
            None if the answer is finite.
        """
        if is_finite(values):
            return None
        indices = np.flatnonzero(~np.isfinite(values))
        positions = indices
        if not self._adjoint:
            rows = np.concatenate([np.arange(start, stop) for start, stop in intervals])
            positions = rows[indices // self._columns]
        positions, first = np.unique(positions, return_index=True)
        entries = _NonfiniteEntries(machine, intervals, positions, values[indices[first]])
        self._nonfinite.append(entries)
        for other in self._nonfinite[:-1]:
            if other.machine != machine and _overlap(intervals, other.intervals):
                common, own, others = np.intersect1d(
                    positions, other.positions, assume_unique=True, return_indices=True
                )
                if common.size:
                    return self._make_answer(entries, own[0], self._make_answer(other, others[0]))
        return self._make_answer(entries, 0)

    def _make_answer(
        self, entries: _NonfiniteEntries, index: int, other: NonfiniteAnswer | None = None
    ) -> NonfiniteAnswer:
        row = int(entries.positions[index]) // (self._columns if self._adjoint else 1)
        return NonfiniteAnswer(entries.machine, float(entries.values[index]), row, other)


def is_finite(values: NDArray[np.floating]) -> bool:
    """Return whether no entry of a vector is NaN or infinite.

    Examples
    --------
    >>> is_finite(np.array([1.0, 2.0])), is_finite(np.array([1.0, np.inf]))
    (True, False)
    """
    for first in range(0, len(values), _CACHE_BLOCK):
        finite = np.isfinite(values[first : first + _CACHE_BLOCK])
        if not finite.item(finite.argmin()):  # faster than `all` for short vectors
            return False
    return True


def _overlap(intervals: Intervals, others: Intervals) -> bool:
    return any(a < stop and start < b for a, b in intervals for start, stop in others)
