"""The median of as many numbers as a run has steps, in memory that does not grow with them."""

from __future__ import annotations

import math
from array import array
from itertools import accumulate
from statistics import median

_EXACT = 10_000  # numbers that are kept as they are
_PER_OCTAVE = 128  # bins, after that,
_OCTAVES = 40  # to both sides of 1


class RunningMedian:
    """The median of seconds, or of ratios: exact of 10,000, and then within 0.3 %.

    More numbers are counted in bins, each 0.54 % wider than the last, in the middle of which
    their median is taken to be; those below 1e-12 and above 1e12 are taken for these. The order in
    which they come makes no difference.

    Examples
    --------
    >>> lengths = RunningMedian()
    >>> lengths.value
    >>> for length in (3.0, 1.0, 2.5):
    ...     lengths.take(length)
    >>> lengths.value
    2.5
    """

    def __init__(self) -> None:
        self._numbers = array("d")
        self._counts = array("q")

    def take(self, number: float) -> None:
        """Take one more; it is 0 or more, and finite."""
        if self._counts:
            self._counts[_bin_of(number)] += 1
            return
        self._numbers.append(number)
        if len(self._numbers) > _EXACT:
            self._counts = array("q", bytes(8 * 2 * _OCTAVES * _PER_OCTAVE))
            for kept in self._numbers:
                self._counts[_bin_of(kept)] += 1
            self._numbers = array("d")

    @property
    def value(self) -> float | None:
        """The median; None of nothing."""
        if self._counts:
            last = sum(self._counts) - 1
            return (self._ordered(last // 2) + self._ordered(last - last // 2)) / 2
        return median(self._numbers) if self._numbers else None

    def _ordered(self, place: int) -> float:
        """About the number that so many others come before."""
        before = accumulate(self._counts)
        which = next(which for which, count in enumerate(before) if count > place)
        return math.exp2((which + 0.5) / _PER_OCTAVE - _OCTAVES)


def _bin_of(number: float) -> int:
    least = 2.0**-_OCTAVES
    octaves = math.log2(min(max(number, least), 1 / least)) + _OCTAVES
    return min(int(octaves * _PER_OCTAVE), 2 * _OCTAVES * _PER_OCTAVE - 1)
