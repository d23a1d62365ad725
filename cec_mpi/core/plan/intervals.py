"""The rows of all machines at once, as they are recorded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cec_mpi.core.plan.assignment import Assignment


def bounds_of(assignment: Assignment, machines: int) -> list[list[int]]:
    """Bounds of the intervals of each of the machines 1..`machines`, one after the other.

    Those of `Assignment.intervals`, of all machines at once: ``[0, 7, 9, 12]`` are the rows 0..6
    and 9..11; nothing for the preempted.

    Examples
    --------
    >>> from cec_mpi.core.plan.schemes import heterogeneous
    >>> bounds_of(heterogeneous((1, 2, 4), [3, 2, 1], 2), 5)
    [[0, 3], [1, 3], [], [0, 1], []]
    """
    along = np.argsort(assignment.starts, kind="stable")
    owners = assignment.machines[along].ravel()
    grouped = np.argsort(owners, kind="stable")
    owners = owners[grouped]
    firsts = np.repeat(assignment.starts[along], assignment.copies)[grouped]
    lasts = np.repeat(assignment.stops[along], assignment.copies)[grouped]
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (firsts[1:] != lasts[:-1])
    ends = np.append(begins[1:], True)
    flat = np.stack((firsts[begins], lasts[ends]), axis=1)
    places = np.searchsorted(owners[begins], np.arange(1, machines + 2)).tolist()
    return [flat[a:b].ravel().tolist() for a, b in pairwise(places)]
