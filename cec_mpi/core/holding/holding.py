"""Which machine holds which shards: a value that is checked once, when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.text import plural

_MOST_SHARDS = 2**31 - 1


class Held(NamedTuple):
    """Shards of some machines, one after the other in the order of the machines.

    Attributes
    ----------
    shards : (K,) ndarray of int64
    machines : (K,) ndarray of int64
        Which of these machines holds it: positions, from 0.
    places : (K,) ndarray of int64
        Where it stands among the shards of its machine, from 0.
    counts : (M,) ndarray of int64
        How many each machine has.
    """

    shards: NDArray[np.int64]
    machines: NDArray[np.int64]
    places: NDArray[np.int64]
    counts: NDArray[np.int64]

    def firsts(self) -> NDArray[np.bool_]:
        """Whether no machine before holds the shard: (K,), all True where none is held twice."""
        order = self.shards.argsort(kind="stable")
        shards = self.shards[order]
        first = np.ones(shards.size, dtype=bool)
        first[order[1:]] = shards[1:] != shards[:-1]
        return first

    def only(self, chosen: NDArray[np.bool_]) -> Held:
        """Some of these shards, (K,), on the machines that they are on."""
        machines = self.machines[chosen]
        counts = np.bincount(machines, minlength=self.counts.size)
        places = np.arange(machines.size) - (counts.cumsum() - counts)[machines]
        return Held(self.shards[chosen], machines, places, counts)


@dataclass(frozen=True)
class Holding:
    """The shards of each of the machines 1, 2, ...; both are counted from 1.

    Attributes
    ----------
    shards : tuple of tuple of int
        Numbers of the shards of each machine, ascending. A shard may be held by several
        machines, and a machine may hold none.

    Raises
    ------
    InputError
        Shards of a machine are not different, ascending numbers from 1.

    Examples
    --------
    >>> holding = Holding.consecutive([1, 1, 3])
    >>> holding.shards
    ((1,), (2,), (3, 4, 5))
    >>> holding.of(3), holding.among([1, 3]).shards
    ((3, 4, 5), array([1, 3, 4, 5]))
    """

    shards: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.shards:
            raise InputError("shards of no machine: expected those of at least 1")
        for machine, mine in enumerate(self.shards, start=1):
            wrong = mine and not 1 <= mine[0] <= mine[-1] <= _MOST_SHARDS
            if wrong or any(shard >= after for shard, after in pairwise(mine)):
                raise InputError(
                    f"machine {machine} holds the shards {mine}: expected different, ascending "
                    "numbers from 1"
                )

    @classmethod
    def consecutive(cls, counts: Sequence[int]) -> Holding:
        """So many shards for each machine: the first ones for machine 1, and so on.

        Raises
        ------
        InputError
            A machine has none.
        """
        for machine, count in enumerate(counts, start=1):
            if count < 1:
                raise InputError(
                    f"machine {machine} has {plural(count, 'shard')}: expected at least 1"
                )
        bounds = pairwise(accumulate(counts, initial=1))
        return cls(tuple(tuple(range(first, end)) for first, end in bounds))

    @property
    def machines(self) -> int:
        """How many machines there are."""
        return len(self.shards)

    def of(self, machine: int) -> tuple[int, ...]:
        """The shards of one machine."""
        return self.shards[machine - 1]

    def among(self, machines: Sequence[int]) -> Held:
        """The shards of some machines."""
        counts, firsts = self._bounds
        chosen = np.asarray(machines, dtype=np.int64) - 1
        mine = counts[chosen]
        places = np.arange(mine.sum()) - np.repeat(mine.cumsum() - mine, mine)
        shards = self._numbers[np.repeat(firsts[chosen], mine) + places]
        return Held(shards, np.repeat(np.arange(mine.size), mine), places, mine)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.array([shard for mine in self.shards for shard in mine], dtype=np.int64)

    @cached_property
    def _bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many shards each machine has, and where they begin in `_numbers`."""
        counts = np.array([len(mine) for mine in self.shards], dtype=np.int64)
        return counts, counts.cumsum() - counts
