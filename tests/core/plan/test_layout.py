"""The order of blocks along the rows: few intervals for each machine."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest

from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.plan.schemes import assign_loads, order_blocks

SPEEDS = (2, 2, 3, 3, 4, 4)  # the example of the paper, Section III


@pytest.mark.parametrize(
    ("available", "expected"),
    [((1, 2, 3, 4, 5, 6), 7), ((1, 2, 3, 5, 6), 6), ((1, 2, 3, 5), 5), ((2, 3, 5), 3)],
)
def test_the_example_of_the_paper_has_the_fewest_intervals(available, expected):
    loads = whole_row_load([SPEEDS[n - 1] for n in available], 3, 420)
    assignment = assign_loads(available, loads, 3)
    counts = [
        3
        + sum(len(set(after.machines) - set(before.machines)) for before, after in pairwise(order))
        for order in permutations(assignment.blocks)
    ]
    assert sum(len(assignment.intervals(n)) for n in available) == expected == min(counts)


@pytest.mark.parametrize(
    ("blocks", "machines_per_row"), [(1, 9), (40, 1), (40, 40), (250, 9), (300, 9), (3000, 40)]
)
def test_neighbours_share_machines(blocks, machines_per_row):
    """By a greedy path, or for more than 256 blocks by the most frequent machines."""
    rng = np.random.default_rng(blocks)
    available = np.sort(rng.choice(np.arange(1, 500), 60, replace=False))
    machines = np.array(
        [np.sort(rng.choice(available, machines_per_row, replace=False)) for _ in range(blocks)],
        dtype=np.int32,
    )
    sets = [set(block) for block in machines.tolist()]
    if blocks <= 256:
        expected, remaining = [0], list(range(1, blocks))
        while remaining:
            last = sets[expected[-1]]
            expected.append(max(remaining, key=lambda block: len(sets[block] & last)))
            remaining.remove(expected[-1])
    else:
        counts = Counter(machines.ravel().tolist())
        keys = [sorted((-counts[machine], machine) for machine in block)[:8] for block in sets]
        expected = sorted(range(blocks), key=keys.__getitem__)
    assert order_blocks(machines, available.tolist()).tolist() == expected
