"""Which machines take over shards of machines that are away, so that a step ends soonest."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cec_mpi.core.plan.placement import Placement
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

_NEAR = 1e-12  # by this much the time that is found may be longer than the least one
_ROUNDED = 1 + 1e-9  # all that can be done is done in this time, whatever is rounded


class Candidate(NamedTuple):
    """A machine that can take over shards.

    Attributes
    ----------
    able : sequence of int
        Shards that it can read, and that no available machine has.
    held : int
        Number of shards with which it computes.
    room : int
        Number of further shards that it can hold.
    speed : float
        Rows per second.
    reading : float
        Seconds to read a shard.
    """

    able: Sequence[int]
    held: int
    room: int
    speed: float
    reading: float

    def done(self, more: int, time: float, rows: int) -> float:
        """Return the rows that it computes in this time if it reads `more` shards first."""
        computing = max(0.0, time - more * self.reading)
        return min(self.speed * computing, (self.held + more) * rows)

    def gain(self, has: int, time: float, rows: int) -> float:
        """Return the additional rows with one more shard; 0 if it has no room."""
        if has >= min(self.room, len(self.able)):
            return 0.0
        return self.done(has + 1, time, rows) - self.done(has, time, rows)


def shares_of(
    placement: Placement,
    able: Mapping[int, Sequence[int]],
    recovery: int,
    spare: int,
    rates: Sequence[float],
    rows: int,
    seconds: Sequence[float],
    room: Sequence[int],
) -> dict[int, list[int]]:
    """Choose the shards that each available machine takes over, so that a step ends soonest.

    Parameters
    ----------
    placement : Placement
    able : mapping of int to sequence of int
        For each available machine the shards that it can read and that no machine has, ascending.
    recovery : int
        Shards that a step needs, L.
    spare : int
        S: a step must be possible without any S of these machines.
    rates : (M,) sequence of float
        Rows per second of each machine.
    rows : int
        Rows per shard, R.
    seconds : (M,) sequence of float
        That each machine takes to read a shard.
    room : (M,) sequence of int
        Shards that each machine can take over.

    Returns
    -------
    dict of int to list of int
        Machines that take over nothing are left out.

    Raises
    ------
    InfeasibleError
        The machines have no room for enough shards, or cannot read them.

    Notes
    -----
    A step is possible without any S machines if and only if, for some b, the machines have
    ``L + S b`` shards when at most b of each count. The smallest b for which machines can take
    over enough is chosen: it needs the fewest shards.

    Examples
    --------
    Three of six machines with a shard each are left, L = 4, and any of them may be lost:

    >>> able = dict.fromkeys((1, 2, 3), (4, 5, 6))
    >>> given = [1.0] * 6, 100, [1.0] * 6, [5] * 6
    >>> shares_of(Placement.plain(6), able, 4, 1, *given)
    {1: [4], 2: [5], 3: [6]}
    """
    there = placement.among(tuple(able))
    held = {n: len(there.asked(n)) for n in able}
    for most in range(1, placement.shards + 1) if spare else (placement.shards,):
        candidates = {
            n: Candidate(
                shards,
                min(held[n], most),
                max(0, min(room[n - 1], most - held[n])),
                rates[n - 1],
                seconds[n - 1],
            )
            for n, shards in able.items()
        }
        taken = adopt(candidates, recovery + spare * most, rows)
        if taken is not None:
            return {n: shards for n, shards in taken.items() if shards}
    raise InfeasibleError(
        f"{plural(len(able), 'machine')} with {plural(sum(held.values()), 'shard')} cannot take "
        f"over enough shards: each row needs {recovery}"
        + (f" without any {plural(spare, 'machine')}" if spare else "")
    )


def adopt(
    candidates: Mapping[int, Candidate], copies: int, rows: int
) -> dict[int, list[int]] | None:
    """Choose the shards that each machine takes over to compute each row with `copies` shards.

    Returns None if they cannot take over as many.

    Notes
    -----
    A machine with c shards that reads a more begins to compute after a q seconds, and in the time
    T computes ``min(s (T - a q), (c + a) R)`` rows. That is concave in a, and sets of shards that
    can be given to machines are independent sets of a transversal matroid. So in a given time
    most is done, by all together, if shards go one by one to the machine that gains most by one,
    as long as all can still be matched. The least time is found by halving.

    Examples
    --------
    A machine with 2 shards and L = 4; to read a shard takes as long as to compute it:

    >>> adopt({3: Candidate((1, 2, 3, 4), 2, 6, 10.0, 10.0)}, 4, 100)
    {3: [1, 2]}
    """
    shards = set[int]().union(*(each.able for each in candidates.values()))
    low, high = 0.0, 0.0
    for each in candidates.values():
        more = min(each.room, len(each.able))
        high += more * each.reading + (each.held + more) * rows / each.speed
    high *= _ROUNDED
    taken = _taken(candidates, high, len(shards), copies * rows, rows)
    while taken is not None and high - low > _NEAR * high:
        middle = (low + high) / 2
        sooner = _taken(candidates, middle, len(shards), copies * rows, rows)
        if sooner is None:
            low = middle
        else:
            high, taken = middle, sooner
    return taken


def _taken(
    candidates: Mapping[int, Candidate], time: float, away: int, work: int, rows: int
) -> dict[int, list[int]] | None:
    """Return the shards that each takes over to compute `work` rows in time; None if impossible."""
    counts, owner = dict.fromkeys(candidates, 0), dict[int, int]()
    done = sum(each.done(0, time, rows) for each in candidates.values())
    queue = [(-gain, n) for n, each in candidates.items() if (gain := each.gain(0, time, rows)) > 0]
    heapq.heapify(queue)
    while queue and len(owner) < away and done < work:
        gain, n = heapq.heappop(queue)
        if not _matched(candidates, owner, n):
            continue
        done -= gain
        counts[n] += 1
        if (more := candidates[n].gain(counts[n], time, rows)) > 0:
            heapq.heappush(queue, (-more, n))
    if done < work:
        return None
    found: dict[int, list[int]] = {n: [] for n in candidates}
    for shard in sorted(owner):
        found[owner[shard]].append(shard)
    return found


def _matched(candidates: Mapping[int, Candidate], owner: dict[int, int], machine: int) -> bool:
    """Give a machine one more shard; others may change theirs (an augmenting path)."""
    wanted_by: dict[int, int] = {}
    gives = {machine: 0}  # the shard that each machine on the way would give away
    for n in (ways := [machine]):
        able = candidates[n].able
        free = next((shard for shard in able if shard not in owner), None)
        if free is not None:
            owner[free] = n
            while n != machine:
                shard = gives[n]
                owner[shard] = n = wanted_by[shard]
            return True
        for shard in able:
            if owner[shard] not in gives:
                gives[owner[shard]] = shard
                wanted_by[shard] = n
                ways.append(owner[shard])
    return False
