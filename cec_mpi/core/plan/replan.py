"""Rows that miss answers, shared out again among the machines that may still give them.

If a machine is lost or given up in the middle of a step, the rows of its blocks miss an answer.
Machines that have not computed these rows can give it. Theorem 1 does not apply, because each block
has eligible machines of its own: this is a transport problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.flow import Network, Rows
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

_SLOWEST = 1e-250  # of the speed of the fastest machine: the time of all rows is a finite number
_ROUNDED = 1 + 4 * np.finfo(np.float64).eps  # m / speed * speed may be a digit below m


@dataclass(frozen=True)
class MissingAnswers:
    """Rows ``start <= row < stop`` that miss answers.

    Attributes
    ----------
    start, stop : int
    needed : int
        Answers that each of these rows misses, from different machines.
    eligible : tuple of int
        Machines that may give one.
    """

    start: int
    stop: int
    needed: int
    eligible: tuple[int, ...]


class RowShare(NamedTuple):
    """Rows ``start <= row < stop``, to be computed by one machine."""

    machine: int
    start: int
    stop: int


def replan(missing: Sequence[MissingAnswers], speeds: Sequence[float]) -> list[RowShare]:
    """Share out rows so that the last of them is finished as soon as possible.

    Parameters
    ----------
    missing : sequence of MissingAnswers
        Their rows do not overlap.
    speeds : (N,) sequence of float
        Speed of machines 1..N, in rows per unit of time. A speed below 1e-250 times the fastest
        counts as that.

    Returns
    -------
    list of RowShare
        For each row as many shares of different eligible machines as it misses answers;
        with the smallest possible ``max(rows / speed)`` in whole rows.

    Raises
    ------
    InfeasibleError
        Some rows have fewer eligible machines than they miss answers.

    Notes
    -----
    With T the time, machine n can compute ``floor(T speeds[n])`` rows, and of any rows at
    most all of them once: a flow from rows to machines. The smallest T with a flow for all
    missing answers is among the numbers ``m / speeds[n]``; whole capacities have whole flows.
    The shares of rows that miss several answers are laid around them cyclically (McNaughton's
    rule), so that no machine meets a row twice.

    Examples
    --------
    >>> for share in replan([MissingAnswers(0, 30, 1, (2, 3))], [1.0, 1.0, 2.0]):
    ...     print(share)
    RowShare(machine=2, start=0, stop=10)
    RowShare(machine=3, start=10, stop=30)
    """
    wanted = [group for group in missing if group.needed and group.stop > group.start]
    for group in wanted:
        if len(group.eligible) < group.needed:
            raise InfeasibleError(
                f"rows {group.start}..{group.stop - 1} miss {plural(group.needed, 'answer')}: "
                f"{plural(len(group.eligible), 'machine')} can give one"
            )
    if not wanted:
        return []
    machines = sorted({n for group in wanted for n in group.eligible})
    present = check_speeds([speeds[n - 1] for n in machines])
    present = np.ldexp(present, -int(np.frexp(present.max())[1]))
    present = np.maximum(present, _SLOWEST)
    total = sum((group.stop - group.start) * group.needed for group in wanted)
    pairs, network = _network(wanted, machines)
    at = np.array(pairs)[:, 1]
    low, high = float(total / present.sum()) * (1 - 1e-9), float(total / present.min())
    flow = network.flow(_rows_within(high, present, total))
    while not np.array_equal(
        _rows_within(low, present, total), _rows_within(np.nextafter(high, 0), present, total)
    ):
        middle = (low + high) / 2 if high < 2 * low else math.sqrt(low) * math.sqrt(high)
        found = network.flow(_rows_within(middle, present, total))
        if found.sum() == total:
            flow, high = found, min(middle, float((np.bincount(at, found) / present).max()))
        else:
            low = middle
    of_machines: list[dict[int, int]] = [{} for _ in wanted]
    for (g, n), rows in zip(pairs, flow.tolist(), strict=True):
        of_machines[g][machines[n]] = rows
    return [
        share
        for group, rows in zip(wanted, of_machines, strict=True)
        for share in _wrap_around(group, [(n, rows[n]) for n in group.eligible])
    ]


def _network(
    wanted: Sequence[MissingAnswers], machines: Sequence[int]
) -> tuple[list[tuple[int, int]], Network]:
    """Groups and machines that are pairs, and the network of them."""
    at = {machine: k for k, machine in enumerate(machines)}
    sizes = [group.stop - group.start for group in wanted]
    supplies = [size * group.needed for size, group in zip(sizes, wanted, strict=True)]
    pairs = [(g, at[n]) for g, group in enumerate(wanted) for n in group.eligible]
    limits = [sizes[g] for g, _ in pairs]
    return pairs, Network(supplies, limits, pairs, len(machines))


def _rows_within(time: float, speeds: NDArray[np.float64], most: int) -> Rows:
    """Return the whole rows that each machine computes in this time, at most `most`."""
    return np.floor(np.minimum(time * speeds * _ROUNDED, most)).astype(np.int64)


def _wrap_around(missing: MissingAnswers, rows: Sequence[tuple[int, int]]) -> list[RowShare]:
    """Return intervals for these numbers of rows, cyclically one after the other."""
    shares = []
    place = missing.start
    for machine, some in rows:
        left = some
        while left:
            stop = min(missing.stop, place + left)
            shares.append(RowShare(machine, place, stop))
            left -= stop - place
            place = missing.start if stop == missing.stop else stop
    return shares
