"""Parts of a sparse X, and plans of steps with copies of them."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.holders import spread_copies
from cec_mpi.core.replicas.parts import ROW_OVERHEAD, cut_parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaPlanner
from cec_mpi.errors import InfeasibleError, InputError


def row_pointers(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


# --- parts --------------------------------------------------------------------------------


@given(
    counts=st.lists(st.integers(0, 40) | st.just(5000), min_size=1, max_size=200),
    parts=st.integers(1, 50),
    cells=st.integers(1, 20),
)
def test_parts_partition_the_rows_at_about_equal_costs(counts, parts, cells):
    indptr = row_pointers(counts)
    cut = cut_parts(indptr, parts, cells)
    rows = cut.first_rows
    assert 1 <= cut.count <= min(parts, len(counts))
    for bounds in (cut.bounds, rows):
        assert (bounds[0], bounds[-1]) == (0, len(counts))
        assert (np.diff(bounds) > 0).all()
    assert np.array_equal(cut.entries_before, indptr[rows])
    costs = np.array(counts) + ROW_OVERHEAD
    np.testing.assert_allclose(cut.costs, np.add.reduceat(costs, cut.bounds[:-1]))
    # A part costs at most its share and half a row at each end.
    assert cut.costs.max() <= costs.sum() / min(parts, len(counts)) + costs.max() + 1e-6
    np.testing.assert_allclose(cut.cost(rows[:-1], rows[1:]), np.diff(cut.cost_before))


@pytest.mark.parametrize(
    ("counts", "parts", "expected"),
    [
        ([1] * 100 + [10_000] + [1] * 100, 8, [0, 100, 101, 201]),
        ([1000] + [0] * 49, 4, [0, 1, 50]),
        ([0] * 49 + [1000], 4, [0, 49, 50]),
    ],
)
def test_an_expensive_row_is_a_part(counts, parts, expected):
    assert cut_parts(row_pointers(counts), parts, 4).bounds.tolist() == expected


def test_pointers_may_be_a_memory_map_of_int32(tmp_path):
    indptr = row_pointers(np.full(1000, 4)).astype(np.int32)
    np.save(tmp_path / "indptr.npy", indptr)
    cut = cut_parts(np.load(tmp_path / "indptr.npy", mmap_mode="r"), 5, 3)
    assert np.array_equal(cut.bounds, cut_parts(indptr, 5, 3).bounds)
    assert cut.entries_before.dtype == np.int64


def test_a_matrix_without_rows_is_rejected():
    with pytest.raises(InputError, match="a matrix without rows"):
        cut_parts(np.array([0]), 3, 3)


# --- plans --------------------------------------------------------------------------------


def make_planner(counts, machines, copies, stragglers=0, parts=None, cells=64):
    """Return the parts of rows with these nonzeros, their placement, and a planner."""
    cut = cut_parts(row_pointers(counts), parts or 8 * machines, cells)
    holders = spread_copies(cut.count, [1.0] * machines, copies)
    placement = ReplicaPlacement(holders, cut.bounds.tolist(), machines)
    return cut, placement, ReplicaPlanner(cut, placement, stragglers)


def check_plan(plan, placement, available, machines_per_row):
    """Check that each row is assigned to this many different available holders."""
    is_assigned = np.zeros((placement.bounds[-1], placement.machines), int)
    for block in plan.assignment.blocks:
        is_assigned[block.start : block.stop, np.array(block.machines) - 1] += 1
    assert is_assigned.max() == 1
    assert (is_assigned.sum(axis=1) == machines_per_row).all()
    for row, assigned in enumerate(is_assigned):
        machines = set((np.flatnonzero(assigned) + 1).tolist())
        assert machines <= set(placement.holders_of(row)) & set(available)


@given(st.data())
def test_rows_are_assigned_to_available_holders(data):
    machines = data.draw(st.integers(1, 7), "machines")
    copies = data.draw(st.integers(1, machines), "copies")
    stragglers = data.draw(st.integers(0, copies), "stragglers")
    row = st.integers(0, 30) | st.just(1000)
    counts = data.draw(st.lists(row, min_size=1, max_size=120), "nonzeros")
    parts, cells = data.draw(st.integers(1, 20), "parts"), data.draw(st.integers(1, 10), "cells")
    speed = st.floats(0.1, 10)
    speeds = tuple(data.draw(st.lists(speed, min_size=machines, max_size=machines), "speeds"))
    available = st.sets(st.integers(1, machines), min_size=1, max_size=machines)
    available = tuple(sorted(data.draw(available, "available")))
    cut, placement, planner = make_planner(counts, machines, copies, stragglers, parts, cells)
    min_holders = placement.min_holders(available)
    if not min_holders:
        lost_parts = {n for n in placement.holders if not set(n) & set(available)}
        with pytest.raises(InfeasibleError, match=r"no available machine .*: part \d+") as error:
            planner.plan(available, speeds)
        assert any(str(error.value).endswith(" or ".join(map(str, n))) for n in lost_parts)
        return
    plan = planner.plan(available, speeds)
    check_plan(plan, placement, available, min(1 + stragglers, min_holders))
    costs = np.array(counts) + cut.row_cost
    for n, cost in enumerate(plan.costs, start=1):
        exact = sum(costs[start:stop].sum() for start, stop in plan.assignment.intervals(n))
        assert cost == pytest.approx(exact)
    assert plan.makespan == pytest.approx((plan.costs / np.array(speeds)).max())
    assert plan.makespan >= plan.bound * (1 - 1e-6) or len(plan.assignment.blocks) < 2


@pytest.mark.parametrize("stragglers", [0, 1])
@pytest.mark.parametrize(
    ("machines", "copies", "has_expensive_rows"),
    [(6, 3, False), (12, 4, False), (30, 3, True), (100, 2, True), (100, 3, True)],
)
def test_plans_are_within_2_percent_of_the_bound(machines, copies, has_expensive_rows, stragglers):
    rng = np.random.default_rng(machines)
    counts = rng.zipf(2.0, 60_000) % 100
    if has_expensive_rows:  # each costs from a tenth to a third of a machine's load
        counts = rng.integers(1, 30, 60_000)
        rows = rng.choice(counts.size, 100, replace=False)
        counts[rows] = rng.uniform(0.1, 0.3, rows.size) * counts.sum() / machines
    _, _, planner = make_planner(counts, machines, copies, stragglers)
    for losses in range(1 if has_expensive_rows else copies - stragglers):
        available = tuple(range(1 + losses, machines + 1))
        plan = planner.plan(available, tuple(rng.uniform(1, 3, machines).tolist()))
        assert plan.bound * (1 - 1e-6) <= plan.makespan <= 1.02 * plan.bound


def optimal_makespan(costs, holders, speeds, machines_per_row):
    """Return the minimum makespan of whole rows by brute force."""
    best = np.inf
    for choice in product(*(combinations(machines, machines_per_row) for machines in holders)):
        loads = np.zeros(len(speeds))
        for cost, machines in zip(costs, choice, strict=True):
            loads[np.array(machines) - 1] += cost
        best = min(best, (loads / speeds).max())
    return best


@pytest.mark.parametrize("stragglers", [0, 1])
def test_plans_of_few_rows_are_nearly_optimal(stragglers):
    ratios = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        machines, rows = int(rng.integers(2, 5)), int(rng.integers(1, 6))
        speeds = 10 ** rng.uniform(-2, 2, machines)
        counts = [np.full(rows, 14), rng.integers(0, 31, rows)][seed % 2]
        cut = cut_parts(row_pointers(counts), 8 * machines)
        copies = int(rng.integers(1 + stragglers, machines + 1))
        holders = tuple(
            tuple(sorted((1 + rng.choice(machines, copies, replace=False)).tolist()))
            for _ in range(cut.count)
        )
        placement = ReplicaPlacement(holders, cut.bounds.tolist(), machines)
        available = tuple(range(1, machines + 1))
        planner = ReplicaPlanner(cut, placement, stragglers)
        plan = planner.plan(available, tuple(speeds.tolist()))
        check_plan(plan, placement, available, 1 + stragglers)
        row_holders = [placement.holders_of(row) for row in range(rows)]
        best = optimal_makespan(counts + cut.row_cost, row_holders, speeds, 1 + stragglers)
        ratios.append(plan.makespan / best)
    assert 1 - 1e-9 < min(ratios) <= max(ratios) < 1.5
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.9


def test_the_most_expensive_row_is_assigned_to_its_fastest_holder():
    counts, speeds = np.array([10_000] + [1] * 599), (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
    cut, placement, planner = make_planner(counts, 6, 3)
    plan = planner.plan((1, 2, 3, 4, 5, 6), speeds)
    fastest = max(speeds[n - 1] for n in placement.holders_of(0))
    assert plan.bound == pytest.approx((10_000 + cut.row_cost) / fastest)
    assert plan.makespan == pytest.approx(plan.bound)


def test_a_slow_single_holder_determines_the_bound():
    cut = cut_parts(np.arange(0, 601, 2), 3, 64)
    placement = ReplicaPlacement(((1, 2), (2, 3), (1, 3)), cut.bounds.tolist(), 3)
    plan = ReplicaPlanner(cut, placement).plan((2, 3), (1.0, 1.0, 0.1))
    assert plan.bound == pytest.approx(cut.costs[2] / 0.1, rel=1e-6)
    assert plan.makespan == pytest.approx(plan.bound, rel=1e-6)


def test_tolerated_losses_are_those_of_brute_force():
    _, placement, _ = make_planner(range(400), 7, 3)
    for count in range(8):
        for machines in combinations(range(1, 8), count):
            expected = min(len(set(holders) & set(machines)) for holders in placement.holders)
            assert placement.min_holders(machines) == expected
            assert placement.tolerated_losses(1, machines) == expected - 1
