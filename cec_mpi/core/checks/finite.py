"""Detection of answers with NaN or infinity.

Vectors are scaled so that no product overflows (`vectors`). So a machine whose answer is not finite
is faulty, unless another machine's answer for the same rows is not finite either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Intervals

_CACHE_BLOCK = 1 << 15  # entries


@dataclass(frozen=True)
class NonfiniteAnswer:
    """An answer with an entry that is not finite.

    Attributes
    ----------
    machine : int
    value : float
        The entry: NaN or infinity.
    row : int
        Row of the entry in the shard (X W) or in the sum (X' V).
    coincident_answer : NonfiniteAnswer or None
        An answer of another machine that is not finite in the same row.
    """

    machine: int
    value: float
    row: int
    coincident_answer: NonfiniteAnswer | None = None


@dataclass(frozen=True)
class _NonfiniteEntries:
    """The entries of an answer that are not finite; for X W only the first in each row."""

    machine: int
    intervals: Intervals
    positions: NDArray[np.int64]  # rows (X W) or flat indices (X' V), ascending, unique
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
    >>> checker = NonfiniteChecker(columns=1)
    >>> checker.check(1, ((0, 3),), np.array([1.0, 2.0, 3.0]))
    >>> checker.check(2, ((0, 3),), np.array([1.0, np.nan, 3.0]))
    NonfiniteAnswer(machine=2, value=nan, row=1, coincident_answer=None)
    >>> checker.check(3, ((1, 3),), np.array([np.inf, 3.0])).coincident_answer
    NonfiniteAnswer(machine=2, value=nan, row=1, coincident_answer=None)
    """

    def __init__(self, columns: int, adjoint: bool = False) -> None:
        self._columns = columns
        self._adjoint = adjoint
        self._nonfinite_entries: list[_NonfiniteEntries] = []

    def check(
        self, machine: int, intervals: Intervals, values: NDArray[np.floating]
    ) -> NonfiniteAnswer | None:
        """Return an entry of an answer that is not finite, or None.

        Parameters
        ----------
        machine : int
        intervals : tuple of (int, int)
            The answered rows ``start <= row < stop``, ascending.
        values : (count * k,) or (r * k,) ndarray
            The rows of X W in row-major order, or a term of X' V.

        Returns
        -------
        NonfiniteAnswer or None
            The first such entry, preferably in a row in which another answer is not finite either.
        """
        if is_finite(values):
            return None
        entry_indices = np.flatnonzero(~np.isfinite(values))
        positions = entry_indices
        if not self._adjoint:
            rows = np.concatenate([np.arange(start, stop) for start, stop in intervals])
            positions = rows[entry_indices // self._columns]
        positions, first = np.unique(positions, return_index=True)
        entries = _NonfiniteEntries(machine, intervals, positions, values[entry_indices[first]])
        self._nonfinite_entries.append(entries)
        for other in self._nonfinite_entries[:-1]:
            if other.machine != machine and _overlap(intervals, other.intervals):
                _, indices, other_indices = np.intersect1d(
                    positions, other.positions, assume_unique=True, return_indices=True
                )
                if indices.size:
                    other_answer = self._make_answer(other, other_indices[0])
                    return self._make_answer(entries, indices[0], other_answer)
        return self._make_answer(entries, 0)

    def _make_answer(
        self, entries: _NonfiniteEntries, index: int, other: NonfiniteAnswer | None = None
    ) -> NonfiniteAnswer:
        row = int(entries.positions[index]) // (self._columns if self._adjoint else 1)
        return NonfiniteAnswer(entries.machine, float(entries.values[index]), row, other)


def is_finite(values: NDArray[np.floating]) -> bool:
    """Return whether all entries of a vector are finite.

    Examples
    --------
    >>> is_finite(np.array([1.0, 2.0])), is_finite(np.array([1.0, np.inf]))
    (True, False)
    """
    for first in range(0, len(values), _CACHE_BLOCK):
        mask = np.isfinite(values[first : first + _CACHE_BLOCK])
        if not mask.item(mask.argmin()):  # faster than `all` for short vectors
            return False
    return True


def _overlap(intervals: Intervals, other_intervals: Intervals) -> bool:
    return any(a < stop and start < b for a, b in intervals for start, stop in other_intervals)
