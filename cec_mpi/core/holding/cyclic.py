"""Equal loads of all shards: what the cyclic assignment is for machines with several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.holding.holding import Held
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.plan.schemes import cyclic
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural


def in_turns(held: Held) -> Ints:
    """Shards in an order in which those of one machine are far from each other.

    Parameters
    ----------
    held : Held

    Returns
    -------
    (K,) ndarray of int64
        The j-th of a machine's c shards (from 0) lies at ``(j + 1/2) / c`` of the way; ties go to
        the machine that comes first.

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> in_turns(Holding.consecutive([1, 1, 3]).among((1, 2, 3)))
    array([3, 1, 2, 4, 5])
    """
    return held.shards[_order(held)]


def _order(held: Held) -> NDArray[np.intp]:
    ways = (2 * held.places + 1) / (2 * held.counts[held.machines])
    return ways.argsort(kind="stable")


def cyclic_type(held: Held, recovery: int, stragglers: int) -> int:
    """The smallest b such that no machine has more than b of ``L + S b`` neighbours in `in_turns`.

    Parameters
    ----------
    held : Held
    recovery : int
        L.
    stragglers : int
        S.

    Raises
    ------
    InfeasibleError
        There are fewer shards than that for each b.

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> held = Holding.consecutive([2, 2, 2]).among((1, 2, 3))
    >>> cyclic_type(held, 2, 1), cyclic_type(held, 4, 1)
    (1, 2)
    """
    most, around = int(held.counts.max()), held.shards.size
    if not stragglers:
        return most
    turns = np.empty_like(held.shards)
    turns[_order(held)] = np.arange(around)
    counts, firsts = held.counts[held.machines], np.arange(around) - held.places
    for b in range(1, most + 1):
        more = counts > b  # the b-th shard after one of these is another one of the same machine
        later = held.places[more] + b
        again = turns[firsts[more] + later % counts[more]] + later // counts[more] * around
        needed = recovery + stragglers * b
        if needed <= around and (again - turns[more] >= needed).all():
            return b
    raise InfeasibleError(
        f"{plural(held.counts.size, 'machine')} with {plural(around, 'shard')} available: the "
        f"cyclic scheme cannot keep {recovery} of a row's when any "
        f"{plural(stragglers, 'machine', 'is', 'are')} late or lost"
    )


def cyclic_over_shards(held: Held, copies: int, rows: int) -> Assignment:
    """The assignment of Yang et al. over shards, in the order of `in_turns`.

    Parameters
    ----------
    held : Held
        Shards of the available machines.
    copies : int
        Shards that each row needs.
    rows : int
        Rows per shard.

    Returns
    -------
    Assignment
        Whose machines are shards.

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> held = Holding.consecutive([1, 1, 2]).among((1, 2, 3))
    >>> cyclic_over_shards(held, 2, 8).blocks[0]
    Block(start=0, stop=2, machines=(1, 3))
    """
    order = in_turns(held)
    around = cyclic(range(1, order.size + 1), copies, rows)
    ascending = order.argsort()
    return Assignment(
        order[ascending].tolist(),
        around.loads[ascending],
        around.starts,
        around.stops,
        np.sort(order[around.machines - 1], axis=1),
    )
