"""A plan of copies as plain numbers, and the losses that end a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cec_mpi.core.replicas.holders import Holders, spread_of
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaPlanner
from cec_mpi.errors import InputError


def explain_copies(
    parts: Parts,
    holders: Holders,
    available: Sequence[int],
    speeds: Sequence[float],
    stragglers: int = 0,
) -> dict[str, Any]:
    """Return what ``cec-mpi plan --json`` prints for copies of sparse rows.

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
        ``available``, ``rows`` (of X), ``copies`` (J), ``loads`` and ``costs`` (rows and nonzeros
        of machines 1..N, where a row counts 2 nonzeros more), ``held`` (what share of X machines
        have), ``blocks``, ``makespan`` and ``bound`` (in rows of mean cost, over speed),
        ``fatal`` (`fatal_sets` of the available machines), ``lost`` and ``over_optimum`` as
        ``cec-mpi info --json`` prints them.

    Raises
    ------
    InfeasibleError
        No available machine has some part.
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
        raise InputError(f"stragglers {stragglers}: expected 0 to {copies - 1} (copies less one)")
    placement = ReplicaPlacement(holders, parts.bounds.tolist(), machines)
    planner = ReplicaPlanner(parts, placement, stragglers)
    plan = planner.plan(tuple(available), tuple(speeds))
    spread = spread_of(holders, speeds, parts.costs.tolist())
    rows, total = int(parts.rows[-1]), float(parts.costs.sum())
    held = [0.0] * machines
    for mine, cost in zip(holders, parts.costs.tolist(), strict=True):
        for n in mine:
            held[n - 1] += cost / total
    costs = [0.0] * machines if plan.costs is None else plan.costs.tolist()
    return {
        "available": list(available),
        "rows": rows,
        "copies": copies,
        "loads": plan.assignment.counts(machines).tolist(),
        "costs": costs,
        "held": held,
        "blocks": [
            {"start": block.start, "stop": block.stop, "machines": list(block.machines)}
            for block in plan.assignment.blocks
        ],
        "makespan": plan.makespan * rows / total,
        "bound": plan.bound * rows / total,
        "fatal": [list(each) for each in fatal_sets(holders, available)],
        "lost": spread.lost,
        "over_optimum": {"mean": spread.slower, "worst": spread.slowest, "away": spread.away},
    }


def fatal_sets(holders: Holders, available: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the smallest sets of available machines that hold all copies of some part.

    A run with these machines ends when all machines of one of these sets are lost.

    Examples
    --------
    >>> fatal_sets(((1, 2, 3), (2, 3, 4), (3, 4, 5)), (1, 2, 3, 5))
    [(2, 3), (3, 5)]
    """
    there = set(available)
    left = sorted({tuple(n for n in each if n in there) for each in holders}, key=len)
    found: list[tuple[int, ...]] = []
    for each in left:
        if not any(set(smaller) <= set(each) for smaller in found):
            found.append(each)
    return sorted(found)
