"""A plan as plain numbers, for people and for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import Scheme, plan_step
from cec_mpi.core.plan.schemes import fractional_blocks


def explain_plan(
    available: Sequence[int],
    speeds: Sequence[Fraction],
    recovery: int,
    rows: int,
    *,
    stragglers: int = 0,
    scheme: Scheme = "heterogeneous",
    exact: bool = False,
) -> dict[str, Any]:
    """What ``cec-mpi plan --json`` prints.

    Parameters
    ----------
    available : (N_t,) sequence of int
        Machine numbers, ascending.
    speeds : (N,) sequence of Fraction
    recovery : int
        L; each row is computed by ``recovery + stragglers`` machines.
    rows : int
        Rows per shard, R.
    stragglers : int
    scheme : {"heterogeneous", "cyclic"}
    exact : bool
        Add the fractions of the paper as strings: ``mu`` (in the order of
        ``available``), ``alpha`` and ``alpha_machines`` (one per block of the paper),
        ``c_star`` and ``k_star`` of Theorem 1.

    Returns
    -------
    dict
        ``available``, ``recovery``, ``rows``, ``loads`` (machines 1..N), ``blocks``
        (in Algorithm 1's order), ``makespan``, ``bound`` (None: too long for a float).

    Examples
    --------
    >>> plan = explain_plan((2, 3, 5), [2, 2, 3, 3, 4, 4], 3, 6, exact=True)
    >>> plan["loads"], plan["c_star"], plan["k_star"]
    ([0, 6, 6, 0, 6, 0], '1/2', None)
    """
    floats = [float(speed) for speed in speeds]
    copies = recovery + stragglers
    plan = plan_step(available, floats, copies, rows, scheme)
    content: dict[str, Any] = {
        "available": list(available),
        "recovery": recovery,
        "rows": rows,
        "loads": plan.assignment.counts(len(speeds)).tolist(),
        "blocks": [
            {"start": block.start, "stop": block.stop, "machines": list(block.machines)}
            for block in plan.assignment.blocks
        ],
        "makespan": plan.makespan if math.isfinite(plan.makespan) else None,
        "bound": plan.bound if math.isfinite(plan.bound) else None,
    }
    if exact:
        optimum = fractional_load([speeds[n - 1] for n in available], copies)
        blocks = _exact_blocks(optimum.mu, copies, len(available), scheme)
        mu = optimum.mu
        if scheme == "cyclic":
            mu = (Fraction(copies, len(available)),) * len(available)
        content |= {
            "mu": [str(part) for part in mu],
            "alpha": [str(alpha) for alpha, _ in blocks],
            "alpha_machines": [[available[k] for k in machines] for _, machines in blocks],
            "c_star": str(optimum.c_star),
            "k_star": optimum.k_star,
        }
    return content


def _exact_blocks(
    mu: Sequence[Any], copies: int, count: int, scheme: Scheme
) -> list[tuple[Fraction, tuple[int, ...]]]:
    if scheme == "cyclic":
        return [
            (Fraction(1, count), tuple(sorted((b + k) % count for k in range(copies))))
            for b in range(count)
        ]
    return fractional_blocks([Fraction(part) for part in mu], copies)
