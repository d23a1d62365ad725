"""Choice of the machines that hold each part, and its quality.

More distinct sets of holders balance the work better when machines leave, but make it likelier that
machines that leave at the same time hold all copies of some part. The sets are copysets (Cidon et
al., USENIX ATC 2013): neighbours in random orders of the machines hold the same parts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from math import comb, gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_speeds
from cec_mpi.core.replicas.work_groups import WorkGroups
from cec_mpi.errors import InputError
from cec_mpi.text import plural

ORDERS = 4
"""Default number of random orders of the machines."""
_MAX_EXHAUSTIVE, _SAMPLE_SIZE, _SIMULATED_STEPS = 20_000, 20_000, 200
_SEED = 2107
_SPEED_FACTOR = 2.0  # largest ratio between the simulated and the declared speed of a machine

Holders = tuple[tuple[int, ...], ...]
"""The machines of each part, ascending, from 1."""


def spread_copies(
    parts: int, speeds: Sequence[float], copies: int, orders: int = ORDERS, seed: int = 0
) -> Holders:
    """Choose the machines that hold each part; parts have about equal costs.

    Parameters
    ----------
    parts : int
    speeds : (N,) sequence of float
        Relative speed of each machine. The number of parts that a machine holds is proportional to
        its speed, up to all parts.
    copies : int
        Machines that hold each part, J.
    orders : int
        Random orders of the machines. With equal speeds each order adds N / J sets of holders.
    seed : int
        Seed of the random orders.

    Returns
    -------
    Holders

    Raises
    ------
    InputError
        There are fewer machines than copies, or an argument is not positive.

    Notes
    -----
    In an order, machine n covers a length of ``J s_n / sum(s)``, at most 1, of a line of length J.
    The machines at ``u, u + 1, .., u + J - 1`` hold a part. They are distinct, and evenly spaced u
    from 0 to 1 give each machine its share (systematic sampling). Lengths are integers, because a
    length rounded to more than 1 would be hit twice.

    Examples
    --------
    >>> spread_copies(4, [1, 1, 1, 1, 1, 1], 3, orders=1)
    ((1, 4, 6), (1, 4, 6), (2, 3, 5), (2, 3, 5))
    """
    lengths = _held_lengths(_as_integers(check_speeds(speeds)), copies)
    if parts < 1 or orders < 1:
        raise InputError(
            f"{plural(parts, 'part')} in {plural(orders, 'order')}: expected at least 1 of each"
        )
    random, unit, orders = np.random.default_rng(seed), sum(lengths) // copies, min(orders, parts)
    holders: list[tuple[int, ...]] = []
    for k in range(orders):
        order = random.permutation(len(lengths)).tolist()
        count = (k + 1) * parts // orders - k * parts // orders
        scale = 2 * count  # makes the midpoints of `count` equal intervals integers
        ends = list(accumulate(scale * lengths[machine] for machine in order))
        for first in range(unit, scale * unit, 2 * unit):
            points = range(first, ends[-1], scale * unit)
            holders.append(tuple(sorted(order[bisect_right(ends, point)] + 1 for point in points)))
    return tuple(holders)


def _as_integers(speeds: NDArray[np.float64]) -> list[int]:
    """Return speeds times a power of two that makes them integers."""
    ratios = [speed.as_integer_ratio() for speed in speeds.tolist()]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _held_lengths(speeds: list[int], copies: int) -> list[int]:
    """Return the shares of the parts that machines hold, as integers with sum J in some unit.

    Examples
    --------
    >>> _held_lengths([1, 1, 1, 9], 2)  # the last machine holds all parts, the others a third
    [1, 1, 1, 3]
    """
    if not 1 <= copies <= len(speeds):
        raise InputError(f"copies {copies}: expected from 1 to {len(speeds)}, the machines")
    free = set(range(len(speeds)))
    while True:
        rest = copies - len(speeds) + len(free)  # the other machines hold all parts
        unit = sum(speeds[machine] for machine in free)
        above = {machine for machine in free if rest * speeds[machine] > unit}
        if not above:
            break
        free -= above
    held = [rest * speed if machine in free else unit for machine, speed in enumerate(speeds)]
    common = gcd(unit, *held)
    return [length // common for length in held]


class PlacementQuality(NamedTuple):
    """Robustness and balance of a choice of holders.

    Attributes
    ----------
    holder_sets : int
        Number of distinct sets of holders.
    loss_probability : dict of int to float
        Probability that k random machines hold all copies of some part, by k.
    mean_ratio, max_ratio : float
        Mean and maximum, over simulated steps, of the makespan over that of machines that hold all
        parts. Speeds are up to twice or half of the declared ones.
    unavailable : int
        Unavailable machines of each simulated step: two, if each part has three holders.
    """

    holder_sets: int
    loss_probability: dict[int, float]
    mean_ratio: float
    max_ratio: float
    unavailable: int


def assess_placement(
    holders: Holders, speeds: Sequence[float], costs: Sequence[float]
) -> PlacementQuality:
    """Return the probability of losses with these holders, and the balance of the work.

    Parameters
    ----------
    holders : Holders
    speeds : (N,) sequence of float
        Declared speeds of the machines.
    costs : (P,) sequence of float
        Cost of each part.

    Examples
    --------
    >>> quality = assess_placement(((1, 2), (3, 4)), [1, 1, 1, 1], [5, 5])
    >>> quality.holder_sets, round(quality.loss_probability[2], 3), quality.loss_probability[3]
    (2, 0.333, 1.0)
    """
    machines, sets = len(speeds), set(holders)
    min_copies = min(map(len, sets))
    random = np.random.default_rng(_SEED)
    loss_probability = {
        lost: _loss_probability(sets, machines, lost, random)
        for lost in range(min_copies, min(min_copies + 3, machines + 1))
    }
    unavailable = min(2, min_copies - 1)
    ratios = [
        _makespan_ratio(holders, costs, speeds, unavailable, random)
        for _ in range(_SIMULATED_STEPS)
    ]
    mean, maximum = float(np.mean(ratios)), float(np.max(ratios))
    return PlacementQuality(len(sets), loss_probability, mean, maximum, unavailable)


def _loss_probability(
    sets: set[tuple[int, ...]], machines: int, lost: int, random: np.random.Generator
) -> float:
    """Return the probability that `lost` random machines include one of these sets."""
    member = np.zeros((len(sets), machines), np.int32)
    for row, machines_of_set in zip(member, sets, strict=True):
        row[np.array(machines_of_set) - 1] = 1
    if comb(machines, lost) <= _MAX_EXHAUSTIVE:
        samples = np.array(list(combinations(range(machines), lost)))
    else:
        all_machines = np.tile(np.arange(machines, dtype=np.int16), (_SAMPLE_SIZE, 1))
        samples = random.permuted(all_machines, axis=1)[:, :lost]
    sizes, count = member.sum(axis=1), 0.0
    for batch in np.array_split(samples, -(-len(samples) // 1000)):
        is_lost = np.zeros((machines, len(batch)), np.int32)
        is_lost[batch.T, np.arange(len(batch))] = 1
        count += float((member @ is_lost == sizes[:, None]).any(axis=0).sum())
    return count / len(samples)


def _makespan_ratio(
    holders: Holders,
    costs: Sequence[float],
    speeds: Sequence[float],
    unavailable: int,
    random: np.random.Generator,
) -> float:
    """Return the makespan over the ideal one, for random speeds and unavailable machines."""
    rates = check_speeds(speeds) * _SPEED_FACTOR ** random.uniform(-1, 1, len(speeds))
    lost = random.choice(len(speeds), unavailable, replace=False)
    available = np.setdiff1d(np.arange(len(speeds)), lost)
    sets, set_of_part = group_by_holders(holders, (available + 1).tolist())
    sums = np.bincount(set_of_part, costs, len(sets))
    time, _ = WorkGroups(sums, sets, available.size).minimise_makespan(rates[available])
    return time / (float(np.sum(costs)) / float(rates[available].sum()))


def group_by_holders(
    holders: Holders, available: Sequence[int]
) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """Group the parts by the available machines that hold them.

    Returns
    -------
    sets : list of tuple of int
        Distinct sets of available holders, as positions in `available`.
    set_of_part : (P,) ndarray of int64
        Index of the set of each part.

    Examples
    --------
    >>> group_by_holders(((1, 2), (2, 3), (1, 2)), (2, 3))
    ([(0,), (0, 1)], array([0, 1, 0]))
    """
    position = {machine: k for k, machine in enumerate(available)}
    positions = {
        machines: tuple(position[n] for n in machines if n in position) for machines in set(holders)
    }
    sets: dict[tuple[int, ...], int] = {}
    set_of_part = [sets.setdefault(positions[machines], len(sets)) for machines in holders]
    return list(sets), np.array(set_of_part)


def fatal_sets(holders: Holders, available: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the minimal sets of available machines that hold all copies of some part.

    A run on these machines fails if all machines of such a set are lost.

    Examples
    --------
    >>> fatal_sets(((1, 2, 3), (2, 3, 4), (3, 4, 5)), (1, 2, 3, 5))
    [(2, 3), (3, 5)]
    """
    up = set(available)
    candidates = sorted({tuple(n for n in machines if n in up) for machines in holders}, key=len)
    minimal: list[tuple[int, ...]] = []
    for machines in candidates:
        if not any(set(smaller) <= set(machines) for smaller in minimal):
            minimal.append(machines)
    return sorted(minimal)
