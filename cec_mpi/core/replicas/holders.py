"""Choice of the machines that hold each part, and its quality.

More distinct sets of holders balance the work better when machines leave. But they raise the
probability that a simultaneous loss of machines removes all copies of a part. The sets are copysets
(Cidon et al., USENIX ATC 2013): neighbours in random orders of the machines hold the same parts.
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

_MAX_EXHAUSTIVE, _SAMPLE_SIZE = 20_000, 20_000  # sets of lost machines
_SIMULATED_STEPS, _SEED = 200, 2107
_SPEED_FACTOR = 2.0  # largest ratio of a simulated speed to the declared speed

Holders = tuple[tuple[int, ...], ...]
"""The machines of each part, ascending, from 1."""


def spread_copies(
    parts: int, speeds: Sequence[float], copies: int, orders: int = 4, seed: int = 0
) -> Holders:
    """Choose the machines that hold each part; parts have about equal costs.

    Parameters
    ----------
    parts : int
    speeds : (N,) sequence of float
        Relative speed of each machine. The number of parts that a machine holds is proportional to
        its speed, up to all parts.
    copies : int
        Number of machines that hold each part, J.
    orders : int
        Number of random orders of the machines. With equal speeds each order adds N / J sets of
        holders.
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
    from 0 to 1 give each machine its share (systematic sampling). The code uses integer multiples
    of a common unit, because a length that is rounded to more than 1 could be chosen twice.

    Examples
    --------
    >>> spread_copies(4, [1, 1, 1, 1, 1, 1], 3, orders=1)
    ((1, 4, 6), (1, 4, 6), (2, 3, 5), (2, 3, 5))
    """
    lengths = _holding_lengths(_scale_to_integers(check_speeds(speeds)), copies)
    if parts < 1 or orders < 1:
        raise InputError(
            f"{plural(parts, 'part')} in {plural(orders, 'order')}: expected at least 1 of each"
        )
    rng, unit, orders = np.random.default_rng(seed), sum(lengths) // copies, min(orders, parts)
    holders: list[tuple[int, ...]] = []
    for k in range(orders):
        order = rng.permutation(len(lengths)).tolist()
        count = (k + 1) * parts // orders - k * parts // orders
        scale = 2 * count  # makes the midpoints of `count` equal intervals integers
        ends = list(accumulate(scale * lengths[machine] for machine in order))
        for first in range(unit, scale * unit, 2 * unit):
            points = range(first, ends[-1], scale * unit)
            holders.append(tuple(sorted(order[bisect_right(ends, point)] + 1 for point in points)))
    return tuple(holders)


def _scale_to_integers(speeds: NDArray[np.float64]) -> list[int]:
    """Return speeds times a power of two that makes them integers."""
    ratios = [speed.as_integer_ratio() for speed in speeds.tolist()]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _holding_lengths(speeds: list[int], copies: int) -> list[int]:
    """Return the lengths of the machines in `spread_copies`, as integers in a common unit.

    Examples
    --------
    >>> _holding_lengths([1, 1, 1, 9], 2)  # the last machine holds all parts, the others a third
    [1, 1, 1, 3]
    """
    if not 1 <= copies <= len(speeds):
        raise InputError(f"copies {copies}: expected from 1 to {len(speeds)}, the machine count")
    partial_holders = set(range(len(speeds)))  # all other machines hold all parts
    while True:
        remaining_copies = copies - len(speeds) + len(partial_holders)
        unit = sum(speeds[machine] for machine in partial_holders)
        full_holders = {n for n in partial_holders if remaining_copies * speeds[n] > unit}
        if not full_holders:
            break
        partial_holders -= full_holders
    lengths = [
        remaining_copies * speed if machine in partial_holders else unit
        for machine, speed in enumerate(speeds)
    ]
    divisor = gcd(unit, *lengths)
    return [length // divisor for length in lengths]


class PlacementQuality(NamedTuple):
    """Robustness and balance of a choice of holders.

    Attributes
    ----------
    holder_sets : int
        Number of distinct sets of holders.
    loss_probability : dict of int to float
        Probability that k random machines hold all copies of a part, by k.
    mean_ratio, max_ratio : float
        Mean and maximum, over simulated steps, of the ratio of the makespan to that of machines
        that hold all parts. Simulated speeds are from half to twice the declared ones.
    unavailable_machines : int
        Number of unavailable machines in each simulated step: two if each part has at least three
        holders.
    """

    holder_sets: int
    loss_probability: dict[int, float]
    mean_ratio: float
    max_ratio: float
    unavailable_machines: int


def assess_placement(
    holders: Holders, speeds: Sequence[float], costs: Sequence[float]
) -> PlacementQuality:
    """Estimate the probability of losses with these holders, and the balance of the work.

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
    rng = np.random.default_rng(_SEED)
    loss_probability = {
        lost: _loss_probability(sets, machines, lost, rng)
        for lost in range(min_copies, min(min_copies + 3, machines + 1))
    }
    unavailable = min(2, min_copies - 1)
    ratios = [
        _makespan_ratio(holders, costs, speeds, unavailable, rng) for _ in range(_SIMULATED_STEPS)
    ]
    mean, maximum = float(np.mean(ratios)), float(np.max(ratios))
    return PlacementQuality(len(sets), loss_probability, mean, maximum, unavailable)


def _loss_probability(
    sets: set[tuple[int, ...]], machines: int, lost_machines: int, rng: np.random.Generator
) -> float:
    """Return the probability that `lost_machines` random machines include one of these sets."""
    membership = np.zeros((len(sets), machines), np.int32)
    for row, holders in zip(membership, sets, strict=True):
        row[np.array(holders) - 1] = 1
    if comb(machines, lost_machines) <= _MAX_EXHAUSTIVE:
        samples = np.array(list(combinations(range(machines), lost_machines)))
    else:
        all_machines = np.tile(np.arange(machines, dtype=np.int16), (_SAMPLE_SIZE, 1))
        samples = rng.permuted(all_machines, axis=1)[:, :lost_machines]
    sizes, losses = membership.sum(axis=1), 0.0
    for batch in np.array_split(samples, -(-len(samples) // 1000)):
        is_lost = np.zeros((machines, len(batch)), np.int32)
        is_lost[batch.T, np.arange(len(batch))] = 1
        losses += float((membership @ is_lost == sizes[:, None]).any(axis=0).sum())
    return losses / len(samples)


def _makespan_ratio(
    holders: Holders,
    costs: Sequence[float],
    speeds: Sequence[float],
    unavailable_machines: int,
    rng: np.random.Generator,
) -> float:
    """Return the ratio of the makespan to the ideal for random speeds and unavailable machines."""
    rates = check_speeds(speeds) * _SPEED_FACTOR ** rng.uniform(-1, 1, len(speeds))
    excluded = rng.choice(len(speeds), unavailable_machines, replace=False)
    available = np.setdiff1d(np.arange(len(speeds)), excluded)
    sets, set_of_part = group_by_holders(holders, (available + 1).tolist())
    group_costs = np.bincount(set_of_part, costs, len(sets))
    time, _ = WorkGroups(group_costs, sets, available.size).minimise_makespan(rates[available])
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
    """Return the minimal sets of available machines that hold all copies of a part.

    A run on the available machines fails if all machines of such a set are lost.

    Examples
    --------
    >>> fatal_sets(((1, 2, 3), (2, 3, 4), (3, 4, 5)), (1, 2, 3, 5))
    [(2, 3), (3, 5)]
    """
    available = set(available)
    candidates = {tuple(n for n in machines if n in available) for machines in holders}
    minimal_sets: list[tuple[int, ...]] = []
    for machines in sorted(candidates, key=len):
        if not any(set(smaller) <= set(machines) for smaller in minimal_sets):
            minimal_sets.append(machines)
    return sorted(minimal_sets)
