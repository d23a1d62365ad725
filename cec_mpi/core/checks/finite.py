"""Answers with NaN or infinity.

Vectors are scaled so that no product overflows (`scaling`). So the machine of an answer that is not
finite is wrong, unless another machine's answer to the same rows is not finite either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Intervals

_CACHED = 1 << 15  # numbers that are checked at a time


@dataclass(frozen=True)
class NonfiniteAnswer:
    """An answer with a number that is not finite.

    Attributes
    ----------
    machine : int
    value : float
        The number: NaN or infinity.
    place : int
        Its place: the row of the shard for X W, the row of the sum for X' V.
    other : NonfiniteAnswer or None
        An answer of another machine that is not finite at the same place.
    """

    machine: int
    value: float
    place: int
    other: NonfiniteAnswer | None = None


@dataclass(frozen=True)
class _NonfiniteEntries:
    """The places at which an answer is not finite."""

    machine: int
    intervals: Intervals
    places: NDArray[np.int64]  # ascending, each once
    values: NDArray[np.floating]


class NonfiniteChecker:
    """The answers of one step that are not finite.

    Parameters
    ----------
    columns : int
        Of W or V, k.
    adjoint : bool
        Whether answers are parts of X' V.

    Examples
    --------
    >>> step = NonfiniteChecker(columns=1)
    >>> step.take(1, ((0, 3),), np.array([1.0, 2.0, 3.0]))
    >>> step.take(2, ((0, 3),), np.array([1.0, np.nan, 3.0]))
    NonfiniteAnswer(machine=2, value=nan, place=1, other=None)
    >>> step.take(3, ((1, 3),), np.array([np.inf, 3.0])).other
    NonfiniteAnswer(machine=2, value=nan, place=1, other=None)
    """

    def __init__(self, columns: int, adjoint: bool = False) -> None:
        self._columns = columns
        self._adjoint = adjoint
        self._nonfinite: list[_NonfiniteEntries] = []

    def take(
        self, machine: int, intervals: Intervals, values: NDArray[np.floating]
    ) -> NonfiniteAnswer | None:
        """Check an answer.

        Parameters
        ----------
        machine : int
        intervals : tuple of (int, int)
            Its rows ``start <= row < stop``, ascending.
        values : (count * k,) or (r * k,) ndarray
            For X W row after row, for X' V the sum.

        Returns
        -------
        Unusable or None
            None if the answer is finite.
        """
        if is_finite(values):
            return None
        where = np.flatnonzero(~np.isfinite(values))
        places = where
        if not self._adjoint:
            rows = np.concatenate([np.arange(start, stop) for start, stop in intervals])
            places = rows[where // self._columns]
        places, first = np.unique(places, return_index=True)
        seen = _NonfiniteEntries(machine, intervals, places, values[where[first]])
        self._nonfinite.append(seen)
        for other in self._nonfinite[:-1]:
            if other.machine != machine and _have_rows_in_common(intervals, other.intervals):
                common, own, others = np.intersect1d(
                    places, other.places, assume_unique=True, return_indices=True
                )
                if common.size:
                    return self._make_answer(seen, own[0], self._make_answer(other, others[0]))
        return self._make_answer(seen, 0)

    def _make_answer(
        self, seen: _NonfiniteEntries, index: int, other: NonfiniteAnswer | None = None
    ) -> NonfiniteAnswer:
        place = int(seen.places[index]) // (self._columns if self._adjoint else 1)
        return NonfiniteAnswer(seen.machine, float(seen.values[index]), place, other)


def is_finite(values: NDArray[np.floating]) -> bool:
    """Whether no number of a vector is NaN or infinite.

    Examples
    --------
    >>> is_finite(np.array([1.0, 2.0])), is_finite(np.array([1.0, np.inf]))
    (True, False)
    """
    parts = (values[first : first + _CACHED] for first in range(0, len(values), _CACHED))
    return all(np.isfinite(part).all() for part in parts)


def _have_rows_in_common(some: Intervals, others: Intervals) -> bool:
    return any(a < stop and start < b for a, b in some for start, stop in others)
