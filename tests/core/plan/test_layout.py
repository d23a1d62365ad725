"""Where blocks lie along the rows: few intervals for each machine."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest

from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.plan.schemes import heterogeneous, order_along_rows

SPEEDS = (2, 2, 3, 3, 4, 4)  # the example of the paper, Section III


def intervals_in_order(sets, order):
    """Intervals of all machines, with the blocks in this order along the rows."""
    along = [sets[f] for f in order]
    return len(along[0]) + sum(len(after - before) for before, after in pairwise(along))


@pytest.mark.parametrize(
    ("available", "fewest"),
    [((1, 2, 3, 4, 5, 6), 7), ((1, 2, 3, 5, 6), 6), ((1, 2, 3, 5), 5), ((2, 3, 5), 3)],
)
def test_the_papers_example_has_the_fewest_intervals_of_all_orders(available, fewest):
    loads = whole_row_load([SPEEDS[n - 1] for n in available], 3, 420)
    plan = heterogeneous(available, loads, 3)
    sets = [set(block.machines) for block in plan.blocks]
    found = sum(len(plan.intervals(n)) for n in available)
    every_order = [intervals_in_order(sets, order) for order in permutations(range(len(sets)))]
    assert found == fewest == min(every_order)


def drawn(blocks, machines_per_row):
    """Blocks on some of 60 machines, and the numbers of these."""
    rng = np.random.default_rng(blocks)
    available = np.sort(rng.choice(np.arange(1, 500), 60, replace=False))
    machines = [
        np.sort(rng.choice(available, machines_per_row, replace=False)) for _ in range(blocks)
    ]
    return np.array(machines, dtype=np.int32), available.tolist()


@pytest.mark.parametrize("blocks", [1, 40, 250])
@pytest.mark.parametrize("machines_per_row", [1, 9, 40])
def test_each_block_is_followed_by_the_one_left_that_shares_most_machines(blocks, machines_per_row):
    machines, available = drawn(blocks, machines_per_row)
    sets = [set(block) for block in machines.tolist()]
    order, left = [0], list(range(1, blocks))
    while left:
        order.append(max(left, key=lambda block: len(sets[block] & sets[order[-1]])))
        left.remove(order[-1])
    assert order_along_rows(machines, available).tolist() == order


@pytest.mark.parametrize(("blocks", "machines_per_row"), [(300, 9), (8000, 40)])
def test_very_many_blocks_are_sorted_by_the_machines_that_are_in_most(blocks, machines_per_row):
    machines, available = drawn(blocks, machines_per_row)
    counts = Counter(machines.ravel().tolist())
    rank = {machine: (-counts[machine], machine) for machine in available}
    keys = [sorted(rank[machine] for machine in block)[:8] for block in machines.tolist()]
    expected = sorted(range(blocks), key=keys.__getitem__)
    assert order_along_rows(machines, available).tolist() == expected
