"""A plan as plain numbers, for people and for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cec_mpi.core.plan.filling import Iteration, iterations
from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.scheme import Scheme
from cec_mpi.core.plan.schemes import fractional_blocks
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
        As `plan_step`, or `steps` of the cyclic scheme or of too many machines.

    Examples
    --------
    >>> plan = explain_plan((2, 3, 5), [2, 2, 3, 3, 4, 4], 3, 6, exact=True)
    >>> plan["loads"], plan["c_star"], plan["k_star"]
    ([0, 6, 6, 0, 6, 0], '1/2', None)
    """
    if steps:
        _check_steps(len(available), scheme)
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
    if steps:
        loads = [Fraction(part) for part in optimum.mu] if exact else plan.assignment.loads.tolist()
        content["iterations"] = [_iteration(each) for each in iterations(available, loads, copies)]
    return content


def _check_steps(machines: int, scheme: Scheme) -> None:
    if scheme != "heterogeneous":
        raise InputError(f"the {scheme} scheme has no steps: expected scheme heterogeneous")
    if machines > _MOST_MACHINES:
        raise InputError(
            f"steps of {plural(machines, 'machine')}, each with a load of all of them: expected "
            f"at most {_MOST_MACHINES}"
        )


def _iteration(each: Iteration) -> dict[str, Any]:
    return {
        "alpha": _number(each.alpha),
        "machines": list(each.machines),
        "smallest": each.smallest,
        "load": _number(each.load),
        "next_largest": each.next_largest,
        "room": None if each.room is None else _number(each.room),
        "decided_by": "load" if each.alpha == each.load else "room",
        "loads": [_number(load) for load in each.loads],
        "total": _number(each.total),
    }


def _number(number: int | Fraction) -> int | str:
    return number if isinstance(number, int) else str(number)


def _exact_blocks(
    mu: Sequence[Any], copies: int, count: int, scheme: Scheme
) -> list[tuple[Fraction, tuple[int, ...]]]:
    if scheme == "cyclic":
        return [
            (Fraction(1, count), tuple(sorted((b + k) % count for k in range(copies))))
            for b in range(count)
        ]
    return fractional_blocks([Fraction(part) for part in mu], copies)
