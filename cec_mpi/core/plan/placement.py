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
    """Which of the machines 1..M holds which of the shards 1..N of a store.

    Machine 1 has the first shards, machine 2 the next ones, and so on; no machine holds the shards
    after those of the last machine. A machine may have taken over further shards, which follow its
    own: then several machines can have the same shard. The rows of a machine are counted through
    all of its shards: with R rows a shard, those of its k-th, from 0, are ``k R <= row < (k + 1)
    R``.

    Parameters
    ----------
    counts : (M,) sequence of int
        Number of own shards of each machine, at least 1.
    shards : int
        Number of shards of the store, N.
    adopted : (M,) sequence of sequence of int, optional
        Shards that each machine has taken over, in the order in which they follow its own.
    available : sequence of int, optional
        The available machines, by default all. The `holder` of a shard is one of them.
    speeds : (M,) sequence of float, optional
        Speed of each machine. With speeds, the holder of a shard that several machines have is the
        one that finishes first; without, it is the machine to which the shard belongs.

    Attributes
    ----------
    own : tuple of int
        Number of own shards of each machine.
    counts : tuple of int
        Number of all shards of each machine.
    shards : int
    machines : int
        M.
    adopted : tuple of tuple of int
        Empty if no machine has taken over a shard.
    is_plain : bool
        Whether machine n has shard n alone, for all shards: the setting of the paper.
    bounds : tuple of int or None
        Where machines hold some rows alone: rows at which other machines begin to hold them.

    Raises
    ------
    InputError
        A machine has no shard or has a shard twice, or the store has too few shards.

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
        self.bounds: tuple[int, ...] | None = None

    @classmethod
    def plain(cls, shards: int) -> Placement:
        """Return the placement in which each machine has one shard."""
        return cls((1,) * shards, shards)

    def adopting(self, machine: int, shards: Iterable[int]) -> Placement:
        """Return the placement in which a machine has taken over exactly these shards."""
        adopted = list(self.adopted or [()] * self.machines)
        adopted[machine - 1] = tuple(shards)
        return Placement(self.own, self.shards, adopted)

    def adopted_by(self, machine: int) -> tuple[int, ...]:
        """Return the shards that a machine has taken over."""
        return self.adopted[machine - 1] if self.adopted else ()

    def among(self, available: Sequence[int], speeds: Sequence[float] | None = None) -> Placement:
        """Return the placement with these machines available: they are the holders of shards.

        Without speeds the holder is the machine to which the shard belongs, if it is available or
        no other has the shard, otherwise the first that has taken it over. With speeds, the shards
        that fewest machines have come first, and each goes to the machine with the least
        ``(shards + 1) / speed``.

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
        """Return the shards of a machine, in their order."""
        return self._held[machine - 1]

    def asked(self, machine: int) -> tuple[int, ...]:
        """Return the shards whose holder is this machine, in their order."""
        mine = self._held[machine - 1]
        if not self.adopted:
            return mine
        return tuple(shard for shard in mine if self.holder(shard) == machine)

    def holder(self, shard: int) -> int:
        """Return the machine that computes with a shard; 0 if no machine has it."""
        return self._holders[shard - 1]

    def of_all(self, machines: Sequence[int]) -> tuple[int, ...]:
        """Return the shards of these machines, each once, machine after machine."""
        if self.is_plain:
            return tuple(machines)
        there = self.among(machines)
        return tuple(shard for n in machines for shard in there.asked(n))

    def count(self, machines: Sequence[int]) -> int:
        """Return the number of different shards of these machines."""
        if self.is_plain:
            return len(machines)
        return len(self.of_all(machines))

    def largest(self, count: int) -> tuple[int, ...]:
        """Return the `count` machines with the most shards, ascending."""
        return tuple(sorted(sorted(self._numbers, key=lambda n: -self.counts[n - 1])[:count]))

    def mates(self, shard: int) -> tuple[int, ...]:
        """Return all shards with the same holder as this one."""
        holder = self.holder(shard)
        return self.asked(holder) if holder else (shard,)

    def to_spare(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """Return how many of these machines, whichever they are, a step can miss.

        A step needs L shards; the result is -1 if the machines, by default all, have fewer. A shard
        counts for its holder.

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

    def missing(self, needed: int, machines: Sequence[int]) -> int:
        """How many more shards these machines need to have so many different ones."""
        return max(0, needed - self.count(machines))

    def needs(self, recovery: int, machines: Sequence[int]) -> str:
        """Say what a step needs that these machines do not have, for messages."""
        return f"a step with this store needs {recovery}"

    def rows(self, of_shards: ArrayLike) -> Ints:
        """Turn rows of each shard, (N,), into rows of each machine, (M,).

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
        """Turn intervals of each shard into intervals of its holder.

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
        """Turn intervals of shards of one machine into intervals through all of its shards."""
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
        """Yield the shard, start and stop of each part of intervals of a machine.

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
        """The holder of each shard; 0 if no machine has it."""
        there = self._available or self._numbers
        holders: list[list[int]] = [[] for _ in range(self.shards)]  # own machines come first
        for n in there:
            for shard in self._held[n - 1][: self.own[n - 1]]:
                holders[shard - 1].append(n)
        for n in there if self.adopted else ():
            for shard in self.adopted[n - 1]:
                holders[shard - 1].append(n)
        if self._speeds is not None:
            _share_out(holders, self._speeds)
        for n in self._numbers if self.adopted else ():  # no available machine has them
            for shard in self._held[n - 1][: self.own[n - 1]]:
                holders[shard - 1].append(n)
        return [machines[0] if machines else 0 for machines in holders]


def _share_out(holders: list[list[int]], speeds: Sequence[float]) -> None:
    """Leave one machine for each shard; shards that fewest machines have come first."""
    counts = [0] * len(speeds)
    for machines in sorted(filter(None, holders), key=len):
        n = min(machines, key=lambda n: (counts[n - 1] + 1) / speeds[n - 1])
        counts[n - 1] += 1
        machines[:] = [n]


def without_most(counts: Sequence[int], recovery: int) -> int:
    """Return how many counts, the largest first, can be left out with L remaining; -1 if none.

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
    """Return the number of shards of each machine, in proportion to its speed.

    A machine that computes all rows of its shards takes shards / speed. Each shard goes to the
    machine for which this is smallest with the shard (ties: the fastest, then the first machine);
    each machine gets at least one shard.

    Parameters
    ----------
    shards : int
        N.
    speeds : (M,) sequence of float
        Relative, positive and finite.
    recovery : int
        L: at least L shards must be placed.
    most : (M,) sequence of int, optional
        Number of shards for which each machine has room; shards beyond that are not placed.
    memory : (M,) sequence of int, optional
        Number of shards that fit into the memory of each machine. A machine gets more only when all
        memories are full.

    Returns
    -------
    (M,) tuple of int

    Raises
    ------
    InputError
        There are more machines than shards.
    InfeasibleError
        A machine has no room for a shard, or all together have room for fewer than L.

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
