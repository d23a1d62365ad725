"""Which machine computes which rows of X where there is no code: rows that travel, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import whole_row_load

Rows = NDArray[np.int64]
_NONE: Rows = np.empty(0, dtype=np.int64)


class Share(NamedTuple):
    """What one machine is told when machines come or go.

    Attributes
    ----------
    rows : (m,) ndarray of int64
        What it computes from now on, ascending.
    new : ndarray of int64
        Those of them that it does not hold, and gets; ascending.
    gone : ndarray of int64
        What it need not hold any more; ascending.
    """

    rows: Rows
    new: Rows
    gone: Rows


Deal = dict[int, Share]  # by machine, of those that are available


class Dealt:
    """Each row on one machine, as many as fit its speed; at an event the fewest possible move.

    A machine that comes back still holds what it had, and gets that first.

    Parameters
    ----------
    rows : int
        Of X.
    speeds : sequence of float
        Of machines 1..N.

    Examples
    --------
    >>> dealt = Dealt(6, [1.0, 1.0, 1.0])
    >>> _ = dealt.deal([1, 2, 3])
    >>> dealt.deal([1, 3])[3].new
    array([3])
    """

    def __init__(self, rows: int, speeds: Sequence[float]) -> None:
        self._speeds = speeds
        self._owner = np.zeros(rows, dtype=np.int64)
        self._held = dict.fromkeys(range(1, len(speeds) + 1), _NONE)

    def starts_with(self, machine: int) -> Rows:
        """Rows that a machine holds before the first event."""
        return _NONE

    def deal(self, available: Sequence[int]) -> Deal:
        """Share all rows out among these machines."""
        owner, loads = self._owner, _loads(self._speeds, available, len(self._owner))
        owner[~np.isin(owner, available)] = 0
        for n in available:
            if not np.any(owner == n):  # it is back, or new
                owner[self._held[n][: loads[n]]] = n
        for n in available:
            owner[np.flatnonzero(owner == n)[loads[n] :]] = 0
        deal = {}
        for n in available:
            missing = loads[n] - np.count_nonzero(owner == n)
            new = np.flatnonzero(owner == 0)[:missing]
            owner[new] = n
            rows = np.flatnonzero(owner == n)
            gone = np.setdiff1d(self._held[n], rows)
            deal[n] = Share(rows, np.setdiff1d(new, self._held[n]), gone)
            self._held[n] = rows
        return deal


class Replicated:
    """L groups of machines, each of which holds 1/L of X, as much as with a code.

    Groups are about as large and as fast as each other (`grouped`). Those of a group that are
    available share its rows by their speeds. The rows of a group of which none is available move to
    all others.

    Parameters
    ----------
    rows : int
        Of X.
    speeds : sequence of float
        Of machines 1..N.
    groups : int
        L.

    Examples
    --------
    >>> replicated = Replicated(4, [1.0, 1.0, 1.0, 1.0], 2)
    >>> replicated.deal([1, 2, 4])[1].rows, replicated.deal([2, 4])[4].new
    (array([0, 1]), array([1]))
    """

    def __init__(self, rows: int, speeds: Sequence[float], groups: int) -> None:
        self._speeds = speeds
        self._group_of = grouped(speeds, groups)
        self._blocks = np.array_split(np.arange(rows), groups)
        self._more = dict.fromkeys(range(1, len(speeds) + 1), _NONE)

    def starts_with(self, machine: int) -> Rows:
        """Rows that a machine holds before the first event."""
        return self._blocks[self._group_of[machine]]

    def deal(self, available: Sequence[int]) -> Deal:
        """Share all rows out among these machines."""
        parts: dict[int, list[Rows]] = {n: [] for n in available}
        lost = []
        for group, block in enumerate(self._blocks):
            members = [n for n in available if self._group_of[n] == group]
            if members:
                _split(block, members, self._speeds, parts)
            else:
                lost.append(block)
        more: dict[int, list[Rows]] = {n: [] for n in available}
        if lost:
            _split(np.concatenate(lost), available, self._speeds, more)
        deal = {}
        for n in available:
            extra = np.concatenate([_NONE, *more[n]])
            rows = np.sort(np.concatenate([*parts[n], extra]))
            new, gone = np.setdiff1d(extra, self._more[n]), np.setdiff1d(self._more[n], extra)
            deal[n] = Share(rows, new, gone)
            self._more[n] = extra
        return deal


def grouped(speeds: Sequence[float], groups: int) -> dict[int, int]:
    """The group, from 0, of each machine, from 1.

    From the fastest on, each goes to the slowest group that has room: none has more machines than
    another needs to have.

    Examples
    --------
    >>> grouped([2, 2, 3, 3, 4, 4], 3)
    {5: 0, 6: 1, 3: 2, 4: 2, 1: 0, 2: 1}
    """
    most = -(-len(speeds) // groups)
    total, count = [0.0] * groups, [0] * groups
    group_of: dict[int, int] = {}
    for n in sorted(range(1, len(speeds) + 1), key=lambda n: -speeds[n - 1]):
        group = min((g for g in range(groups) if count[g] < most), key=total.__getitem__)
        group_of[n] = group
        total[group] += speeds[n - 1]
        count[group] += 1
    return group_of


def _split(
    block: Rows, machines: Sequence[int], speeds: Sequence[float], parts: dict[int, list[Rows]]
) -> None:
    """Give each of these machines a part of a block that fits its speed."""
    loads = _loads(speeds, machines, len(block))
    bounds = np.cumsum(list(loads.values()))[:-1]
    for n, part in zip(loads, np.split(block, bounds), strict=True):
        parts[n].append(part)


def _loads(speeds: Sequence[float], machines: Sequence[int], rows: int) -> dict[int, int]:
    """Rows by machine with which they finish first."""
    if not rows:
        return dict.fromkeys(machines, 0)
    loads = whole_row_load([speeds[n - 1] for n in machines], 1, rows)
    return dict(zip(machines, loads.tolist(), strict=True))
