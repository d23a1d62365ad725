"""Plans of steps, and their cache."""

from fractions import Fraction

import numpy as np
import pytest

from cec_mpi.core.plan.assignment import SCHEMES, Assignment
from cec_mpi.core.plan.planner import Planner, plan_step
from cec_mpi.errors import InfeasibleError, InputError

MACHINES = (1, 2, 3, 4, 5, 6)
SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)  # the example of the paper, Section III
STEPS = [
    (MACHINES, "1/6", "1/4"),
    ((1, 2, 3, 5, 6), "1/5", "3/10"),
    ((1, 2, 3, 5), "2/7", "3/8"),
    ((2, 3, 5), "1/2", "1/2"),
]


@pytest.mark.parametrize("rows", [840, 840 * 2**38])
@pytest.mark.parametrize(("available", "heterogeneous", "cyclic"), STEPS)
def test_makespans_of_the_example_of_the_paper(available, heterogeneous, cyclic, rows):
    for scheme, makespan in (("heterogeneous", heterogeneous), ("cyclic", cyclic)):
        plan = plan_step(available, SPEEDS, 3, rows, scheme)
        assert plan.makespan == Fraction(makespan) * rows
        assert plan.bound == pytest.approx(float(Fraction(heterogeneous) * rows), rel=1e-14)
        counts = plan.assignment.row_counts(6)
        assert counts.sum() == 3 * rows
        for n, bounds in enumerate(plan.interval_bounds(6), start=1):
            assert sum(bounds[1::2]) - sum(bounds[::2]) == counts[n - 1]
        assert Assignment.from_array(plan.assignment.to_array()) == plan.assignment


@pytest.mark.parametrize("seed", range(10))
def test_no_plan_beats_its_bound_and_cyclic_never_beats_heterogeneous(seed):
    rng = np.random.default_rng(seed)
    speeds = rng.uniform(1, 8, 12)
    available = tuple(sorted((rng.choice(12, 8, replace=False) + 1).tolist()))
    machines_per_row, rows = int(rng.integers(1, 9)), int(rng.integers(1, 200))
    available_speeds = speeds[np.array(available) - 1]
    speeds[np.setdiff1d(np.arange(12), np.array(available) - 1)] = 99  # must have no influence
    plan, baseline = (
        plan_step(available, speeds, machines_per_row, rows, scheme) for scheme in SCHEMES
    )
    assert plan.bound == baseline.bound
    assert plan.bound * (1 - 1e-12) <= plan.makespan <= baseline.makespan
    for candidate in (plan, baseline):
        assert candidate.makespan == (candidate.assignment.loads / available_speeds).max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 7), SPEEDS, 2, 420), r"\(1, 7\): only 6 speeds are specified"),
        (((1, 2, 3), SPEEDS, 2, 0), "0 rows per shard"),
        ((MACHINES, SPEEDS, 3, 420, "fast"), "'fast': expected one of heterogeneous, cyclic"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        plan_step(*arguments)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_arguments_give_the_same_plan(scheme):
    planner, faster_speeds = Planner(3, 420, scheme), (*SPEEDS[:-1], 5.0)
    plan, smaller_plan = planner.plan(MACHINES, SPEEDS), planner.plan((1, 2, 3, 5), SPEEDS)
    with pytest.raises(InfeasibleError):
        planner.plan((1, 2), SPEEDS)
    assert smaller_plan.assignment.available == (1, 2, 3, 5)
    assert (planner.plan(MACHINES, faster_speeds) is plan) == (scheme == "cyclic")
    for _ in range(2):
        assert planner.plan(tuple(range(1, 7)), tuple(map(float, SPEEDS))) is plan
        assert planner.plan((1, 2, 3, 5), SPEEDS) is smaller_plan


def test_the_least_recently_used_plans_are_dropped():
    planner = Planner(3, 420)
    used_plan, unused_plan = (planner.plan(MACHINES, (*SPEEDS[:-1], speed)) for speed in (5.0, 6.0))
    for speed in range(7, 200):
        planner.plan(MACHINES, (*SPEEDS[:-1], float(speed)))
        assert planner.plan(MACHINES, (*SPEEDS[:-1], 5.0)) is used_plan
    assert planner.plan(MACHINES, (*SPEEDS[:-1], 6.0)) is not unused_plan


def test_large_plans_are_dropped_sooner():
    machines, rng = tuple(range(1, 2001)), np.random.default_rng(0)
    planner = Planner(500, 1_000_000)
    speeds = [tuple(row) for row in rng.uniform(1, 4, (30, 2000)).tolist()]
    plans = [planner.plan(machines, row) for row in speeds]
    assert planner.plan(machines, speeds[-2]) is plans[-2]
    assert planner.plan(machines, speeds[0]) is not plans[0]
