"""How many shards of a store each of some machines gets."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural


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
