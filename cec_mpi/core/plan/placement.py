"""Which machine holds which shards, and how many each gets."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import ArrayLike

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

Intervals = tuple[tuple[int, int], ...]


class Placement:
    """Machines 1..M, each with some of the shards 1..N of a store, one behind the other.

    Machine 1 has the first shards, machine 2 those behind them, and so on; shards behind the last
    machine's are held by none. A machine may have taken over further ones, which lie behind its
    own: then several machines can have the same shard. A machine's rows are counted through all of
    its shards: with R rows a shard, those of its k-th, from 0, are ``k R <= row < (k + 1) R``.

    Parameters
    ----------
    counts : (M,) sequence of int
        Own shards of each machine, at least 1.
    shards : int
        Of the store, N.
    adopted : (M,) sequence of sequence of int, optional
        Shards that each has taken over, in the order in which they lie behind its own.
    available : sequence of int, optional
        Machines that are there: who of them a shard is asked from, is its `holder`. By default
        all are.
    speeds : (M,) sequence of float, optional
        Of each machine. With them, a shard that several machines have is asked from the one that
        is done first; without, from the machine whose own it is.

    Attributes
    ----------
    own : tuple of int
        Own shards of each machine.
    counts : tuple of int
        All shards of each machine.
    shards : int
    machines : int
        M.
    adopted : tuple of tuple of int
        Empty where no machine has taken over any.
    is_plain : bool
        Whether machine n has shard n alone, for all shards: the setting of the paper.

    Raises
    ------
    InputError
        A machine would have no shard, or there are not so many, or one would have a shard twice.

    Examples
    --------
    >>> placement = Placement((3, 1), 6)
    >>> placement.machines, placement.of(1), placement.of(2)
    (2, (1, 2, 3), (4,))
    >>> placement.holder(4), placement.holder(5)
    (2, 0)
    >>> placement.of_all((2,)), placement.count((1, 2))
    ((4,), 4)
    >>> without_1 = placement.adopting(2, (6, 1)).among((2,))
    >>> without_1.of(2), without_1.holder(1), without_1.holder(2)
    ((4, 6, 1), 2, 1)
    """

    def __init__(
        self,
        counts: Sequence[int],
        shards: int,
        adopted: Sequence[Sequence[int]] = (),
        available: Sequence[int] | None = None,
        speeds: Sequence[float] | None = None,
    ) -> None:
        self.own = tuple(counts)
        self.shards = shards
        self.machines = len(self.own)
        least, held = min(self.own, default=0), sum(self.own)
        if least < 1 or held > shards:
            raise InputError(
                f"{plural(held, 'shard')} on {plural(self.machines, 'machine')}, {least} or more "
                f"on each: expected at least 1 on each, and at most {shards} on all"
            )
        self.adopted = tuple(map(tuple, adopted)) if any(adopted) else ()
        self._available = None if available is None or not self.adopted else tuple(available)
        self._speeds = None if speeds is None or not self.adopted else tuple(speeds)
        self.is_plain = held == self.machines == shards and not self.adopted
        bounds = [0, *accumulate(self.own)]
        self._held = [tuple(range(a + 1, b + 1)) for a, b in pairwise(bounds)]
        if self.adopted:
            self._held = [a + b for a, b in zip(self._held, self.adopted, strict=True)]
            for machine, mine in enumerate(self._held, start=1):
                if len(set(mine)) < len(mine) or not 1 <= min(mine) <= max(mine) <= shards:
                    raise InputError(
                        f"machine {machine} has the shards {mine}: expected different "
                        f"shards from 1 to {shards}"
                    )
        self.counts = tuple(map(len, self._held))
        self._view: Placement | None = None

    @classmethod
    def plain(cls, shards: int) -> Placement:
        """Each machine has one shard."""
        return cls((1,) * shards, shards)

    def adopting(self, machine: int, shards: Iterable[int]) -> Placement:
        """A machine has these shards behind its own ones, and no other ones any more."""
        adopted = list(self.adopted or [()] * self.machines)
        adopted[machine - 1] = tuple(shards)
        return Placement(self.own, self.shards, adopted)

    def adopted_by(self, machine: int) -> tuple[int, ...]:
        """Shards that a machine has behind its own ones."""
        return self.adopted[machine - 1] if self.adopted else ()

    def among(self, available: Sequence[int], speeds: Sequence[float] | None = None) -> Placement:
        """The same, where these machines are there: each shard is asked from one of them.

        Without speeds from the machine whose own it is, if that is there or nobody else has it, or
        else from the first that has taken it over. With speeds those shards come first that
        fewest machines have, and each goes to the machine with the least ``(shards + 1) / speed``.

        Examples
        --------
        >>> both = Placement((1, 2), 3).adopting(1, (2, 3))
        >>> both.among((1, 2)).of_all((1, 2)), both.among((1, 2), (9, 1)).of_all((1, 2))
        ((1, 2, 3), (1, 2, 3))
        """
        if not self.adopted:
            return self
        if speeds is not None:
            return Placement(self.own, self.shards, self.adopted, available, speeds)
        if self._available == tuple(available) and self._speeds is None:
            return self
        if self._view is None or self._view._available != tuple(available):
            self._view = Placement(self.own, self.shards, self.adopted, available)
        return self._view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._told == other._told

    def __hash__(self) -> int:
        return hash(self._told)

    def __reduce__(self) -> tuple[object, ...]:
        return Placement, self._told

    def __repr__(self) -> str:
        shards = plural(sum(self.counts), "shard")
        return f"<Placement of {shards} on {plural(self.machines, 'machine')}>"

    @property
    def _told(self) -> tuple[object, ...]:
        return self.own, self.shards, self.adopted, self._available, self._speeds

    def of(self, machine: int) -> tuple[int, ...]:
        """The shards of a machine, in the order in which they lie."""
        return self._held[machine - 1]

    def asked(self, machine: int) -> tuple[int, ...]:
        """Those of a machine's shards that are asked from it, in the order in which they lie."""
        mine = self._held[machine - 1]
        if not self.adopted:
            return mine
        return tuple(shard for shard in mine if self.holder(shard) == machine)

    def holder(self, shard: int) -> int:
        """The machine that a shard is asked from; 0 where none has it."""
        return self._holders[shard - 1]

    def of_all(self, machines: Sequence[int]) -> tuple[int, ...]:
        """The shards of these machines, each once, machine after machine."""
        if self.is_plain:
            return tuple(machines)
        there = self.among(machines)
        return tuple(shard for n in machines for shard in there.asked(n))

    def count(self, machines: Sequence[int]) -> int:
        """How many different shards these machines have."""
        if self.is_plain:
            return len(machines)
        return len(self.of_all(machines))

    def largest(self, count: int) -> tuple[int, ...]:
        """So many machines that have the most shards, ascending; fewer where there are fewer."""
        return tuple(sorted(sorted(self._numbers, key=lambda n: -self.counts[n - 1])[:count]))

    def mates(self, shard: int) -> tuple[int, ...]:
        """All shards that are asked from the machine that one of them is; itself, if from none."""
        holder = self.holder(shard)
        return self.asked(holder) if holder else (shard,)

    def to_spare(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """How many of some machines, whichever they are, a step that needs L shards can miss.

        -1 where these have too few; by default it is of all machines. Shards that several have
        count for the one that they are asked from.

        Examples
        --------
        >>> Placement((3, 2, 1), 6).to_spare(3), Placement((3, 2, 1), 6).to_spare(4)
        (1, 0)
        """
        if self.is_plain:
            return max(-1, (self.machines if available is None else len(available)) - recovery)
        machines = self._numbers if available is None else available
        there = self.among(machines)
        return without_most([len(there.asked(n)) for n in machines], recovery)

    def rows(self, of_shards: ArrayLike) -> Ints:
        """From rows of each shard, (N,), to rows of each machine, (M,).

        Examples
        --------
        >>> Placement((3, 1), 6).rows([10, 10, 5, 2, 0, 0])
        array([25,  2])
        """
        rows = np.asarray(of_shards, dtype=np.int64)
        if self.is_plain:
            return rows
        found = np.zeros(self.machines + 1, dtype=np.int64)
        np.add.at(found, self._holders, rows)
        return found[1:]

    def stacked(self, of_shards: Mapping[int, Intervals], rows: int) -> dict[int, Intervals]:
        """From the intervals of each shard to those of the machine that it is asked from.

        Parameters
        ----------
        of_shards : mapping of int to tuple of (int, int)
            Ascending; machines without any of these shards are left out.
        rows : int
            Per shard, R.

        Examples
        --------
        >>> Placement((3, 1), 6).stacked({1: ((0, 10),), 2: ((0, 5),), 4: ((8, 10),)}, 10)
        {1: ((0, 15),), 2: ((8, 10),)}
        """
        if self.is_plain:
            return dict(of_shards)
        by_machine: dict[int, dict[int, Intervals]] = {}
        for shard in sorted(of_shards):
            by_machine.setdefault(self.holder(shard), {})[shard] = of_shards[shard]
        return {n: self.stack(n, mine, rows) for n, mine in by_machine.items()}

    def stack(self, machine: int, of_shards: Mapping[int, Intervals], rows: int) -> Intervals:
        """From the intervals of shards of one machine to those through all that it has."""
        found: list[tuple[int, int]] = []
        places = {shard: place for place, shard in enumerate(self.of(machine))}
        for place, shard in sorted((places[shard], shard) for shard in of_shards):
            before = place * rows
            for start, stop in of_shards[shard]:
                if found and found[-1][1] == before + start:
                    found[-1] = found[-1][0], before + stop
                else:
                    found.append((before + start, before + stop))
        return tuple(found)

    def split(
        self, machine: int, intervals: Intervals, rows: int
    ) -> Iterator[tuple[int, int, int]]:
        """From intervals of a machine to a shard, a start and a stop of each part of them.

        Examples
        --------
        >>> list(Placement((3, 1), 6).split(1, ((8, 15),), 10))
        [(1, 8, 10), (2, 0, 5)]
        """
        mine = self.of(machine)
        for start, stop in intervals:
            while start < stop:
                place, row = divmod(start, rows)
                end = min(stop, (place + 1) * rows)
                yield mine[place], row, row + end - start
                start = end

    @property
    def _numbers(self) -> range:
        return range(1, self.machines + 1)

    @cached_property
    def _holders(self) -> list[int]:
        """The machine that each shard is asked from; 0 where none has it."""
        there = self._available or self._numbers
        holders: list[list[int]] = [[] for _ in range(self.shards)]  # whose own it is comes first
        for n in there:
            for shard in self._held[n - 1][: self.own[n - 1]]:
                holders[shard - 1].append(n)
        for n in there if self.adopted else ():
            for shard in self.adopted[n - 1]:
                holders[shard - 1].append(n)
        if self._speeds is not None:
            _share_out(holders, self._speeds)
        for n in self._numbers if self.adopted else ():  # nobody is there who has them
            for shard in self._held[n - 1][: self.own[n - 1]]:
                holders[shard - 1].append(n)
        return [machines[0] if machines else 0 for machines in holders]


def _share_out(holders: list[list[int]], speeds: Sequence[float]) -> None:
    """Leave one of the machines that have a shard: those shards first that fewest have."""
    counts = [0] * len(speeds)
    for machines in sorted(filter(None, holders), key=len):
        n = min(machines, key=lambda n: (counts[n - 1] + 1) / speeds[n - 1])
        counts[n - 1] += 1
        machines[:] = [n]


class Reach:
    """What machines could have of a store, if they took over what they have room for.

    Parameters
    ----------
    placement : Placement
        What they have.
    room : (M,) sequence of int
        Shards that each can have more.

    Attributes
    ----------
    machines : int
        M.
    is_plain : bool
        False: what machines need is counted in shards.

    Examples
    --------
    Any of three machines has room for two shards more, and L = 3:

    >>> reach = Reach(Placement.plain(3), (2, 2, 2))
    >>> reach.to_spare(3, (1, 2, 3)), reach.to_spare(3, (2,)), reach.to_spare(3, ())
    (2, 0, -1)
    """

    is_plain = False

    def __init__(self, placement: Placement, room: Sequence[int]) -> None:
        self.machines = placement.machines
        self._placement, self._room = placement, tuple(room)
        self._tried: dict[tuple[int, ...], int] = {}

    def to_spare(self, recovery: int, available: Sequence[int]) -> int:
        """As `Placement.to_spare`, with what they could take over."""
        placement = self._placement
        could = [placement.counts[n - 1] + self._room[n - 1] for n in available]
        spare = without_most([min(each, placement.shards) for each in could], recovery)
        most = self._tried.get(tuple(available), spare)
        return spare if spare <= most else max(most, placement.to_spare(recovery, available))

    def cannot(self, available: Sequence[int], spare: int) -> None:
        """It was tried in vain to have these machines able to miss so many of them."""
        tried = tuple(available)
        self._tried[tried] = min(spare - 1, self._tried.get(tried, spare))

    def largest(self, count: int) -> tuple[int, ...]:
        """So many machines that could have the most shards, ascending."""
        could = [a + b for a, b in zip(self._placement.counts, self._room, strict=True)]
        by_shards = sorted(range(1, self.machines + 1), key=lambda n: -could[n - 1])
        return tuple(sorted(by_shards[:count]))

    def count(self, machines: Sequence[int]) -> int:
        """As `Placement.count`: what they have."""
        return self._placement.count(machines)


def without_most(counts: Sequence[int], recovery: int) -> int:
    """How many of these, the largest first, can be left out of a sum of L; -1: it is less.

    Examples
    --------
    >>> without_most([1, 3, 2], 3), without_most([1, 3, 2], 7)
    (1, -1)
    """
    left, spare = sum(counts), -1
    for count in sorted(counts, reverse=True):
        if left < recovery:
            break
        spare, left = spare + 1, left - count
    return spare


def spread(
    shards: int,
    speeds: Sequence[float],
    recovery: int,
    most: Sequence[int] | None = None,
    memory: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Shards of each machine, in proportion to its speed.

    A machine is at its cap when it computes all rows of all of its shards, which takes it its
    shards over its speed. So each shard goes to the machine that would be at its cap first (ties:
    the fastest, then the first machine); each machine has one at least.

    Parameters
    ----------
    shards : int
        N.
    speeds : (M,) sequence of float
        Relative, positive and finite.
    recovery : int
        L: so many have to be placed.
    most : (M,) sequence of int, optional
        What each machine has room for; shards for which there is no room are left out.
    memory : (M,) sequence of int, optional
        So many are in the memory of each machine, which gets more only when all have as many.

    Returns
    -------
    (M,) tuple of int

    Raises
    ------
    InputError
        There are more machines than shards.
    InfeasibleError
        A machine has no room for one, or there is room for fewer than L.

    Examples
    --------
    >>> spread(24, [1, 1, 1, 1, 1, 20], 4)
    (1, 1, 1, 1, 1, 19)
    >>> spread(6, [1.0, 2.0], 4)
    (2, 4)
    >>> spread(6, [1.0, 2.0], 4, most=[2, 2])
    (2, 2)
    >>> spread(9, [1.0, 2.0], 4, memory=[6, 2])
    (6, 3)
    """
    rates = [float(speed) for speed in speeds]
    count = len(rates)
    if count > shards:
        raise InputError(
            f"{plural(count, 'machine')} for {plural(shards, 'shard')}: expected at most one "
            "machine for each shard"
        )
    room = [shards] * count if most is None else list(most)
    seen = [shards] * count if memory is None else list(memory)
    for n, one in enumerate(room, start=1):
        if one < 1:
            raise InfeasibleError(f"machine {n} has no room for one shard")
    if sum(room) < recovery:
        raise InfeasibleError(
            f"the machines have room for {plural(sum(room), 'shard')}: a step needs {recovery}"
        )
    found = [1] * count
    queue = [(seen[n] <= 1, 1 / rate, -rate, n) for n, rate in enumerate(rates) if room[n] > 1]
    heapq.heapify(queue)
    for _ in range(min(shards, sum(room)) - count):
        *_, n = heapq.heappop(queue)
        found[n] += 1
        if found[n] < room[n]:
            full = found[n] >= seen[n]
            heapq.heappush(queue, (full, found[n] / rates[n], -rates[n], n))
    return tuple(found)
