"""Where what machines get and answer lies on the master, and answers with their reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.wire.orders import Reported

_NUMBER = 8  # bytes of a number of a report
_REPORT = Reported.size()

Floats = NDArray[np.float64]


class Layout:
    """Of the steps of an assignment with so many columns: one part for each rank.

    Parameters
    ----------
    rows : (P,) ndarray of int
        Of each rank.
    columns : int
        Of W or V, k.
    dtype : numpy.dtype
        Of what is shared, and of answers to X W.

    Attributes
    ----------
    parts : tuple of (P,) ndarray of int
        How many numbers each rank gets or answers, and where they begin.
    """

    def __init__(self, rows: NDArray[np.int64], columns: int, dtype: np.dtype[Any]) -> None:
        self._numbers = (rows * columns).tolist()
        self._columns, self._dtype = columns, dtype
        self.parts = _counted(self._numbers)
        self._gathered: dict[bool, Gathered] = {}

    def gathered(self, adjoint: bool, columns: int) -> Gathered:
        """For answers that come with their reports: always the same.

        For X' V each machine that has rows answers with r * k numbers of float64, r being
        `columns`.
        """
        if adjoint not in self._gathered:
            numbers, dtype = self._numbers, self._dtype
            if adjoint:
                dtype = np.dtype(np.float64)
                numbers = [columns * self._columns if n else 0 for n in numbers]
            self._gathered[adjoint] = Gathered(numbers, dtype)
        return self._gathered[adjoint]


class Gathered:
    """Answers with their reports: of each rank but the master's one after the other.

    Parameters
    ----------
    numbers : list of int
        Of each rank's answers.
    dtype : numpy.dtype
        Of these.

    Attributes
    ----------
    parts : list
        The buffer, and how many numbers of float64 each rank sends, and where they begin.
    """

    def __init__(self, numbers: list[int], dtype: np.dtype[Any]) -> None:
        counted = _counted([0, *(packed_size(n, dtype) for n in numbers[1:])])
        self._room = np.empty(int(counted[0].sum()))
        self.parts = [self._room, counted]
        self._reports = counted[1][1:, np.newaxis] + np.arange(_REPORT)
        room = self._room.view(dtype)
        each = _NUMBER // dtype.itemsize
        starts = [(place + _REPORT) * each for place in counted[1].tolist()]
        self._answers = [
            room[start : start + count]
            for start, count in zip(starts, numbers, strict=True)
            if count
        ]

    def clear(self) -> None:
        """Have no answers and no reports: NaN in their places, which counts as failed."""
        self._room.fill(np.nan)
        if self._answers[0].itemsize != _NUMBER:
            for answer in self._answers:
                answer.fill(np.nan)

    def reports(self, out: Floats) -> None:
        """Copy the reports of ranks from 1 on."""
        np.take(self._room, self._reports, out=out, mode="clip")

    def one_after_the_other(self, out: NDArray[Any]) -> None:
        """Copy all answers."""
        np.concatenate(self._answers, out=out)

    def added_up(self, out: NDArray[Any]) -> None:
        """Add up the answers, in the order of ranks."""
        first, *others = self._answers
        out[:] = first
        for answer in others:
            out += answer


def packed_size(numbers: int, dtype: np.dtype[Any]) -> int:
    """Of a report and so many answers behind it, in numbers of float64."""
    return _REPORT + -(-numbers * dtype.itemsize // _NUMBER)


def _counted(numbers: list[int]) -> tuple[NDArray[np.intc], NDArray[np.intc]]:
    counts = np.array(numbers, dtype=np.intc)
    places = np.zeros_like(counts)
    np.cumsum(counts[:-1], out=places[1:])
    return counts, places
