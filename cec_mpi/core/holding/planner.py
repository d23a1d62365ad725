"""From who is available, how fast and with which shards to who computes what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.holding.cyclic import cyclic_over_shards, cyclic_type
from cec_mpi.core.holding.holding import Held, Holding
from cec_mpi.core.holding.load import Ints, check_shards, least_time, limited_load
from cec_mpi.core.holding.mixing import Problem
from cec_mpi.core.holding.planned import HoldingPlan, RowType
from cec_mpi.core.holding.shared import shared_loads
from cec_mpi.core.holding.spreading import full_first, over_shards
from cec_mpi.core.holding.tolerance import RowsOfType, tolerant_loads
from cec_mpi.core.plan.load import check_rows, check_speeds, makespan
from cec_mpi.core.plan.numbers import check_available
from cec_mpi.core.plan.scheme import Scheme, check_scheme
from cec_mpi.errors import InputError
from cec_mpi.text import plural


def plan_holding(
    holding: Holding,
    available: Sequence[int],
    speeds: Sequence[float],
    recovery: int,
    rows: int,
    stragglers: int = 0,
    scheme: Scheme = "heterogeneous",
) -> HoldingPlan:
    """Plan one step of machines that hold several shards.

    Parameters
    ----------
    holding : Holding
        Which machine holds which shards. Where several available machines hold one, its rows may
        be split between them.
    available : (M_t,) sequence of int
        Numbers of the available machines, ascending, from 1.
    speeds : (M,) sequence of float
        Speed of every machine, available or not, in rows per unit of time: a row of two shards
        counts twice.
    recovery : int
        Shards that each row needs, L.
    rows : int
        Rows per shard, R.
    stragglers : int
        S machines of which any may be late or lost: a row keeps L shards without the S machines
        that have most of its shards.
    scheme : {"heterogeneous", "cyclic"}
        Algorithm 1 over shards on the optimal load, or equal loads of all shards.

    Returns
    -------
    HoldingPlan

    Raises
    ------
    InputError
        A speed is not positive and finite, or there is none for an available machine, or no
        shards, or some machines may be late and others hold the same shard.
    InfeasibleError
        The available machines have fewer than `recovery` shards, or too few to do without S
        machines.

    Examples
    --------
    >>> holding = Holding.consecutive([1, 1, 1, 1, 1, 4])
    >>> plan = plan_holding(holding, range(1, 7), (1, 1, 1, 1, 1, 20), 4, 100)
    >>> plan.makespan, plan.bound
    (16.0, 16.0)
    >>> plan.count(1), plan.count(6), plan.intervals(6)[6]
    (16, 320, ((0, 100),))
    """
    everyone = check_speeds(speeds)
    check_scheme(scheme)
    check_rows(rows)
    numbers = check_available(available)
    if everyone.size != holding.machines:
        raise InputError(
            f"shards of {plural(holding.machines, 'machine')}: "
            f"{plural(everyone.size, 'speed', 'is', 'are')} given"
        )
    if numbers[-1] > everyone.size:
        raise InputError(
            f"available machines {tuple(available)}: expected numbers from 1 to {everyone.size}"
        )
    machines = tuple(numbers.tolist())
    held = holding.among(machines)
    first = held.firsts()
    check_shards(len(machines), int(first.sum()), recovery)
    present = everyone[numbers - 1]
    if not first.all():
        if stragglers:
            raise InputError(
                "a shard that several of the available machines hold, some of which may be late: "
                "expected no stragglers, or each shard on one machine"
            )
        parts, bound = shared_loads(held, present, recovery, rows)
        if scheme == "cyclic":
            types = _cyclic(held.only(first), recovery, 0, rows)
            parts = np.where(first, _rows_of(types, held.shards), 0)
        else:
            types = _split(held, parts, recovery, rows)
        loads = _sums(held.machines, parts, len(machines))
        splits = _splits(held, parts, machines)
        time = makespan(loads, present)
        return HoldingPlan(holding, machines, loads, types, time, bound, bound, splits)
    without = least_time(present, held.counts.astype(np.float64), recovery) * rows
    bound = without
    if stragglers:
        problem = Problem(present, held.counts, recovery, stragglers)
        mixed, bound = tolerant_loads(problem, rows)
    else:
        loads = limited_load(present, held.counts * rows, recovery * rows)
        mixed = [RowsOfType(int(held.counts.max()), rows, loads)]
    if scheme == "cyclic":
        types = _cyclic(held, recovery, stragglers, rows)
        loads = _sums(held.machines, _rows_of(types, held.shards), len(machines))
    else:
        types = _types(held, mixed, recovery, stragglers)
        loads = sum((part.loads for part in mixed), np.zeros_like(held.counts))
    time = makespan(loads, present)
    return HoldingPlan(holding, machines, loads, types, time, bound, without)


def _types(
    held: Held, mixed: Sequence[RowsOfType], recovery: int, stragglers: int
) -> tuple[RowType, ...]:
    """Rows of each type on shards."""
    types, start = [], 0
    for at_most, rows, loads in mixed:
        copies = recovery + stragglers * at_most
        assignment = over_shards(held.shards, full_first(loads, held, rows), copies, rows)
        types.append(RowType(start, at_most, assignment))
        start += rows
    return tuple(types)


def _cyclic(held: Held, recovery: int, stragglers: int, rows: int) -> tuple[RowType, ...]:
    at_most = cyclic_type(held, recovery, stragglers)
    assignment = cyclic_over_shards(held, recovery + stragglers * at_most, rows)
    return (RowType(0, at_most, assignment),)


def _split(held: Held, parts: Ints, recovery: int, rows: int) -> tuple[RowType, ...]:
    """Rows on shards, of each of which several machines may compute a part."""
    shards, which = np.unique(held.shards, return_inverse=True)
    assignment = over_shards(shards, _sums(which, parts, shards.size), recovery, rows)
    return (RowType(0, int(held.counts.max()), assignment),)


def _splits(
    held: Held, parts: Ints, machines: Sequence[int]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Machines and rows of each shard that several machines hold."""
    again = set(held.shards[~held.firsts()].tolist())
    splits: dict[int, tuple[tuple[int, int], ...]] = dict.fromkeys(again, ())
    for shard, at, rows in zip(
        held.shards.tolist(), held.machines.tolist(), parts.tolist(), strict=True
    ):
        if shard in again and rows:
            splits[shard] += ((machines[at], rows),)
    return splits


def _rows_of(types: Sequence[RowType], shards: Ints) -> Ints:
    """Rows that are computed of each shard."""
    return sum(
        (each.assignment.counts(int(shards.max()))[shards - 1] for each in types),
        np.zeros_like(shards),
    )


def _sums(where: NDArray[np.integer], rows: Ints, count: int) -> Ints:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, where, rows)
    return sums
