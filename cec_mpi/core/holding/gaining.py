"""Which machines would be done sooner, if those that are fast had shards of others, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.load import check_shards, least_time
from cec_mpi.core.holding.shared import least_shared_time
from cec_mpi.core.plan.load import check_speeds

_ROUNDED = 1 - 1e-9
_NEAR = 1.01  # times the least time is near enough
_WORTH = 0.99  # times the makespan is worth a further shard
_FURTHER = 32  # shards that are tried beyond those that are needed


class Gain(NamedTuple):
    """Shards that machines would have, and what that would be worth.

    Attributes
    ----------
    taken : dict of int to tuple of int
        By machine, those that it does not hold yet.
    before, after : float
        The best makespans, in shards per unit of speed.
    """

    taken: dict[int, tuple[int, ...]]
    before: float
    after: float


def gain_of(
    holding: Holding,
    available: Sequence[int],
    speeds: Sequence[float],
    recovery: int,
    shards: int,
    room: Sequence[int],
) -> Gain:
    """What fast machines would have to hold so that all are done at once, as far as they can.

    Parameters
    ----------
    holding : Holding
        Several machines may hold a shard.
    available : sequence of int
        Numbers of machines, ascending.
    speeds : (M,) sequence of float
        Of every machine.
    recovery : int
        Shards that each row needs, L.
    shards : int
        Of the store, N.
    room : (M,) sequence of int
        Shards that each machine can take over.

    Returns
    -------
    Gain

    Raises
    ------
    InputError
        A speed cannot be.
    InfeasibleError
        They have fewer than L shards.

    Notes
    -----
    With room r the best time is the least T with ``sum of min(s T, (c + r) R) >= L R``, if there
    are enough different shards. In it a machine computes ``s T`` rows, for which it needs
    ``s T / R`` shards. What it lacks it takes from those that nobody holds who is there, then from
    the slowest machines.

    Examples
    --------
    >>> gain_of(Holding.consecutive([1] * 6), range(1, 7), (1, 1, 1, 1, 1, 20), 4, 6, [5] * 6)
    Gain(taken={6: (1, 2, 3)}, before=0.6, after=0.16)
    """
    everyone = check_speeds(speeds)
    machines = tuple(available)
    present = everyone[np.array(machines) - 1]
    held = holding.among(machines)
    check_shards(len(machines), int(held.firsts().sum()), recovery)
    before = least_shared_time(held, present, recovery)
    most = np.minimum(held.counts + np.array(room)[np.array(machines) - 1], shards)
    least = least_time(present, most.astype(np.float64), recovery)
    used = dict.fromkeys(range(1, shards + 1), 0.0)  # speed of those who have it
    for shard, at in zip(held.shards.tolist(), held.machines.tolist(), strict=True):
        used[shard] += float(present[at])
    taken: dict[int, tuple[int, ...]] = {}
    best = Gain({}, before, before)
    fastest = np.argsort(-present, kind="stable").tolist()
    wanted = [math.ceil(present[at] * least * _ROUNDED) - int(held.counts[at]) for at in fastest]
    further = [each for at in fastest[:_FURTHER] for each in [at] * int(most[at])]
    for at, more in [*zip(fastest, wanted, strict=True), *((at, 1) for at in further[:_FURTHER])]:
        machine = machines[at]
        mine = (*holding.of(machine), *taken.get(machine, ()))
        more = min(more, int(most[at]) - len(mine))
        if more < 1 or best.after <= _NEAR * least:
            continue
        others = sorted(used.keys() - set(mine), key=lambda n: (used[n], n))[:more]
        taken[machine] = tuple(sorted({*taken.get(machine, ()), *others}))
        for shard in others:
            used[shard] += float(present[at])
        after = _with(holding, taken, machines, present, recovery)
        if after < _WORTH * best.after:
            best = Gain(dict(taken), before, after)
    return best


def _with(
    holding: Holding,
    taken: dict[int, tuple[int, ...]],
    machines: Sequence[int],
    present: np.ndarray,
    recovery: int,
) -> float:
    """The best makespan where machines have these shards, too."""
    both = enumerate(holding.shards, start=1)
    more = Holding(tuple(tuple(sorted({*mine, *taken.get(n, ())})) for n, mine in both))
    return least_shared_time(more.among(machines), present, recovery)
