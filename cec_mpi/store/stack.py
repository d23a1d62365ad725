"""Several consecutive shards of one machine, used as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.shard import Intervals, Loaded, Mended, Shard

_Part = tuple[int, int, list[tuple[int, int]]]  # of a shard: its place, rows before, its intervals


class Stack(Shard):
    """Shards of one machine: shard k, counted from 0, has rows ``k R <= row < (k + 1) R``.

    Parameters
    ----------
    shards : sequence of Shard
        At least one, each with R rows.

    Attributes
    ----------
    path : Path
        File of the first shard.
    count : int
        Number of rows of all shards.
    shards : tuple of Shard
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        self._rows = self.shards[0].count
        self.path = self.shards[0].path
        self.count = self._rows * len(self.shards)
        self._last: tuple[Intervals, list[_Part]] = (), []
        self._sums = np.empty((0, 0))
        self._untold: list[Mended] = []
        self._most = 0.0  # error bound of what was mended

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of all shards."""
        return tuple(path for shard in self.shards for path in shard.paths)

    def beside(self, others: Sequence[Shard]) -> Shard:
        """These shards and others, as one."""
        return Stack([*self.shards, *others])

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """As `Shard.multiply`."""
        position = 0
        for place, count, mine in self._parts(intervals):
            self.shards[place].multiply(W, mine, out[position : position + count])
            position += count

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """As `Shard.multiply_transposed`."""
        parts = self._parts(intervals)
        if not parts:
            out.fill(0)
        position = 0
        for place, count, mine in parts:
            given = U[position : position + count]
            if not position:
                self.shards[place].multiply_transposed(given, mine, out)
            else:
                if self._sums.shape != out.shape:
                    self._sums = np.empty_like(out)
                self.shards[place].multiply_transposed(given, mine, self._sums)
                out += self._sums
            position += count

    def load(self, intervals: Intervals) -> Loaded:
        """As `Shard.load`, of each shard."""
        loaded = [self.shards[place].load(mine) for place, _, mine in self._parts(intervals)]
        return Loaded(
            sum(each.seconds for each in loaded),
            sum(each.bytes for each in loaded),
            any(each.replaced for each in loaded),
        )

    def changed(self) -> bool:
        """Whether a shard has changed; all are asked, because each notes what to check again."""
        found = False
        for each in self.shards:
            found = each.changed() or found
        return found

    def mended(self) -> Mended:
        """Return rows of one shard at a time, with the error bound of all."""
        for place, shard in enumerate(self.shards):
            one = shard.mended()
            self._most = max(self._most, one.error_bound)
            if one.rows:
                before = place * self._rows
                self._untold.append(Mended(one.rows, one.first + before, one.last + before))
        told = self._untold.pop(0) if self._untold else Mended()
        return told._replace(error_bound=self._most)

    def _parts(self, intervals: Intervals) -> list[_Part]:
        """The rows of each shard that has some; those of the last intervals are kept."""
        known, parts = self._last
        if known is intervals:
            return parts
        found: dict[int, _Part] = {}
        for start, stop in intervals:
            while start < stop:
                place, row = divmod(start, self._rows)
                end = min(stop, (place + 1) * self._rows)
                _, count, mine = found.get(place, (place, 0, []))
                mine.append((row, row + end - start))
                found[place] = place, count + end - start, mine
                start = end
        self._last = intervals, list(found.values())
        return self._last[1]
