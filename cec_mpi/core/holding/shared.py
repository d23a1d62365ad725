"""Loads where several machines hold a shard: its rows may be split between them.

A machine that takes over the shards of one that is away, and the one that comes back, both hold
them. What is computed is a flow from shards, of which each row is computed once at most (R), to
machines (s[n] T), and the best T is the smallest with a flow of L R. By its least cut that is the
largest of all

    ``(L - |shards that a machine outside A holds|) / sum_(n in A) s[n]``

over the sets A of machines, in shards per unit of speed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.holding.holding import Held
from cec_mpi.core.holding.load import Floats, Ints, in_floats, in_time_of
from cec_mpi.core.plan.flow import Network

_UNITS = 1 << 40  # of a shard, in which times are compared before there are rows
_ROUNDED = 1 + 4 * np.finfo(np.float64).eps  # m / speed * speed may be a digit below m
_BELOW = 1 - 16 * np.finfo(np.float64).eps  # times this, a time is less in spite of that
_WHY = "of machines of which several hold a shard"
_MOST_TIMES = 10_000  # looked at together


class _Group(NamedTuple):
    """Shards that the same machines hold; where each of them stands, by machine and shard."""

    machines: tuple[int, ...]
    at: Ints


def _groups(held: Held) -> list[_Group]:
    by_shard: dict[int, list[int]] = {}
    for place, shard in enumerate(held.shards.tolist()):
        by_shard.setdefault(shard, []).append(place)
    groups: dict[tuple[int, ...], list[list[int]]] = {}
    for _, places in sorted(by_shard.items()):
        groups.setdefault(tuple(held.machines[places].tolist()), []).append(places)
    return [_Group(machines, np.array(places).T) for machines, places in groups.items()]


class _Flows:
    """Flows from groups to machines, of which each can do so much in any time.

    Attributes
    ----------
    groups, machines : (E,) ndarray of int64
        The pairs of a group and a machine that holds its shards.
    sizes : (G,) ndarray of int64
        What there is of each group: ``part`` for each shard.
    """

    def __init__(self, groups: list[_Group], speeds: Floats, part: int) -> None:
        self.speeds = speeds
        pairs = [(g, n) for g, each in enumerate(groups) for n in each.machines]
        self.groups, self.machines = np.array(pairs, dtype=np.int64).T
        self.sizes = np.array([each.at.shape[1] for each in groups], dtype=np.int64) * part
        # Most machines share nothing with others: what these do needs no network.
        shared = np.bincount(self.groups)[self.groups] > 1
        with_others = np.zeros(speeds.size, dtype=bool)
        with_others[self.machines[shared]] = True
        self._inside = with_others[self.machines]
        inner, self._group = np.unique(self.groups[self._inside], return_inverse=True)
        self._tied, self._machine = np.unique(self.machines[self._inside], return_inverse=True)
        self._network = Network(
            self.sizes[inner].tolist(),
            self.sizes[self.groups[self._inside]].tolist(),
            list(zip(self._group.tolist(), self._machine.tolist(), strict=True)),
            self._tied.size,
        )

    def capacities(self, time: float) -> Ints:
        """What each machine can do in this time, of at most all that there is."""
        most = int(self.sizes.sum())
        return np.floor(np.minimum(time * self.speeds * _ROUNDED, most)).astype(np.int64)

    def largest(self, time: float) -> Ints:
        """As much of each pair as can be in this time: (E,)."""
        capacities = self.capacities(time)
        flow: Ints = np.minimum(capacities[self.machines], self.sizes[self.groups])
        if self._tied.size:
            tied = self._network.flow(capacities[self._tied])
            flow[self._inside] = tied[self._group, self._machine]
        return flow

    def between(self, low: float, high: float) -> float | None:
        """A time between these two, in which some machine can do one unit more; None: no more."""
        least = self.capacities(low)
        more = np.maximum(self.capacities(high * _BELOW) - least, 0)
        if not more.any():
            return None
        if more.sum() > _MOST_TIMES:
            return (low + high) / 2
        machines = np.repeat(np.arange(more.size), more)
        rank = np.arange(machines.size) - np.repeat(more.cumsum() - more, more)
        times = (least[machines] + 1 + rank) / self.speeds[machines]
        return float(np.partition(times, times.size // 2)[times.size // 2])

    def loads(self, flow: Ints) -> Ints:
        """What each machine does: (M,)."""
        loads = np.zeros(self.speeds.size, dtype=np.int64)
        np.add.at(loads, self.machines, flow)
        return loads

    def bottleneck(self, flow: Ints) -> NDArray[np.bool_]:
        """Machines without time for what is left, with all that they could pass on to others."""
        done = np.zeros_like(self.sizes)
        np.add.at(done, self.groups, flow)
        left = done < self.sizes
        while True:
            late = np.zeros(self.speeds.size, dtype=bool)
            late[self.machines[left[self.groups] & (flow < self.sizes[self.groups])]] = True
            more = late[self.machines] & (flow > 0) & ~left[self.groups]
            if not more.any():
                return late
            left[self.groups[more]] = True


def least_shared_time(held: Held, speeds: Floats, recovery: int) -> float:
    """The smallest time, in fractions, in shards per unit of speed.

    Parameters
    ----------
    held : Held
        Of M machines; at least `recovery` different shards.
    speeds : (M,) ndarray of float64
    recovery : int
        Shards that each row needs, L.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Speeds differ too much.

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> held = Holding(((1, 2), (2, 3))).among((1, 2))
    >>> least_shared_time(held, np.array([1.0, 2.0]), 3)
    1.0
    """
    groups = _groups(held)
    speeds, exponent = in_floats(speeds, _WHY)
    return in_time_of(_least_time(groups, speeds, recovery), exponent)


def _least_time(groups: list[_Group], speeds: Floats, recovery: int) -> float:
    flows = _Flows(groups, speeds, _UNITS)
    time = 0.0
    longer = recovery / float(speeds.sum())
    while longer > time:  # each bottleneck takes longer than the one before
        time = longer
        flow = flows.largest(time * _UNITS)
        if int(flow.sum()) >= recovery * _UNITS - speeds.size:  # as rounded down
            break
        late = flows.bottleneck(flow)
        outside = np.zeros(len(groups), dtype=bool)
        outside[flows.groups[~late[flows.machines]]] = True
        shards = int(flows.sizes[outside].sum()) // _UNITS
        longer = (recovery - shards) / float(speeds[late].sum())
    return time


def shared_loads(held: Held, speeds: Floats, recovery: int, rows: int) -> tuple[Ints, float]:
    """Whole rows of each shard on each of its machines, with the smallest makespan.

    Parameters
    ----------
    held : Held
        Of M machines: K pairs of a machine and a shard that it holds.
    speeds : (M,) ndarray of float64
    recovery : int
        L, at most the number of different shards.
    rows : int
        Rows per shard, R.

    Returns
    -------
    parts : (K,) ndarray of int64
        Rows of each pair: of a shard at most R, in all ``L R``.
    bound : float
        What no loads can beat, in rows per unit of speed.

    Raises
    ------
    InputError
        Speeds differ too much.

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> held = Holding(((1, 2), (2, 3))).among((1, 2))
    >>> shared_loads(held, np.array([1.0, 3.0]), 3, 10)
    (array([10,  0, 10, 10]), 10.0)
    """
    groups = _groups(held)
    speeds, exponent = in_floats(speeds, _WHY)
    flows = _Flows(groups, speeds, rows)
    bound = _least_time(groups, speeds, recovery) * rows
    total = recovery * rows
    low, high = bound * (1 - 1e-9), bound + 1 / float(speeds.min())
    flow = flows.largest(high)
    while (middle := flows.between(low, high)) is not None:
        found = flows.largest(middle)
        if int(found.sum()) >= total:
            flow, high = found, middle
        else:
            low = middle
    _take_back(flows, flow, int(flow.sum()) - total)
    parts = np.zeros(held.shards.size, dtype=np.int64)
    first = 0
    for each in groups:  # its shards one after the other, and its machines along them
        ends = flow[first : first + len(each.machines)].cumsum()[:, None]
        begins = ends - flow[first : first + len(each.machines), None]
        start = np.arange(each.at.shape[1]) * rows
        parts[each.at] = ends.clip(start, start + rows) - begins.clip(start, start + rows)
        first += len(each.machines)
    return parts, in_time_of(bound, exponent)


def _take_back(flows: _Flows, flow: Ints, surplus: int) -> None:
    """What a largest flow has too much, from machines that would be done last."""
    for _ in range(surplus):
        last = int((flows.loads(flow) / flows.speeds).argmax())
        flow[np.where(flows.machines == last, flow, -1).argmax()] -= 1
