"""Reassignment of rows with missing answers.

If a machine is lost or unresponsive during a step, the rows of its blocks lack an answer. Machines
that have not computed these rows can provide it. Theorem 1 does not apply, because each block has
its own set of eligible machines: this is a transportation problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.plan.flow import Network
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.errors import InfeasibleError
from cec_mpi.text import plural

_MIN_RELATIVE_SPEED = 1e-250  # to the fastest machine; otherwise a time could be infinite
_ROUNDING_MARGIN = 1 + 4 * np.finfo(np.float64).eps  # m / speed * speed may be slightly below m


@dataclass(frozen=True)
class MissingAnswers:
    """Rows ``start <= row < stop`` that lack answers.

    Attributes
    ----------
    start, stop : int
    answers_per_row : int
        Missing answers for each row, from different machines.
    eligible_machines : tuple of int
        Machines that can provide a missing answer.
    """

    start: int
    stop: int
    answers_per_row: int
    eligible_machines: tuple[int, ...]


class RowShare(NamedTuple):
    """Rows ``start <= row < stop`` for one machine to compute."""

    machine: int
    start: int
    stop: int


def replan(missing: Sequence[MissingAnswers], speeds: Sequence[float]) -> list[RowShare]:
    """Reassign rows with missing answers so that the makespan is minimal.

    Parameters
    ----------
    missing : sequence of MissingAnswers
        Disjoint rows.
    speeds : (N,) sequence of float
        Speed of machines 1..N, in rows per unit of time. A speed below 1e-250 times the fastest
        counts as this minimum.

    Returns
    -------
    list of RowShare
        Each row is in `answers_per_row` shares of different eligible machines. The largest
        ``rows / speed`` is minimal for whole rows.

    Raises
    ------
    InfeasibleError
        Rows need more answers than they have eligible machines.

    Notes
    -----
    In time T machine n computes at most ``floor(T speeds[n])`` rows, and each row at most once. So
    an assignment is a flow from rows to machines, and integer capacities have an integer flow. The
    minimum T is one of the numbers ``m / speeds[n]``. If rows need several answers, their shares
    wrap around cyclically (McNaughton's rule), so that no machine gets a row twice.

    Examples
    --------
    >>> for share in replan([MissingAnswers(0, 30, 1, (2, 3))], [1.0, 1.0, 2.0]):
    ...     print(share)
    RowShare(machine=2, start=0, stop=10)
    RowShare(machine=3, start=10, stop=30)
    """
    groups = [group for group in missing if group.answers_per_row and group.stop > group.start]
    for group in groups:
        if len(group.eligible_machines) < group.answers_per_row:
            raise InfeasibleError(
                f"rows {group.start}..{group.stop - 1} lack "
                f"{plural(group.answers_per_row, 'answer')}: "
                f"{plural(len(group.eligible_machines), 'machine')} can provide one"
            )
    if not groups:
        return []
    machines = sorted({n for group in groups for n in group.eligible_machines})
    relative_speeds = check_speeds([speeds[n - 1] for n in machines])
    relative_speeds = np.ldexp(relative_speeds, -int(np.frexp(relative_speeds.max())[1]))
    relative_speeds = np.maximum(relative_speeds, _MIN_RELATIVE_SPEED)
    total = sum((group.stop - group.start) * group.answers_per_row for group in groups)
    pairs, network = _make_network(groups, machines)
    machine_of_pair = np.array(pairs)[:, 1]
    low = float(total / relative_speeds.sum()) * (1 - 1e-9)
    high = float(total / relative_speeds.min())
    flow = network.max_flow(_rows_within(high, relative_speeds, total))
    while not np.array_equal(
        _rows_within(low, relative_speeds, total),
        _rows_within(np.nextafter(high, 0), relative_speeds, total),
    ):
        middle = (low + high) / 2 if high < 2 * low else math.sqrt(low) * math.sqrt(high)
        candidate = network.max_flow(_rows_within(middle, relative_speeds, total))
        if candidate.sum() == total:
            times = np.bincount(machine_of_pair, candidate) / relative_speeds
            flow, high = candidate, min(middle, float(times.max()))
        else:
            low = middle
    rows_by_machine: list[dict[int, int]] = [{} for _ in groups]
    for (g, k), rows in zip(pairs, flow.tolist(), strict=True):
        rows_by_machine[g][machines[k]] = rows
    return [
        share
        for group, rows in zip(groups, rows_by_machine, strict=True)
        for share in _wrap_around(group, [(n, rows[n]) for n in group.eligible_machines])
    ]


def _make_network(
    groups: Sequence[MissingAnswers], machines: Sequence[int]
) -> tuple[list[tuple[int, int]], Network]:
    """Return pairs of indices of a group and an eligible machine, and the flow network."""
    index = {machine: k for k, machine in enumerate(machines)}
    sizes = [group.stop - group.start for group in groups]
    supplies = [size * group.answers_per_row for size, group in zip(sizes, groups, strict=True)]
    pairs = [(g, index[n]) for g, group in enumerate(groups) for n in group.eligible_machines]
    capacities = [sizes[g] for g, _ in pairs]
    return pairs, Network(supplies, capacities, pairs, len(machines))


def _rows_within(time: float, speeds: NDArray[np.float64], limit: int) -> Ints:
    """Return how many whole rows each machine computes in this time, at most `limit`."""
    return np.floor(np.minimum(time * speeds * _ROUNDING_MARGIN, limit)).astype(np.int64)


def _wrap_around(missing: MissingAnswers, counts: Sequence[tuple[int, int]]) -> list[RowShare]:
    """Return consecutive shares with these numbers of rows; at the last row they wrap around."""
    shares = []
    start = missing.start
    for machine, count in counts:
        remaining = count
        while remaining:
            stop = min(missing.stop, start + remaining)
            shares.append(RowShare(machine, start, stop))
            remaining -= stop - start
            start = missing.start if stop == missing.stop else stop
    return shares
