"""Where blocks lie along the rows: few intervals for each machine."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest

from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.plan.schemes import heterogeneous, order_along_rows

SPEEDS = (2, 2, 3, 3, 4, 4)  # the example of the paper, Section III


def intervals_in_order(sets, order):
    """Intervals of all machines together with the blocks in this order along the rows."""
    along = [sets[f] for f in order]
    return len(along[0]) + sum(len(after - before) for before, after in pairwise(along))


def random_plan(machines, machines_per_row, seed, fastest=8.0):
    speeds = np.random.default_rng(seed).uniform(1, fastest, machines)
    loads = whole_row_load(speeds, machines_per_row, 10_000)
    return heterogeneous(tuple(range(1, machines + 1)), loads, machines_per_row)


def intervals_of(plan):
    return sum(len(plan.intervals(n)) for n in plan.available)


def sets_of(plan):
    return [set(block.machines) for block in plan.blocks]


@pytest.mark.parametrize(
    ("available", "fewest"),
    [((1, 2, 3, 4, 5, 6), 7), ((1, 2, 3, 5, 6), 6), ((1, 2, 3, 5), 5), ((2, 3, 5), 3)],
)
def test_the_papers_example_has_the_fewest_intervals_of_all_orders(available, fewest):
    loads = whole_row_load([SPEEDS[n - 1] for n in available], 3, 420)
    plan = heterogeneous(available, loads, 3)
    sets = sets_of(plan)
    every_order = [intervals_in_order(sets, order) for order in permutations(range(len(sets)))]
    assert intervals_of(plan) == fewest == min(every_order)


@pytest.mark.parametrize("machines", [3, 4, 5, 6])
def test_small_plans_are_within_one_interval_of_the_best_order(machines):
    compared = 0
    for seed in range(60):
        plan = random_plan(machines, 1 + seed % machines, seed)
        sets = sets_of(plan)
        if len(sets) <= 5:
            orders = permutations(range(len(sets)))
            best = min(intervals_in_order(sets, order) for order in orders)
            assert intervals_of(plan) <= best + 1
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize(
    ("machines", "machines_per_row", "plans", "at_most"),
    [
        (6, 3, 100, 0.95),
        (10, 5, 100, 0.9),
        (20, 10, 50, 0.85),
        (100, 10, 5, 0.65),
        (300, 150, 2, 0.75),
        (600, 10, 2, 0.8),
    ],
)
def test_plans_have_fewer_intervals_than_in_the_order_of_algorithm_1(
    machines, machines_per_row, plans, at_most
):
    placed = unplaced = 0
    for seed in range(plans):
        plan = random_plan(machines, machines_per_row, seed)
        placed += intervals_of(plan)
        unplaced += intervals_in_order(sets_of(plan), range(len(plan.starts)))
    assert placed <= at_most * unplaced


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
