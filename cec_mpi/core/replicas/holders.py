"""Which machines hold which parts: spread over many sets of machines, or over few.

The more different sets of holders there are, the better work can be balanced when machines leave,
and the likelier it is that the machines that leave together hold all copies of some part. Sets are
made as copysets are (Cidon et al., USENIX ATC 2013): in each of some random orders of the machines,
those next to each other hold the same parts.
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
from cec_mpi.core.replicas.least import WorkGroups
from cec_mpi.errors import InputError
from cec_mpi.text import plural

ORDERS = 4
"""Random orders of the machines, where nobody says how many."""
_ALL_SETS, _DRAWS, _STEPS = 20_000, 20_000, 200
_SEED = 2107
_SPEED_FACTOR = 2.0  # as fast or as slow as it is declared, a machine may be

Holders = tuple[tuple[int, ...], ...]
"""The machines of each part, ascending, from 1."""


def spread_copies(
    parts: int, speeds: Sequence[float], copies: int, orders: int = ORDERS, seed: int = 0
) -> Holders:
    """Choose the machines that hold each of some parts of about the same cost.

    Parameters
    ----------
    parts : int
    speeds : (N,) sequence of float
        Relative speed of each machine: how many of the parts it holds is proportional to it,
        unless that would be more than all.
    copies : int
        Machines that hold each part, J.
    orders : int
        Random orders of the machines: with equal speeds each adds N / J sets of holders.
    seed : int
        Of these orders.

    Returns
    -------
    Holders

    Raises
    ------
    InputError
        There are fewer machines than copies, or a number is not positive.

    Notes
    -----
    In an order, each machine covers a length of ``J s_n / sum(s)``, at most 1, of a line of length
    J. The machines at ``u, u + 1, .., u + J - 1`` hold a part. These are different ones, and with u
    going evenly from 0 to 1 each machine has its share (systematic sampling). Lengths are integers,
    because a rounded length above 1 would be hit twice.

    Examples
    --------
    >>> spread_copies(4, [1, 1, 1, 1, 1, 1], 3, orders=1)
    ((1, 4, 6), (1, 4, 6), (2, 3, 5), (2, 3, 5))
    """
    lengths = _held_lengths(_as_integers(check_speeds(speeds)), copies)
    if parts < 1 or orders < 1:
        raise InputError(f"{plural(parts, 'part')} in {plural(orders, 'order')}: expected some")
    random, unit, orders = np.random.default_rng(seed), sum(lengths) // copies, min(orders, parts)
    found: list[tuple[int, ...]] = []
    for turn in range(orders):  # one after the other: equal holders have neighbouring parts
        order = random.permutation(len(lengths)).tolist()
        mine = (turn + 1) * parts // orders - turn * parts // orders
        ends = list(accumulate(2 * mine * lengths[machine] for machine in order))
        for first in range(unit, 2 * mine * unit, 2 * unit):  # 2 `mine` times the lengths
            points = range(first, ends[-1], 2 * mine * unit)
            found.append(tuple(sorted(order[bisect_right(ends, point)] + 1 for point in points)))
    return tuple(found)


def _as_integers(speeds: NDArray[np.float64]) -> list[int]:
    """Return speeds times a power of two that makes them integers."""
    ratios = [speed.as_integer_ratio() for speed in speeds.tolist()]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _held_lengths(speeds: list[int], copies: int) -> list[int]:
    """Return which share of the parts each machine holds, in a unit for all parts: J in all.

    Examples
    --------
    >>> _held_lengths([1, 1, 1, 9], 2)  # the last holds all parts, the others a third
    [1, 1, 1, 3]
    """
    if not 1 <= copies <= len(speeds):
        raise InputError(f"copies {copies}: expected from 1 to {len(speeds)}, one for each machine")
    free = set(range(len(speeds)))
    while True:
        rest = copies - len(speeds) + len(free)  # a machine that is not free holds all parts
        unit = sum(speeds[machine] for machine in free)
        above = {machine for machine in free if rest * speeds[machine] > unit}
        if not above:
            break
        free -= above
    held = [rest * speed if machine in free else unit for machine, speed in enumerate(speeds)]
    common = gcd(unit, *held)
    return [length // common for length in held]


class PlacementQuality(NamedTuple):
    """What a choice of holders comes to.

    Attributes
    ----------
    sets : int
        Different sets of machines that hold a part.
    lost : dict of int to float
        Of so many machines that leave at once, all of them equally likely: the probability that
        they hold all copies of some part.
    slower : float
        Mean makespan over that of machines which hold everything, with speeds up to twice or half
        of what was declared and two machines away.
    slowest : float
        The largest of these.
    away : int
        Machines that are away then: two, if each part has three holders.
    """

    sets: int
    lost: dict[int, float]
    slower: float
    slowest: float
    away: int


def assess_placement(
    holders: Holders, speeds: Sequence[float], costs: Sequence[float]
) -> PlacementQuality:
    """Return how likely losses are with these holders, and how well work is balanced.

    Parameters
    ----------
    holders : Holders
    speeds : (N,) sequence of float
        As machines were declared.
    costs : (P,) sequence of float
        Of the parts.

    Examples
    --------
    >>> spread = assess_placement(((1, 2), (3, 4)), [1, 1, 1, 1], [5, 5])
    >>> spread.sets, round(spread.lost[2], 3), spread.lost[3]
    (2, 0.333, 1.0)
    """
    machines, sets = len(speeds), set(holders)
    least = min(map(len, sets))
    random = np.random.default_rng(_SEED)
    lost = {
        gone: _loss_probability(sets, machines, gone, random)
        for gone in range(least, min(least + 3, machines + 1))
    }
    away = min(2, least - 1)
    ratios = [_makespan_ratio(holders, costs, speeds, away, random) for _ in range(_STEPS)]
    return PlacementQuality(len(sets), lost, float(np.mean(ratios)), float(np.max(ratios)), away)


def _loss_probability(
    sets: set[tuple[int, ...]], machines: int, gone: int, random: np.random.Generator
) -> float:
    """Probability that some set is among so many machines."""
    member = np.zeros((len(sets), machines), np.int32)
    for row, machines_of_set in zip(member, sets, strict=True):
        row[np.array(machines_of_set) - 1] = 1
    if comb(machines, gone) <= _ALL_SETS:
        drawn = np.array(list(combinations(range(machines), gone)))
    else:
        everyone = np.tile(np.arange(machines, dtype=np.int16), (_DRAWS, 1))
        drawn = random.permuted(everyone, axis=1)[:, :gone]
    sizes, count = member.sum(axis=1), 0.0
    for some in np.array_split(drawn, -(-len(drawn) // 1000)):
        away = np.zeros((machines, len(some)), np.int32)
        away[some.T, np.arange(len(some))] = 1
        count += float((member @ away == sizes[:, None]).any(axis=0).sum())
    return count / len(drawn)


def _makespan_ratio(
    holders: Holders,
    costs: Sequence[float],
    speeds: Sequence[float],
    away: int,
    random: np.random.Generator,
) -> float:
    """The makespan over the best one, with random speeds and so many random machines away."""
    rates = check_speeds(speeds) * _SPEED_FACTOR ** random.uniform(-1, 1, len(speeds))
    gone = random.choice(len(speeds), away, replace=False)
    there = np.setdiff1d(np.arange(len(speeds)), gone)
    sets, which = group_by_holders(holders, (there + 1).tolist())
    sums = np.bincount(which, costs, len(sets))
    time, _ = WorkGroups(sums, sets, there.size).minimise_makespan(rates[there])
    return time / (float(np.sum(costs)) / float(rates[there].sum()))


def group_by_holders(
    holders: Holders, available: Sequence[int]
) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """Find which parts the same available machines hold.

    Returns
    -------
    sets : list of tuple of int
        Machines that hold some parts, as positions from 0.
    which : (P,) ndarray of int64
        Which of them hold each part.

    Examples
    --------
    >>> group_by_holders(((1, 2), (2, 3), (1, 2)), (2, 3))
    ([(0,), (0, 1)], array([0, 1, 0]))
    """
    at = {machine: place for place, machine in enumerate(available)}
    there = {machines: tuple(at[n] for n in machines if n in at) for machines in set(holders)}
    sets: dict[tuple[int, ...], int] = {}
    which = [sets.setdefault(there[machines], len(sets)) for machines in holders]
    return list(sets), np.array(which)


def fatal_sets(holders: Holders, available: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the smallest sets of available machines that hold all copies of some part.

    A run with these machines ends when all machines of one of these sets are lost.

    Examples
    --------
    >>> fatal_sets(((1, 2, 3), (2, 3, 4), (3, 4, 5)), (1, 2, 3, 5))
    [(2, 3), (3, 5)]
    """
    there = set(available)
    left = sorted({tuple(n for n in machines if n in there) for machines in holders}, key=len)
    found: list[tuple[int, ...]] = []
    for machines in left:
        if not any(set(smaller) <= set(machines) for smaller in found):
            found.append(machines)
    return sorted(found)
