"""A plan as plain numbers, for people and for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cec_mpi.core.plan.algorithm_1 import Iteration, algorithm_1, fractional_blocks, in_parts
from cec_mpi.core.plan.assignment import Scheme
from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import Plan, plan_step
from cec_mpi.errors import InputError
from cec_mpi.text import plural

_MOST_MACHINES = 1000  # whose loads are listed in each of as many iterations


def explain_plan(
    available: Sequence[int],
    speeds: Sequence[Fraction],
    recovery: int,
    rows: int,
    *,
    stragglers: int = 0,
    scheme: Scheme = "heterogeneous",
    exact: bool = False,
    steps: bool = False,
) -> dict[str, Any]:
    """Return what ``cec-mpi plan --json`` prints.

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
    steps : bool
        Add ``iterations``, those of Algorithm 1: in rows, or with `exact` in fractions as
        strings.

    Returns
    -------
    dict
        ``available``, ``recovery``, ``rows``, ``loads`` (machines 1..N), ``blocks``
        (in Algorithm 1's order), ``makespan``, ``bound`` (None: too long for a float).
        In ``iterations`` each has ``loads`` (m, in the order of ``available``), ``total``
        (L'), ``machines`` (P_f), ``smallest`` and ``load`` (l[1] and m[l[1]]),
        ``next_largest`` and ``room`` (the machine with the largest load not in P_f, and
        L'/L less that; or None), ``alpha``, and ``decided_by`` (``load`` or ``room``).

    Raises
    ------
    InputError
        See `plan_step`; or `steps` is given for the cyclic scheme or for too many machines.

    Examples
    --------
    >>> plan = explain_plan((2, 3, 5), [2, 2, 3, 3, 4, 4], 3, 6, exact=True)
    >>> plan["loads"], plan["c_star"], plan["k_star"]
    ([0, 6, 6, 0, 6, 0], '1/2', None)
    """
    if steps:
        _check_steps(len(available), scheme)
    machines = len(speeds)
    floats = [float(speed) for speed in speeds]
    plan = plan_step(available, floats, recovery + stragglers, rows, scheme)
    content: dict[str, Any] = {
        "available": list(available),
        "recovery": recovery,
        "rows": rows,
        "loads": plan.assignment.counts(machines).tolist(),
        "blocks": [
            {"start": block.start, "stop": block.stop, "machines": list(block.machines)}
            for block in plan.assignment.blocks
        ],
        "makespan": _finite(plan.makespan),
        "bound": _finite(plan.bound),
    }
    if exact:
        content |= _fractions(plan, available, speeds, scheme)
    if steps:
        loads, parts = plan.assignment.loads.tolist(), None
        if exact:
            loads, parts = in_parts([Fraction(part) for part in content["mu"]])
        content["iterations"] = [
            _iteration(each, available, parts)
            for each in algorithm_1(loads, plan.assignment.copies)
        ]
    return content


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _check_steps(machines: int, scheme: Scheme) -> None:
    if scheme != "heterogeneous":
        raise InputError(f"the {scheme} scheme has no steps: expected scheme heterogeneous")
    if machines > _MOST_MACHINES:
        raise InputError(
            f"steps of {plural(machines, 'machine')}: expected at most {_MOST_MACHINES} machines, "
            "because each step lists the loads of all"
        )


def _iteration(each: Iteration, available: Sequence[int], parts: int | None) -> dict[str, Any]:
    """Return an iteration in rows, or in fractions of a shard that has `parts` parts."""
    copies, beyond = len(each.machines), each.next_largest
    load = each.loads[each.smallest]
    room = None if beyond is None else each.total // copies - each.loads[beyond]

    def shown(number: int) -> int | str:
        return number if parts is None else str(Fraction(number, parts))

    return {
        "alpha": shown(each.alpha),
        "machines": [available[k] for k in each.machines],
        "smallest": available[each.smallest],
        "load": shown(load),
        "next_largest": None if beyond is None else available[beyond],
        "room": None if room is None else shown(room),
        "decided_by": "load" if each.alpha == load else "room",
        "loads": [shown(number) for number in each.loads],
        "total": shown(each.total),
    }


def _fractions(
    plan: Plan, available: Sequence[int], speeds: Sequence[Fraction], scheme: Scheme
) -> dict[str, Any]:
    """Theorem 1 and Algorithm 1 in fractions."""
    copies, count = plan.assignment.copies, len(available)
    optimum = fractional_load([speeds[n - 1] for n in available], copies)
    mu = [Fraction(part) for part in optimum.mu]
    if scheme == "cyclic":
        mu = [Fraction(copies, count)] * count
        blocks = [
            (Fraction(1, count), tuple(sorted((b + k) % count for k in range(copies))))
            for b in range(count)
        ]
    else:
        blocks = fractional_blocks(mu, copies)
    return {
        "mu": [str(part) for part in mu],
        "alpha": [str(alpha) for alpha, _ in blocks],
        "alpha_machines": [[available[k] for k in chosen] for _, chosen in blocks],
        "c_star": str(optimum.c_star),
        "k_star": optimum.k_star,
    }
