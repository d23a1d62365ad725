"""Plans as plain values, for the text and the JSON output of ``cec-mpi plan``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cec_mpi.core.paper import Block, algorithm_1
from cec_mpi.core.plan.assignment import Scheme
from cec_mpi.core.plan.blocks import assign_blocks
from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import Plan, plan_step
from cec_mpi.core.replicas.holders import Holders, assess_placement, fatal_sets
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaPlanner
from cec_mpi.errors import InputError
from cec_mpi.text import plural

_MAX_MACHINES = 1000  # each iteration lists the loads of all machines


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
    """Return the content of ``cec-mpi plan --json`` for a code.

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
        Add the results of the paper, with fractions as strings: ``mu`` (in the order of
        ``available``), ``alpha`` and ``alpha_machines`` (one per block of the paper), and
        ``c_star`` and ``k_star`` (an int or None) of Theorem 1.
    steps : bool
        Add the ``iterations`` of Algorithm 1, in rows, or with `exact` in fractions as strings.

    Returns
    -------
    dict
        ``available``, ``recovery``, ``rows``, ``loads`` (of machines 1..N), ``blocks`` (in the
        order of Algorithm 1), ``makespan`` and ``bound`` (None if a float cannot hold them). Each
        of ``iterations`` has ``loads`` (m, in the order of ``available``), ``total`` (L'),
        ``machines`` (P_f), ``smallest`` and ``load`` (l[1] and m[l[1]]), ``next_largest`` (the
        machine with the largest load outside P_f, or None), ``margin`` (L' / (L + stragglers) minus
        that load, or None), ``alpha``, and ``decided_by`` (``load`` or ``margin``).

    Raises
    ------
    InputError
        See `plan_step`; or `steps` is True for the cyclic scheme or for too many machines.

    Examples
    --------
    >>> plan = explain_plan((2, 3, 5), [2, 2, 3, 3, 4, 4], 3, 6, exact=True)
    >>> plan["loads"], plan["c_star"], plan["k_star"]
    ([0, 6, 6, 0, 6, 0], '1/2', None)
    """
    if steps:
        _check_iterations(len(available), scheme)
    machines = len(speeds)
    floats = [float(speed) for speed in speeds]
    plan = plan_step(available, floats, recovery + stragglers, rows, scheme)
    content: dict[str, Any] = {
        "available": list(available),
        "recovery": recovery,
        "rows": rows,
        "loads": plan.assignment.row_counts(machines).tolist(),
        "blocks": [
            {"start": block.start, "stop": block.stop, "machines": list(block.machines)}
            for block in plan.assignment.blocks
        ],
        "makespan": _none_if_infinite(plan.makespan),
        "bound": _none_if_infinite(plan.bound),
    }
    if exact:
        content |= _fractions(plan, available, speeds, scheme)
    if steps:
        loads, denominator = plan.assignment.loads.tolist(), None
        if exact:
            loads, denominator = _to_common_denominator(map(Fraction, content["mu"]))
        mu = dict(zip(available, loads, strict=True))
        content["iterations"] = [
            _iteration(block, denominator)
            for block in algorithm_1(mu, plan.assignment.machines_per_row)
        ]
    return content


def _none_if_infinite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _check_iterations(machines: int, scheme: Scheme) -> None:
    if scheme != "heterogeneous":
        raise InputError(f"--steps needs --scheme heterogeneous, found {scheme}")
    if machines > _MAX_MACHINES:
        raise InputError(
            f"--steps: found {machines} machines, expected at most {_MAX_MACHINES}, because each "
            "iteration lists the loads of all machines"
        )


def _iteration(block: Block, denominator: int | None) -> dict[str, Any]:
    """Return an iteration in rows, or in fractions of a shard with this denominator."""
    load = block.m[block.smallest]
    margin = None
    if block.next_largest is not None:
        margin = block.total / Fraction(len(block.P)) - block.m[block.next_largest]

    def convert(number: int | Fraction) -> int | str:
        return int(number) if denominator is None else str(Fraction(number) / denominator)

    return {
        "alpha": convert(block.alpha),
        "machines": list(block.P),
        "smallest": block.smallest,
        "load": convert(load),
        "next_largest": block.next_largest,
        "margin": None if margin is None else convert(margin),
        "decided_by": "load" if block.alpha == load else "margin",
        "loads": [convert(number) for number in block.m.values()],
        "total": convert(block.total),
    }


def _fractions(
    plan: Plan, available: Sequence[int], speeds: Sequence[Fraction], scheme: Scheme
) -> dict[str, Any]:
    """Return the results of Theorem 1 and Algorithm 1 in fractions."""
    machines_per_row, count = plan.assignment.machines_per_row, len(available)
    optimum = fractional_load([speeds[n - 1] for n in available], machines_per_row)
    mu = [Fraction(load) for load in optimum.mu]
    if scheme == "cyclic":
        mu = [Fraction(machines_per_row, count)] * count
        blocks = [
            (Fraction(1, count), tuple(sorted((b + k) % count for k in range(machines_per_row))))
            for b in range(count)
        ]
    else:
        loads, denominator = _to_common_denominator(mu)
        sizes, members = assign_blocks(np.array(loads, dtype=object), machines_per_row)
        blocks = [
            (Fraction(size, denominator), tuple(indices))
            for size, indices in zip(sizes, members.tolist(), strict=True)
        ]
    return {
        "mu": [str(load) for load in mu],
        "alpha": [str(alpha) for alpha, _ in blocks],
        "alpha_machines": [[available[k] for k in indices] for _, indices in blocks],
        "c_star": str(optimum.c_star),
        "k_star": optimum.k_star,
    }


def _to_common_denominator(fractions: Iterable[Fraction]) -> tuple[list[int], int]:
    """Return the numerators of fractions over their common denominator, and the denominator."""
    fractions = list(fractions)
    denominator = math.lcm(*(fraction.denominator for fraction in fractions))
    return [int(fraction * denominator) for fraction in fractions], denominator


def explain_copies(
    parts: Parts,
    holders: Holders,
    available: Sequence[int],
    speeds: Sequence[float],
    stragglers: int = 0,
) -> dict[str, Any]:
    """Return the content of ``cec-mpi plan --json`` for copies of sparse rows.

    Parameters
    ----------
    parts : Parts
    holders : Holders
    available : (N_t,) sequence of int
        Machine numbers, ascending.
    speeds : (N,) sequence of float
    stragglers : int
        Each row is computed by ``1 + stragglers`` machines.

    Returns
    -------
    dict
        ``available``, ``rows`` (of X), ``copies`` (J), ``loads`` and ``costs`` (of machines 1..N;
        a row costs 2 more than its nonzeros), ``held_fractions`` (fraction of X that each machine
        holds), ``blocks``, ``makespan`` and ``bound`` (in rows of mean cost, divided by speed),
        ``fatal`` (`fatal_sets` of the available machines), ``loss_probability`` and
        ``over_optimum`` as ``cec-mpi info --json`` prints them.

    Raises
    ------
    InfeasibleError
        A part has no available holder.
    InputError
        There are too few copies for the stragglers.

    Examples
    --------
    >>> import numpy as np
    >>> from cec_mpi.core.replicas.parts import cut_parts
    >>> parts = cut_parts(np.arange(0, 31, 3), 2, 5)
    >>> plan = explain_copies(parts, ((1, 2), (2, 3)), (1, 2, 3), (1.0, 1.0, 2.0))
    >>> plan["loads"], plan["makespan"], plan["fatal"]
    ([3, 2, 5], 3.0, [[1, 2], [2, 3]])
    """
    machines, copies = len(speeds), min(map(len, holders))
    if stragglers >= copies:
        raise InputError(
            f"stragglers {stragglers}: expected 0 to {copies - 1} for {plural(copies, 'copy')}"
        )
    placement = ReplicaPlacement(holders, parts.bounds.tolist(), machines)
    planner = ReplicaPlanner(parts, placement, stragglers)
    plan = planner.plan(tuple(available), tuple(speeds))
    assessment = assess_placement(holders, speeds, parts.costs.tolist())
    rows, total = int(parts.first_rows[-1]), float(parts.costs.sum())
    held_fractions = [0.0] * machines
    for machines_of_part, cost in zip(holders, parts.costs.tolist(), strict=True):
        for n in machines_of_part:
            held_fractions[n - 1] += cost / total
    costs = [0.0] * machines if plan.costs is None else plan.costs.tolist()
    return {
        "available": list(available),
        "rows": rows,
        "copies": copies,
        "loads": plan.assignment.row_counts(machines).tolist(),
        "costs": costs,
        "held_fractions": held_fractions,
        "blocks": [
            {"start": block.start, "stop": block.stop, "machines": list(block.machines)}
            for block in plan.assignment.blocks
        ],
        "makespan": plan.makespan * rows / total,
        "bound": plan.bound * rows / total,
        "fatal": [list(machines_of_set) for machines_of_set in fatal_sets(holders, available)],
        "loss_probability": assessment.loss_probability,
        "over_optimum": {
            "mean": assessment.mean_ratio,
            "worst": assessment.max_ratio,
            "unavailable": assessment.unavailable_machines,
        },
    }
