"""A plan of machines that hold several shards as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cec_mpi.core.holding.cyclic import in_turns
from cec_mpi.core.holding.holding import Held, Holding
from cec_mpi.core.holding.load import exact_load
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.core.plan.scheme import Scheme
from cec_mpi.core.plan.schemes import fractional_blocks
from cec_mpi.errors import InputError


def explain_holding(
    holding: Holding,
    available: Sequence[int],
    speeds: Sequence[Fraction],
    recovery: int,
    rows: int,
    *,
    stragglers: int = 0,
    scheme: Scheme = "heterogeneous",
    exact: bool = False,
) -> dict[str, Any]:
    """What ``cec-mpi plan --shards-per-machine --json`` prints.

    Parameters
    ----------
    holding : Holding
    available : (M_t,) sequence of int
        Machine numbers, ascending.
    speeds : (M,) sequence of Fraction
    recovery : int
        Shards that each row needs, L.
    rows : int
        Rows per shard, R.
    stragglers : int
    scheme : {"heterogeneous", "cyclic"}
    exact : bool
        Add fractions as strings: ``mu`` (in shards, in the order of ``available``), ``alpha`` and
        ``alpha_shards``, ``c_star`` and ``k_star``.

    Returns
    -------
    dict
        ``available`` (machines), ``shards`` (of machines 1..M), ``recovery``, ``rows``, ``loads``
        (rows of machines 1..M), ``shard_loads`` (rows of shards 1..N), ``blocks`` (each with
        ``start``, ``stop``, ``shards``, and the ``machines`` that compute these), ``makespan``
        and ``bound`` (None: too long for a float); with stragglers also ``types`` (each with
        ``at_most``, ``start``, ``stop`` and ``copies``) and ``bound_without_stragglers``.

    Raises
    ------
    InputError
        As `plan_holding`, or `exact` with stragglers.

    Examples
    --------
    >>> holding = Holding.consecutive([1, 1, 3])
    >>> plan = explain_holding(holding, (1, 2, 3), [1, 1, 4], 3, 4, exact=True)
    >>> plan["loads"], plan["shard_loads"], plan["c_star"], plan["mu"]
    ([2, 2, 8], [2, 2, 4, 4, 0], '1/2', ['1/2', '1/2', '2'])
    """
    if exact and stragglers:
        raise InputError(
            "exact fractions of machines with several shards: expected no stragglers, with which "
            "the best makespan is that of a linear program"
        )
    floats = [float(speed) for speed in speeds]
    plan = plan_holding(holding, available, floats, recovery, rows, stragglers, scheme)
    blocks = plan.blocks
    done = [0] * max(shard for mine in holding.shards for shard in mine)
    for block in blocks:
        for shard in block.shards:
            done[shard - 1] += block.stop - block.start
    content: dict[str, Any] = {
        "available": list(available),
        "shards": [list(mine) for mine in holding.shards],
        "recovery": recovery,
        "rows": rows,
        "loads": [plan.count(machine) for machine in range(1, holding.machines + 1)],
        "shard_loads": done,
        "blocks": [
            {
                "start": block.start,
                "stop": block.stop,
                "shards": list(block.shards),
                "machines": list(block.machines),
            }
            for block in blocks
        ],
        "makespan": _finite(plan.makespan),
        "bound": _finite(plan.bound),
    }
    if stragglers:
        content["types"] = [
            {
                "at_most": each.at_most,
                "start": each.start,
                "stop": each.start + each.assignment.rows,
                "copies": each.assignment.copies,
            }
            for each in plan.types
        ]
        content["bound_without_stragglers"] = _finite(plan.bound_without)
    if exact:
        held = holding.among(available)
        content |= _fractions(held, [speeds[n - 1] for n in available], recovery, scheme)
    return content


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _fractions(
    held: Held, speeds: Sequence[Fraction], recovery: int, scheme: Scheme
) -> dict[str, Any]:
    """The fractions of Theorem 1 for several shards, and of Algorithm 1 over shards."""
    optimum = exact_load(speeds, held.counts.tolist(), recovery)
    count, mu = held.shards.size, optimum.mu
    if scheme == "cyclic":
        order = in_turns(held)
        around = (np.arange(count)[:, None] + np.arange(recovery)) % count
        blocks = [(Fraction(1, count), sorted(each)) for each in order[around].tolist()]
        mu = tuple(Fraction(recovery * c, count) for c in held.counts.tolist())
    else:
        order = np.sort(held.shards)
        parts = {
            shard: min(max(mu[machine] - place, Fraction(0)), Fraction(1))
            for shard, machine, place in zip(
                held.shards.tolist(), held.machines.tolist(), held.places.tolist(), strict=True
            )
        }
        found = fractional_blocks([parts[shard] for shard in order.tolist()], recovery)
        blocks = [(alpha, order[list(chosen)].tolist()) for alpha, chosen in found]
    return {
        "mu": [str(part) for part in mu],
        "alpha": [str(alpha) for alpha, _ in blocks],
        "alpha_shards": [shards for _, shards in blocks],
        "c_star": str(optimum.c_star),
        "k_star": optimum.k_star,
    }
