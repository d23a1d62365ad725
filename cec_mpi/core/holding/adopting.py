"""Which machines take over shards of those that are away, so that a step ends soonest."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.plan.load import check_copies, check_rows, check_speeds
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

_NEAR = 1e-12  # by this much the time that is found may be longer than the least one
_ROUNDED = 1 + 1e-9  # all that can be done is done in this time, whatever is rounded


class Adoption(NamedTuple):
    """Shards that machines take over.

    Attributes
    ----------
    taken : tuple of tuple of int
        By each of all machines, ascending; none where it takes over nothing.
    seconds : float
        Until a step can end, reading and computing.
    """

    taken: tuple[tuple[int, ...], ...]
    seconds: float

    def added_to(self, holding: Holding) -> Holding:
        """Who holds what then: machines that are away keep theirs."""
        both = zip(holding.shards, self.taken, strict=True)
        return Holding(tuple(tuple(sorted({*mine, *more})) for mine, more in both))


def adopt(
    holding: Holding,
    available: Sequence[int],
    speeds: Sequence[float],
    recovery: int,
    rows: int,
    away: Sequence[int],
    seconds: Sequence[float],
    room: Sequence[int],
) -> Adoption:
    """Have available machines take over shards that none of them holds.

    Parameters
    ----------
    holding : Holding
        No two available machines hold the same shard.
    available : sequence of int
        Numbers of machines, ascending.
    speeds : (M,) sequence of float
        Of every machine, in rows per second.
    recovery : int
        Shards that each row needs, L.
    rows : int
        Rows per shard, R.
    away : sequence of int
        Shards that can be taken over, which none of them holds.
    seconds : (M,) sequence of float
        That each machine takes to read a shard.
    room : (M,) sequence of int
        Shards that each machine can take over.

    Returns
    -------
    Adoption
        Nothing is taken over where that would not end the step earlier.

    Raises
    ------
    InputError
        A speed, or a time to read, cannot be.
    InfeasibleError
        With all that they have room for the machines have fewer than L shards.

    Notes
    -----
    A machine with c shards that reads a more begins to compute after a q, and in the time T has
    done ``min(s (T - a q), (c + a) R)`` rows. That is concave in a, so in a given time most is
    done, by all together, if shards that are away go one by one to the machine that does most
    more with it. The least time in which all do L R is found by halving.

    Examples
    --------
    Machines 1 and 2 are away, and L = 4; to read a shard takes as long as to compute it:

    >>> holding = Holding.consecutive([3, 1, 2])
    >>> speeds, seconds = (1, 1, 10), (10, 10, 10)
    >>> found = adopt(holding, (3,), speeds, 4, 100, (1, 2, 3, 4), seconds, (6, 6, 6))
    >>> found.taken, round(found.seconds, 6)
    (((), (), (1, 2)), 60.0)
    """
    check_speeds(speeds)
    check_rows(rows)
    for n, one in enumerate(seconds, start=1):
        if not 0 <= one < float("inf"):
            raise InputError(f"machine {n} reads a shard in {one} s: expected a time")
    held = [shard for n in available for shard in holding.of(n)]
    most = len(held) + min(len(away), sum(room[n - 1] for n in available))
    if most < recovery:
        raise InfeasibleError(
            f"{plural(len(available), 'machine', 'is', 'are')} available, with "
            f"{plural(len(held), 'shard')} and room for {most - len(held)} more: a step needs "
            f"{recovery}"
        )
    check_copies(most, recovery)
    machines = [
        _Machine(len(holding.of(n)), speeds[n - 1], seconds[n - 1], room[n - 1], rows)
        for n in available
    ]
    low, high = 0.0, _ROUNDED * sum(each.longest(len(away)) for each in machines)
    counts: list[int] | None = None
    while counts is None or high - low > _NEAR * high:
        middle = high if counts is None else (low + high) / 2
        found = _taken(machines, middle, len(away), recovery * rows)
        if found is None:
            low = middle
        else:
            high, counts = middle, found
    taken: list[tuple[int, ...]] = [()] * holding.machines
    left = tuple(away)
    for n, count in zip(available, counts, strict=True):
        taken[n - 1], left = tuple(left[:count]), left[count:]
    return Adoption(tuple(taken), high)


class _Machine(NamedTuple):
    """What a machine could do with more shards."""

    shards: int
    speed: float
    reading: float  # seconds, of a shard
    room: int
    rows: int

    def done(self, more: int, time: float) -> float:
        """Rows in this time, when so many shards are read first."""
        computing = max(0.0, time - more * self.reading)
        return min(self.speed * computing, (self.shards + more) * self.rows)

    def longest(self, away: int) -> float:
        """Until it has read and computed all that it could."""
        more = min(away, self.room)
        return more * self.reading + (self.shards + more) * self.rows / self.speed


def _taken(machines: Sequence[_Machine], time: float, away: int, work: int) -> list[int] | None:
    """Shards that each takes over so that so many rows are done in time; None if they are not."""
    counts = [0] * len(machines)
    done = sum(each.done(0, time) for each in machines)
    queue = [(-gain, k) for k in range(len(machines)) if (gain := _gain(machines[k], 0, time)) > 0]
    heapq.heapify(queue)
    while queue and away and done < work:
        gain, k = heapq.heappop(queue)
        done, away = done - gain, away - 1
        counts[k] += 1
        if (more := _gain(machines[k], counts[k], time)) > 0:
            heapq.heappush(queue, (-more, k))
    return counts if done >= work else None


def _gain(machine: _Machine, has: int, time: float) -> float:
    """Rows more with one shard more; none where there is no room."""
    if has >= machine.room:
        return 0.0
    return machine.done(has + 1, time) - machine.done(has, time)
