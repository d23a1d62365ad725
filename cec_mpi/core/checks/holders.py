"""Whose answers are: those of one machine may all be wrong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from cec_mpi.core.placement.placement import without_most

Shards = tuple[int, ...]


class Holders:
    """How many machines answers can do without, where machines have one shard each or several.

    Parameters
    ----------
    recovery : int
        Shards that a row needs, L.
    mates : callable, optional
        From a shard to all shards of the machine that has it; by default each is on its own.

    Attributes
    ----------
    are_alone : bool
        Whether each machine has one shard.

    Examples
    --------
    Of shards 1, 2 and 3 on one machine, and 4, 5 and 6 on others, with L = 2:

    >>> holders = Holders(2, lambda shard: (1, 2, 3) if shard < 4 else (shard,))
    >>> holders.to_spare((1, 2, 3)), holders.to_spare((1, 2, 4)), holders.to_spare((1, 4, 5))
    (0, 0, 1)
    >>> holders.further((1, 2), 1, (3, 4, 5, 6))
    (2, (4, 5, 6))
    """

    def __init__(self, recovery: int, mates: Callable[[int], Shards] | None = None) -> None:
        self._recovery = recovery
        self.are_alone = mates is None
        self.mates: Callable[[int], Shards] = mates or (lambda shard: (shard,))

    def of(self, shards: Iterable[int]) -> list[Shards]:
        """All shards of each machine that has one of these, in the order of machines."""
        return sorted({self.mates(shard) for shard in shards})

    def to_spare(self, shards: Collection[int]) -> int:
        """Without how many machines, whichever they are, L of these shards are left.

        -1 where there are fewer.
        """
        if self.are_alone:
            return max(-1, len(shards) - self._recovery)
        return without_most([*Counter(map(self.mates, shards)).values()], self._recovery)

    def are_enough(self, spare: int, *answers: Collection[int]) -> bool:
        """Whether without any so many machines L shards are left of these, which are different."""
        if sum(map(len, answers)) < self._recovery + spare:
            return False
        return self.are_alone or self.to_spare(list(chain(*answers))) >= spare

    def further(self, there: Sequence[int], spare: int, able: Shards) -> tuple[int, Shards]:
        """What these shards lack of being enough without any so many machines.

        Parameters
        ----------
        there : sequence of int
            Not enough.
        spare : int
            Machines.
        able : tuple of int
            Other shards.

        Returns
        -------
        needed : int
            So many further shards are enough, whichever they are of
        eligible : tuple of int
            these: all that are able, or not too many of one machine. Where they are fewer than
            `needed`, nothing is enough.

        Notes
        -----
        With at most b shards of each machine, but for those that are there already, the S machines
        with most of them take away ``U(b)``, and ``L + U(b)`` are enough. The smallest b with which
        there are as many needs the fewest; if none has as many, no choice of shards is enough:
        one that is can be levelled at the number of shards of its S-th machine.
        """
        if self.are_alone:
            return self._recovery + spare - len(there), able
        have, more = Counter(map(self.mates, there)), Counter(map(self.mates, able))
        for most in range(1, max((have + more).values(), default=0) + 1):
            room = {m: min(more[m], max(0, most - have[m])) for m in have.keys() | more.keys()}
            counts = sorted((have[m] + new for m, new in room.items()), reverse=True)
            needed = self._recovery + sum(counts[:spare]) - len(there)
            if needed <= sum(room.values()):
                break
        else:
            return len(able) + 1, able
        eligible = []
        for shard in able:
            mine = self.mates(shard)
            if room[mine]:
                room[mine] -= 1
                eligible.append(shard)
        return needed, tuple(eligible)
