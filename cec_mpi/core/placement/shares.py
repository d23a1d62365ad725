"""Which machine takes over which shards, so that some machines can be missed afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cec_mpi.core.holding.adopting import adopt
from cec_mpi.core.placement.placement import Placement
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural


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
    """What each of some machines is to take over, so that a step is done first.

    Parameters
    ----------
    placement : Placement
    able : mapping of int to sequence of int
        Of each machine that is there, ascending: shards that none of them has, and that it can
        read.
    recovery : int
        Shards that a step needs, L.
    spare : int
        Machines, whichever they are, that are not to be needed for that.
    rates : (M,) sequence of float
        Rows per second of each machine.
    rows : int
        Per shard, R.
    seconds : (M,) sequence of float
        That each takes to read a shard.
    room : (M,) sequence of int
        Shards that each can take over.

    Returns
    -------
    dict of int to list of int
        Machines that take over nothing are left out.

    Raises
    ------
    InfeasibleError
        There is no room for as many, or nobody can read them.

    Examples
    --------
    Of six machines with a shard each, three are left, any of which is to be missed, and L = 4:

    >>> able = dict.fromkeys((1, 2, 3), (4, 5, 6))
    >>> given = [1.0] * 6, 100, [1.0] * 6, [5] * 6
    >>> shares_of(Placement.plain(6), able, 4, 1, *given)
    {1: [4], 2: [5], 3: [6]}
    """
    machines, there, total = tuple(able), placement.among(tuple(able)), placement.shards
    for count in range(recovery + spare, total + 1):
        for most in (total, (count - recovery) // spare) if spare else (total,):  # on each
            limits = [max(0, min(a, most - b)) for a, b in zip(room, placement.counts, strict=True)]
            try:
                taken = _shares(there, able, count, rates, rows, seconds, limits)
            except InfeasibleError:
                if not spare:
                    raise
                continue
            found = placement
            for n, shards in taken.items():
                found = found.adopting(n, (*found.adopted_by(n), *shards))
            if found.to_spare(recovery, machines) >= spare:
                return taken
    raise InfeasibleError(
        f"{plural(len(machines), 'machine')} cannot take over as many shards that {spare} of them "
        "can be missing"
    )


def _shares(
    placement: Placement,
    able: Mapping[int, Sequence[int]],
    count: int,
    rates: Sequence[float],
    rows: int,
    seconds: Sequence[float],
    room: list[int],
) -> dict[int, list[int]]:
    """So that all have so many shards: of those that each can read."""
    machines, away = tuple(able), sorted(set().union(*able.values()))
    while True:
        found = adopt(placement.asked, machines, rates, count, rows, away, seconds, room)
        taken: dict[int, list[int]] = {}
        given: set[int] = set()
        for n in sorted(machines, key=lambda n: len(able[n])):
            wanted = len(found.taken[n - 1])
            mine = [shard for shard in able[n] if shard not in given][:wanted]
            given.update(mine)
            if mine:
                taken[n] = mine
            if len(mine) < wanted:
                room[n - 1] = len(mine)
                break
        else:
            return taken
