"""Compute with HiGHS the least makespan of work that only some machines can do."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array


def min_makespan(costs, holders, speeds, overheads=None, copies=1):
    """Return the least makespan, infinite if the work cannot be done.

    Parameters
    ----------
    costs : (G,) array_like of float
        Costs of groups of work.
    holders : sequence of sequence of int
        Machines of each group, counted from 0.
    speeds : (N,) ndarray of float
    overheads : (N,) ndarray of float, optional
        Cost of each machine that takes part. All subsets are tried, so N must be small.
    copies : int
        Number of machines that do each group of work.
    """
    machines = range(len(speeds))
    overheads = np.zeros(len(speeds)) if overheads is None else overheads
    subsets = [machines]
    if overheads.any():
        subsets = [subset for n in machines for subset in combinations(machines, n + 1)]
    return min(
        _min_makespan_on(np.asarray(costs), holders, speeds, overheads, copies, subset)
        for subset in subsets
    )


def _min_makespan_on(costs, holders, speeds, overheads, copies, participants):
    """Solve for the work of each machine on each group that it can do, and the makespan."""
    sizes = [len(group) for group in holders]
    group = np.repeat(np.arange(len(sizes)), sizes)
    machine = np.fromiter(chain.from_iterable(holders), int)
    is_used = np.isin(machine, participants)
    group, machine = group[is_used], machine[is_used]
    used, row = np.unique(machine, return_inverse=True)
    ones, pairs, width = np.ones(group.size), np.arange(group.size), group.size + 1
    values = np.concatenate([ones, -speeds[used]])
    rows = np.append(row, np.arange(used.size))
    columns = np.append(pairs, np.full(used.size, group.size))
    solution = linprog(
        np.append(np.zeros(group.size), 1.0),
        A_ub=coo_array((values, (rows, columns)), shape=(used.size, width)).tocsr(),
        b_ub=-overheads[used],
        A_eq=coo_array((ones, (group, pairs)), shape=(len(sizes), width)).tocsr(),
        b_eq=copies * costs,
        bounds=np.column_stack([np.zeros(width), np.append(costs[group], np.inf)]),
        method="highs",
    )
    return solution.fun if solution.success else np.inf
