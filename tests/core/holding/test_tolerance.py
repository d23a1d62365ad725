"""Rows that outlast the loss of S machines: against linear and integer programs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.mixing import Problem, best_parts
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.core.holding.tolerance import tolerant_loads
from cec_mpi.errors import InfeasibleError, InputError


@st.composite
def problems(draw, most_machines=6, most_shards=4):
    """(speeds, counts, recovery, stragglers), feasible or not."""
    machines = draw(st.integers(1, most_machines))
    speeds = draw(st.lists(st.integers(1, 12), min_size=machines, max_size=machines))
    counts = draw(st.lists(st.integers(1, most_shards), min_size=machines, max_size=machines))
    recovery = draw(st.integers(1, max(1, sum(counts) - 1)))
    return np.array(speeds, float), np.array(counts), recovery, draw(st.integers(1, 2))


def survivors(row, stragglers):
    """Shards of a row that are left when the machines with most of them are gone."""
    return sum(sorted(row)[: max(0, len(row) - stragglers)])


def over_all_kinds_of_rows(speeds, counts, recovery, stragglers):
    """The least T, where a row may have any numbers of shards of the machines; None if none."""
    kinds = [
        row
        for row in product(*(range(count + 1) for count in counts))
        if survivors(row, stragglers) == recovery
    ]
    if not kinds:
        return None
    found = linprog(
        np.append(np.zeros(len(kinds)), 1.0),
        np.column_stack([np.array(kinds).T, -speeds]),
        np.zeros(len(speeds)),
        np.append(np.ones(len(kinds)), 0.0)[None],
        [1.0],
    )
    return found.fun


def program(problem, speeds, rows):
    """The program over types with whole numbers of rows."""
    machines, types = problem.limits.shape
    loads, parts = machines * types, types
    size = loads + parts + 1
    lines, low, high = [], [], []

    def add(line, least, most):
        lines.append(line)
        low.append(least)
        high.append(most)

    for n in range(machines):
        line = np.zeros(size)
        line[n * types : (n + 1) * types], line[-1] = 1, -speeds[n]
        add(line, -np.inf, 0)
        for b in range(types):
            line = np.zeros(size)
            line[n * types + b], line[loads + b] = 1, -problem.limits[n, b]
            add(line, -np.inf, 0)
    for b in range(types):
        line = np.zeros(size)
        line[b:loads:types], line[loads + b] = 1, -problem.copies[b]
        add(line, 0, 0)
    line = np.zeros(size)
    line[loads : loads + parts] = 1
    add(line, rows, rows)
    cost = np.zeros(size)
    cost[-1] = 1
    return milp(
        cost,
        constraints=LinearConstraint(np.array(lines), low, high),
        integrality=1 - cost,
        bounds=Bounds(0, np.inf),
    ).fun


@settings(max_examples=40, deadline=None, database=None)
@given(problems(most_machines=5, most_shards=3))
def test_types_are_as_good_as_all_kinds_of_rows(case):
    best = over_all_kinds_of_rows(*case)
    if best is None:
        with pytest.raises(InfeasibleError):
            Problem(*case)
        return
    found = best_parts(Problem(*case))
    assert found.bound == pytest.approx(best, rel=1e-7)
    assert found.parts.sum() == pytest.approx(1)


@settings(max_examples=40, deadline=None, database=None)
@given(problems(), st.integers(1, 5))
def test_whole_rows_against_the_integer_program(case, rows):
    try:
        problem = Problem(*case)
    except InfeasibleError:
        return
    speeds, counts, recovery, stragglers = case
    types, bound = tolerant_loads(problem, rows)
    assert sum(each.rows for each in types) == rows
    for each in types:
        assert each.loads.sum() == (recovery + stragglers * each.at_most) * each.rows
        assert (each.loads <= np.minimum(counts, each.at_most) * each.rows).all()
        assert (each.loads >= 0).all()
    time = max(sum(each.loads for each in types) / speeds)
    best = program(problem, speeds, rows)
    assert bound <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= time <= best + 2 / min(speeds)  # seldom not best, and then nearly


def test_whole_rows_are_nearly_always_those_of_the_integer_program():
    rng, best = np.random.default_rng(3), []
    while len(best) < 40:
        machines = int(rng.integers(3, 7))
        counts, speeds = rng.integers(1, 5, machines), rng.integers(1, 9, machines).astype(float)
        recovery, rows = int(rng.integers(2, counts.sum())), int(rng.integers(2, 9))
        try:
            problem = Problem(speeds, counts, recovery, 1)
        except InfeasibleError:
            continue
        types, _ = tolerant_loads(problem, rows)
        time = max(sum(each.loads for each in types) / speeds)
        best.append(time <= program(problem, speeds, rows) * (1 + 1e-7))
    assert sum(best) >= 36  # parts that are equally good in fractions can round differently


def test_with_one_shard_each_a_row_has_shards_of_l_plus_s_machines():
    """The paper's example, as its authors' follow-up has it: c* is 2/9 and 2/7."""
    for speeds, level in ((2, 2, 3, 3, 4, 4), 2 / 9), ((2, 2, 3, 4, 4), 2 / 7):
        problem = Problem(np.array(speeds, float), np.ones(len(speeds), np.int64), 3, 1)
        types, bound = tolerant_loads(problem, 630)
        assert [each.at_most for each in types] == [1]
        assert bound == pytest.approx(level * 630)
        assert max(types[0].loads / speeds) == pytest.approx(level * 630)


@pytest.mark.parametrize(
    ("counts", "recovery", "parts", "level", "alone"),
    [
        ((2, 3, 3), 2, (4 / 5, 1 / 5, 0), 2 / 5, 1 / 2),
        ((1, 2, 2), 2, (2 / 3, 1 / 3), 2 / 3, 4 / 5),
        ((2, 3, 3, 3), 3, (10 / 13, 3 / 13, 0), 5 / 13, 5 / 11),
    ],
)
def test_one_type_alone_takes_up_to_a_quarter_longer(counts, recovery, parts, level, alone):
    speeds = np.array(counts, float)  # as fast as they have shards
    found = best_parts(Problem(speeds, np.array(counts), recovery, 1))
    assert found.parts == pytest.approx(parts)
    assert (found.bound, found.alone.min()) == pytest.approx((level, alone))


def test_l_plus_s_shards_are_not_enough_for_a_machine_with_two_of_them():
    plan = plan_holding(Holding.consecutive([2, 2, 2]), (1, 2, 3), (1, 1, 1), 4, 6, stragglers=1)
    (rows,) = plan.types
    assert (rows.at_most, rows.assignment.copies) == (2, 6)
    assert (plan.makespan, plan.bound, plan.bound_without) == (12, 12, 8)


@pytest.mark.parametrize(
    ("counts", "recovery", "stragglers", "said"),
    [
        ([2, 2], 3, 1, "2 machines with 4 shards available: no row can keep 3 of them when any 1 "),
        ([3], 1, 1, "1 machine with 3 shards available: no row can keep 1 of them"),
        ([1, 1, 5], 2, 2, "when any 2 machines are late or lost"),
    ],
)
def test_machines_that_cannot_be_done_without(counts, recovery, stragglers, said):
    with pytest.raises(InfeasibleError, match=said):
        Problem(np.ones(len(counts)), np.array(counts), recovery, stragglers)


def test_fewer_stragglers_than_none():
    with pytest.raises(InputError, match="-1 stragglers: expected at least 0"):
        Problem(np.ones(3), np.ones(3, np.int64), 2, -1)


@pytest.mark.parametrize("unit", [1e-290, 1.0, 1e290])
def test_any_unit_of_speed(unit):
    speeds, counts = np.array([2.0, 3.0, 3.0]) * unit, np.array([2, 3, 3])
    problem = Problem(speeds, counts, 2, 1)
    types, bound = tolerant_loads(problem, 100)
    assert [(each.at_most, each.rows) for each in types] == [(1, 80), (2, 20)]
    assert bound == pytest.approx(40 / unit)
    assert best_parts(problem).bound == pytest.approx(0.4 / unit)


def test_speeds_that_hardly_compare():
    """Among them one within rounding errors of its limit, and others of hardly any speed."""
    speeds = np.array([1e20, 5e-2, 4e14, 5e-2, 1e-8])
    problem = Problem(speeds, np.ones(5, dtype=np.int64), 1, 1)
    types, bound = tolerant_loads(problem, 1000)
    assert max(types[0].loads / speeds) == pytest.approx(bound)
    speeds = np.array([1e-200, 1e-200, 1.0, 1.0, 1.0])
    types, bound = tolerant_loads(Problem(speeds, np.full(5, 2), 2, 1), 100)
    assert max(sum(each.loads for each in types) / speeds) == pytest.approx(bound) == 100
    with pytest.raises(InputError, match="speeds from 1e-300 to 1 of machines any of which may be"):
        Problem(np.array([1e-300, 1.0, 1.0]), np.ones(3, np.int64), 1, 1)
