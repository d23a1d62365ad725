"""From who is available, how fast and with which shards to who computes what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cec_mpi.core.holding.cyclic import cyclic_over_shards, cyclic_type
from cec_mpi.core.holding.holding import Held, Holding
from cec_mpi.core.holding.load import Ints, check_shards, least_time, limited_load
from cec_mpi.core.holding.planned import HoldingPlan, RowType
from cec_mpi.core.holding.spreading import full_first, over_shards
from cec_mpi.core.holding.tolerance import Problem, RowsOfType, tolerant_loads
from cec_mpi.core.plan.load import check_rows, check_speeds, makespan
from cec_mpi.core.plan.numbers import check_available
from cec_mpi.core.plan.planner import Scheme, check_scheme
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
        Which machine holds which shards; a shard is held by one machine.
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
        shards.
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
    if (np.diff(np.sort(held.shards)) == 0).any():
        raise InputError("shards that several of the available machines hold: expected none")
    check_shards(len(machines), held.shards.size, recovery)
    present = everyone[numbers - 1]
    without = least_time(present, held.counts.astype(np.float64), recovery) * rows
    bound = without
    if stragglers:
        problem = Problem(present, held.counts, recovery, stragglers)
        parts, bound = tolerant_loads(problem, rows)
    else:
        loads = limited_load(present, held.counts * rows, recovery * rows)
        parts = [RowsOfType(int(held.counts.max()), rows, loads)]
    if scheme == "cyclic":
        types, loads = _cyclic(held, recovery, stragglers, rows)
    else:
        types, loads = _types(held, parts, recovery, stragglers)
    time = makespan(loads, present)
    return HoldingPlan(holding, machines, loads, types, time, bound, without)


def _types(
    held: Held, parts: Sequence[RowsOfType], recovery: int, stragglers: int
) -> tuple[tuple[RowType, ...], Ints]:
    """Rows of each type on shards, and the loads of machines in all of them."""
    types, start = [], 0
    for at_most, rows, loads in parts:
        copies = recovery + stragglers * at_most
        assignment = over_shards(held.shards, full_first(loads, held, rows), copies, rows)
        types.append(RowType(start, at_most, assignment))
        start += rows
    return tuple(types), sum((part.loads for part in parts), np.zeros_like(held.counts))


def _cyclic(
    held: Held, recovery: int, stragglers: int, rows: int
) -> tuple[tuple[RowType, ...], Ints]:
    at_most = cyclic_type(held, recovery, stragglers)
    assignment = cyclic_over_shards(held, recovery + stragglers * at_most, rows)
    loads = np.zeros_like(held.counts)
    np.add.at(loads, held.machines, assignment.counts(int(held.shards.max()))[held.shards - 1])
    return (RowType(0, at_most, assignment),), loads
