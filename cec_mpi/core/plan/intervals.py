"""The rows of all machines at once, as they are recorded."""

from __future__ import annotations

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
    found = assignment.intervals_of_all()
    return [
        [bound for interval in found.get(machine, ()) for bound in interval]
        for machine in range(1, machines + 1)
    ]
