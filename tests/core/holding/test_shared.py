"""Shards that several machines hold: against linear and integer programs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from cec_mpi.core.holding.explain import explain_holding
from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.core.holding.shared import least_shared_time, shared_loads
from cec_mpi.errors import InputError


@st.composite
def problems(draw):
    """(holding, speeds, recovery, rows), with shards on no, one or several machines."""
    machines, shards = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    some = st.sets(st.integers(1, shards))
    held = [draw(some) for _ in range(machines)]
    held[draw(st.integers(0, machines - 1))] |= {draw(st.integers(1, shards))}
    numbers = st.integers(1, 9) if draw(st.booleans()) else st.floats(0.01, 100)
    speeds = draw(st.lists(numbers, min_size=machines, max_size=machines))
    recovery = draw(st.integers(1, len(set().union(*held))))
    rows = draw(st.sampled_from([1, 2, 7, 100]))
    return Holding(tuple(tuple(sorted(mine)) for mine in held)), speeds, recovery, rows


def program(held, speeds, recovery, rows, whole):
    """The smallest makespan, with whole rows or without."""
    size = held.shards.size + 1
    times = np.zeros((len(speeds), size))
    times[held.machines, np.arange(size - 1)], times[:, -1] = 1, -np.array(speeds)
    once = np.zeros((int(held.shards.max()) + 1, size))
    once[held.shards, np.arange(size - 1)] = 1
    every = np.append(np.ones(size - 1), 0)[None]
    cost = np.append(np.zeros(size - 1), 1)
    found = milp(
        cost,
        constraints=[
            LinearConstraint(times, -np.inf, 0),
            LinearConstraint(once, -np.inf, rows),
            LinearConstraint(every, recovery * rows, recovery * rows),
        ],
        integrality=(1 - cost) * whole,
        bounds=Bounds(0, np.inf),
        options={"mip_rel_gap": 0, "presolve": False},  # SciPy 1.13 makes times whole in it
    )
    return found.fun


@settings(max_examples=50, deadline=None, database=None)
@given(problems())
def test_no_rows_are_done_sooner(problem):
    holding, speeds, recovery, rows = problem
    held, speeds = holding.among(range(1, holding.machines + 1)), np.array(speeds, float)
    parts, bound = shared_loads(held, speeds, recovery, rows)
    assert parts.sum() == recovery * rows
    assert parts.min() >= 0
    assert np.bincount(held.shards, parts).max() <= rows
    time = max(np.bincount(held.machines, parts, len(speeds)) / speeds)
    # The solver may miss the optimum by 1e-6 of the unit of time.
    best = pytest.approx(program(held, speeds, recovery, rows, whole=1), rel=1e-6, abs=2e-6)
    assert time == best
    assert bound == pytest.approx(program(held, speeds, recovery, rows, whole=0), rel=1e-7)
    assert bound <= time * (1 + 1e-12)


@settings(max_examples=60, deadline=None, database=None)
@given(problems(), st.sampled_from(["heterogeneous", "cyclic"]))
def test_no_row_of_a_shard_is_computed_twice(problem, scheme):
    holding, speeds, recovery, rows = problem
    available = tuple(range(1, holding.machines + 1))
    plan = plan_holding(holding, available, speeds, recovery, rows, scheme=scheme)
    spans = sorted((block.start, block.stop) for block in plan.blocks)
    assert [spans[0][0], spans[-1][1]] == [0, rows]
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    by = {}  # machine, of each row of each shard
    for machine in available:
        for shard, intervals in plan.intervals(machine).items():
            assert shard in holding.of(machine)
            for start, stop in intervals:
                for row in range(start, stop):
                    assert (shard, row) not in by
                    by[shard, row] = machine
    assert len(by) == recovery * rows
    for block in plan.blocks:
        assert len(set(block.shards)) == recovery
        for row in block.start, block.stop - 1:
            assert tuple(by[shard, row] for shard in block.shards) == block.machines
    loads = np.bincount(list(by.values()), minlength=holding.machines + 1)[1:]
    assert loads.tolist() == plan.loads.tolist() == [plan.count(n) for n in available]
    assert plan.makespan == pytest.approx(max(loads / np.array(speeds)))
    assert plan.bound <= plan.makespan * (1 + 1e-12)


# --- a machine that was away is back ------------------------------------------------------


def test_a_machine_that_is_back_shares_what_another_took_over():
    """Three machines with a shard each, L = 2; machine 1 took over that of 3 and keeps it."""
    holding = Holding(((1, 3), (2,), (3,)))
    alone = plan_holding(holding, (1,), (1, 1, 1), 2, 6)
    assert (alone.makespan, alone.intervals(1)) == (12, {1: ((0, 6),), 3: ((0, 6),)})
    without = plan_holding(holding, (1, 2), (1, 1, 1), 2, 6)
    assert without.loads.tolist() == [6, 6]
    back = plan_holding(holding, (1, 2, 3), (1, 1, 1), 2, 6)
    assert (back.loads.tolist(), back.makespan, back.bound) == ([4, 4, 4], 4, 4)


def test_rows_of_one_shard_on_two_machines():
    holding = Holding(((1, 3), (2, 3)))
    plan = plan_holding(holding, (1, 2), (1, 1), 3, 10)
    assert plan.loads.tolist() == [15, 15]
    assert dict(plan.splits) == {3: ((1, 5), (2, 5))}
    assert plan.intervals(1) == {1: ((0, 10),), 3: ((0, 5),)}
    assert plan.intervals(2) == {2: ((0, 10),), 3: ((5, 10),)}
    assert [(b.start, b.stop, b.shards, b.machines) for b in plan.blocks] == [
        (0, 5, (1, 2, 3), (1, 2, 1)),
        (5, 10, (1, 2, 3), (1, 2, 2)),
    ]
    told = explain_holding(holding, (1, 2), [1, 1], 3, 10)
    assert told["blocks"][1] == {"start": 5, "stop": 10, "shards": [1, 2, 3], "machines": [1, 2, 2]}


@pytest.mark.parametrize(
    ("shards", "speeds", "recovery", "time"),
    [
        # Who holds all is as good as anybody: L over all speeds.
        (((1, 2, 3), (1, 2, 3)), (1, 2), 3, 1),
        # Machine 2 has one shard alone, and the slow one has to do the rest.
        (((1, 2), (3,)), (1, 9), 3, 2),
        # It helps with the second, of which the slow machine then does a part.
        (((1, 2), (2, 3)), (1, 9), 3, 1),
        # Two bottlenecks, one after the other: machine 1, and then 1 and 2.
        (((1, 2), (2, 3), (3, 4)), (1, 1, 8), 4, 1),
        (((1, 2), (2, 3), (3, 4)), (0.5, 0.5, 8), 4, 2),
    ],
)
def test_bottlenecks(shards, speeds, recovery, time):
    held = Holding(shards).among(range(1, len(shards) + 1))
    assert least_shared_time(held, np.array(speeds, float), recovery) == pytest.approx(time)


def test_many_rows_and_speeds_that_hardly_compare():
    held = Holding(((1, 2), (2, 3), (3,))).among((1, 2, 3))
    rows = 2**40
    parts, bound = shared_loads(held, np.array([1.0, 1e-9, 1e9]), 3, rows)
    assert parts.sum() == 3 * rows
    loads = np.bincount(held.machines, parts)
    assert max(loads / [1.0, 1e-9, 1e9]) == pytest.approx(bound, rel=1e-9)


def test_any_unit_of_speed():
    held = Holding(((1, 2), (2, 3))).among((1, 2))
    for unit in 1e-290, 1.0, 1e290:
        speeds = np.array([1.0, 3.0]) * unit
        parts, bound = shared_loads(held, speeds, 3, 10)
        assert (parts.tolist(), bound) == ([10, 0, 10, 10], pytest.approx(10 / unit))
    with pytest.raises(InputError, match="speeds from 1e-300 to 1 of machines of which several"):
        least_shared_time(held, np.array([1e-300, 1.0]), 2)


def test_more_rows_than_floats_count():
    """Times so close to each other that rounding errors reach from one to the next."""
    held = Holding(((1,), (2, 3), (1, 3), (4,), (5,))).among(range(1, 6))
    speeds = np.array([1.0881647765455630, 0.9910425, 0.9694645, 0.8092517, 0.7708612])
    parts, bound = shared_loads(held, speeds, 5, 2**48)
    assert parts.sum() == 5 * 2**48
    assert max(np.bincount(held.machines, parts) / speeds) == pytest.approx(bound, rel=1e-12)


def test_shared_shards_have_no_tolerance_yet():
    with pytest.raises(InputError, match="expected no stragglers, or each shard on one machine"):
        plan_holding(Holding(((1, 2), (2, 3))), (1, 2), (1, 1), 1, 10, stragglers=1)
