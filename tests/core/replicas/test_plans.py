"""Who computes which rows of a sparse X: what a plan promises."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.holders import spread_copies
from cec_mpi.core.replicas.parts import cut_parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaPlanner
from cec_mpi.errors import InfeasibleError, InputError


def indptr_of(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def made(counts, machines, copies, stragglers=0, parts=None, cells=64, speeds=None):
    """Parts of rows with so many nonzeros, on machines, and a planner of them."""
    cut = cut_parts(indptr_of(counts), parts or 8 * machines, cells)
    holders = spread_copies(cut.count, speeds or [1.0] * machines, copies)
    placement = ReplicaPlacement(holders, cut.bounds.tolist(), machines)
    return cut, placement, ReplicaPlanner(cut, placement, stragglers)


def check(plan, placement, available, copies):
    """Each row is computed by so many different machines, all of which hold it and are there."""
    rows = placement.bounds[-1]
    times = np.zeros((rows, placement.machines), int)
    for block in plan.assignment.blocks:
        assert block.start < block.stop
        times[block.start : block.stop, np.array(block.machines) - 1] += 1
    assert times.max() == 1
    assert (times.sum(axis=1) == copies).all()
    for row, each in enumerate(times):
        computing = set((np.flatnonzero(each) + 1).tolist())
        assert computing <= set(placement.holders_of(row)) & set(available)


@st.composite
def situations(draw):
    machines = draw(st.integers(1, 7))
    copies = draw(st.integers(1, machines))
    stragglers = draw(st.integers(0, copies))
    counts = draw(st.lists(st.integers(0, 30) | st.just(1000), min_size=1, max_size=120))
    parts, cells = draw(st.integers(1, 20)), draw(st.integers(1, 10))
    speeds = draw(st.lists(st.floats(0.1, 10), min_size=machines, max_size=machines))
    numbers = st.integers(1, machines)
    available = tuple(sorted(draw(st.sets(numbers, min_size=1, max_size=machines))))
    return (counts, machines, copies, stragglers, parts, cells), tuple(speeds), available


@given(situations())
def test_each_row_is_computed_by_machines_that_hold_it(situation):
    numbers, speeds, available = situation
    stragglers = numbers[3]
    cut, placement, planner = made(*numbers)
    least = placement.min_holders(available)
    if not least:
        lost = {each for each in placement.holders if not set(each) & set(available)}
        with pytest.raises(InfeasibleError, match=r"on no available machine: part \d+") as caught:
            planner.plan(available, speeds)
        assert any(str(caught.value).endswith(" or ".join(map(str, each))) for each in lost)
        return
    plan = planner.plan(available, speeds)
    check(plan, placement, available, min(1 + stragglers, least))
    # What it costs is what the rows cost, and the slowest machine sets the time.
    costs = np.diff(indptr_of(numbers[0])) + cut.row_cost
    for n, cost in enumerate(plan.costs, start=1):
        exact = sum(costs[start:stop].sum() for start, stop in plan.assignment.intervals(n))
        assert cost == pytest.approx(exact)
    assert plan.makespan == pytest.approx((plan.costs / np.array(speeds)).max())
    assert plan.makespan >= plan.bound * (1 - 1e-8) or len(plan.assignment.blocks) < 2


@pytest.mark.parametrize("stragglers", [0, 1])
@pytest.mark.parametrize(("machines", "copies"), [(6, 3), (30, 3), (12, 4)])
def test_a_plan_takes_hardly_more_than_the_least_time(machines, copies, stragglers):
    rng = np.random.default_rng(machines)
    counts = rng.zipf(2.0, 60_000) % 100
    _, _, planner = made(counts, machines, copies, stragglers)
    for gone in range(copies - stragglers):
        available = tuple(range(1 + gone, machines + 1))
        plan = planner.plan(available, tuple(rng.uniform(1, 4, machines).tolist()))
        assert plan.bound * (1 - 1e-8) <= plan.makespan <= 1.02 * plan.bound


@pytest.mark.parametrize("stragglers", [0, 1])
@pytest.mark.parametrize(("machines", "copies"), [(30, 3), (100, 2), (100, 3)])
def test_rows_that_cost_much_lengthen_a_plan_hardly(machines, copies, stragglers):
    """A hundred rows cost a tenth to a third of what a machine has to do."""
    rng = np.random.default_rng(machines)
    counts = rng.integers(1, 30, 60_000)
    share = counts.sum() / machines
    heavy = rng.choice(counts.size, 100, replace=False)
    counts[heavy] = rng.uniform(0.1, 0.3, heavy.size) * share
    _, _, planner = made(counts, machines, copies, stragglers)
    speeds = tuple(rng.uniform(1, 3, machines).tolist())
    plan = planner.plan(tuple(range(1, machines + 1)), speeds)
    assert plan.bound * (1 - 1e-8) <= plan.makespan <= 1.02 * plan.bound


def least_of_whole_rows(costs, holders, speeds, copies):
    """The least makespan of rows that are not cut: all choices of machines, by brute force."""
    loads, best = np.zeros(len(speeds)), np.inf
    choices = [combinations(each, copies) for each in holders]
    for choice in product(*choices):
        loads[:] = 0
        for cost, machines in zip(costs, choice, strict=True):
            loads[np.array(machines) - 1] += cost
        best = min(best, (loads / speeds).max())
    return best


@pytest.mark.parametrize("stragglers", [0, 1])
def test_a_plan_of_a_few_rows_is_near_the_optimum(stragglers):
    ratios = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        machines, rows = int(rng.integers(2, 5)), int(rng.integers(1, 6))
        speeds = 10 ** rng.uniform(-2, 2, machines)
        counts = [np.full(rows, 14), rng.integers(0, 31, rows)][seed % 2]
        cut = cut_parts(indptr_of(counts), 8 * machines)
        each = int(rng.integers(1 + stragglers, machines + 1))
        holders = tuple(
            tuple(sorted((1 + rng.choice(machines, each, replace=False)).tolist()))
            for _ in range(cut.count)
        )
        placement = ReplicaPlacement(holders, cut.bounds.tolist(), machines)
        planner = ReplicaPlanner(cut, placement, stragglers)
        available = tuple(range(1, machines + 1))
        plan = planner.plan(available, tuple(speeds.tolist()))
        check(plan, placement, available, 1 + stragglers)
        rows_held = [placement.holders_of(row) for row in range(rows)]
        best = least_of_whole_rows(counts + cut.row_cost, rows_held, speeds, 1 + stragglers)
        ratios.append(plan.makespan / best)
    assert min(ratios) > 1 - 1e-9
    assert max(ratios) < 1.5
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.9


def test_a_row_takes_as_long_as_on_its_fastest_machine():
    """It costs more than all others: nothing else is there for the machine that has it."""
    counts = np.ones(600, int)
    counts[0] = 10_000
    cut, placement, planner = made(counts, 6, 3)
    speeds = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
    plan = planner.plan((1, 2, 3, 4, 5, 6), speeds)
    fastest = max(speeds[n - 1] for n in placement.holders_of(0))
    assert plan.bound == pytest.approx((10_000 + cut.row_cost) / fastest)
    assert plan.makespan == pytest.approx(plan.bound)


def test_a_plan_is_the_same_object_while_nothing_changes():
    _, _, planner = made(range(100), 4, 2)
    everyone, speeds = (1, 2, 3, 4), (1.0, 2.0, 3.0, 4.0)
    first = planner.plan(everyone, speeds)
    assert planner.plan(tuple(everyone), tuple(speeds)) is first
    other = planner.plan((1, 3, 4), speeds)
    assert other is not first
    assert planner.plan((1, 2, 3, 4), (1.0, 2.0, 3.0, 4.0)) is first
    assert planner.plan(everyone, (1.0, 2.0, 3.0, 5.0)) is not first


def test_speeds_of_machines_that_are_away_do_not_matter():
    _, _, planner = made(range(300), 4, 3)
    one = planner.plan((1, 2, 4), (1.0, 2.0, 9.0, 1.0))
    other = planner.plan((1, 2, 4), (1.0, 2.0, 0.1, 1.0))
    assert one.assignment == other.assignment
    assert (one.makespan, one.bound) == (other.makespan, other.bound)


def test_a_machine_that_alone_holds_a_part_is_the_bound():
    """Two machines of three are left; one holds a third of X alone, and is slow."""
    cut = cut_parts(np.arange(0, 601, 2), 3, 64)
    placement = ReplicaPlacement(((1, 2), (2, 3), (1, 3)), cut.bounds.tolist(), 3)
    plan = ReplicaPlanner(cut, placement).plan((2, 3), (1.0, 1.0, 0.1))
    alone = cut.costs[2] / 0.1
    assert plan.bound == pytest.approx(alone, rel=1e-6)
    assert plan.makespan == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize(
    ("available", "speeds", "message"),
    [
        ((), (1.0, 1.0, 1.0), "expected ascending numbers from 1"),
        ((2, 1), (1.0, 1.0, 1.0), "expected ascending numbers from 1"),
        ((1, 1), (1.0, 1.0, 1.0), "expected ascending numbers from 1"),
        ((0, 1), (1.0, 1.0, 1.0), "expected ascending numbers from 1"),
        ((1, 2, 3), (1.0, 0.0, 1.0), "position 2 is 0.0"),
        ((1, 2, 3), (1.0, np.nan, 1.0), "position 2 is nan"),
    ],
)
def test_what_cannot_be_planned_is_refused(available, speeds, message):
    _, _, planner = made(range(20), 3, 2)
    with pytest.raises(InputError, match=message):
        planner.plan(available, speeds)


def test_losses_that_a_placement_can_and_cannot_bear():
    """As brute force counts them."""
    _, placement, _ = made(range(400), 7, 3)
    for size in range(8):
        for some in combinations(range(1, 8), size):
            least = min(len(set(each) & set(some)) for each in placement.holders)
            assert placement.min_holders(some) == least
            assert placement.tolerated_losses(1, some) == least - 1
