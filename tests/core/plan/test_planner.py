"""From who is available and how fast to a plan with its decoders."""

from fractions import Fraction

import numpy as np
import pytest

from cec_mpi.core.code.mds import make_code
from cec_mpi.core.plan.assignment import SCHEMES
from cec_mpi.core.plan.planner import Planner, plan_step
from cec_mpi.errors import InfeasibleError, InputError

EVERYONE = (1, 2, 3, 4, 5, 6)
SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)  # the example of the paper, Section III
STEPS = [
    (EVERYONE, "1/6", "1/4"),
    ((1, 2, 3, 5, 6), "1/5", "3/10"),
    ((1, 2, 3, 5), "2/7", "3/8"),
    ((2, 3, 5), "1/2", "1/2"),
]


def speeds_of(number):
    """Speeds that differ from number to number."""
    return (*SPEEDS[:-1], 5.0 + number)


# --- one step -----------------------------------------------------------------------------


@pytest.mark.parametrize(("available", "heterogeneous", "cyclic"), STEPS)
def test_times_of_the_papers_example(available, heterogeneous, cyclic):
    plan = plan_step(available, SPEEDS, 3, 840)
    assert plan.makespan == Fraction(heterogeneous) * 840
    assert plan.bound == pytest.approx(float(Fraction(heterogeneous) * 840), rel=1e-14)
    baseline = plan_step(available, SPEEDS, 3, 840, "cyclic")
    assert baseline.makespan == Fraction(cyclic) * 840
    assert baseline.bound == plan.bound


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_beats_its_bound_and_cyclic_never_beats_heterogeneous(seed):
    rng = np.random.default_rng(seed)
    speeds = rng.uniform(1, 8, 12)
    available = tuple(sorted((rng.choice(12, 8, replace=False) + 1).tolist()))
    machines_per_row, rows = int(rng.integers(1, 9)), int(rng.integers(1, 200))
    best, baseline = (
        plan_step(available, speeds, machines_per_row, rows, scheme) for scheme in SCHEMES
    )
    assert best.bound == baseline.bound
    assert best.bound * (1 - 1e-12) <= best.makespan <= baseline.makespan
    present = speeds[np.array(available) - 1]
    assert best.makespan == (best.assignment.loads / present).max()
    assert baseline.makespan == (baseline.assignment.loads / present).max()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_speeds_of_preempted_machines_do_not_matter_to_a_step(scheme):
    one = plan_step((1, 3, 4, 6), (2, 99, 3, 3, 99, 4), 2, 50, scheme)
    other = plan_step((1, 3, 4, 6), (2, 1, 3, 3, 1, 4), 2, 50, scheme)
    assert one.assignment == other.assignment
    assert (one.makespan, one.bound) == (other.makespan, other.bound)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("available", "speeds", "machines_per_row", "rows", "message"),
    [
        ((1, 7), SPEEDS, 2, 420, r"\(1, 7\): only 6 speeds are specified"),
        ((0, 1), SPEEDS, 2, 420, r"\(0, 1\): expected ascending"),
        ((3, 1, 2), SPEEDS, 3, 420, "expected ascending numbers"),
        ((1, 1, 3), SPEEDS, 2, 420, "expected ascending numbers"),
        ((1, 2), (1, -1), 2, 420, "position 2 is -1.0"),
        ((1, 2), (1, 2, float("nan")), 2, 420, "position 3 is nan"),
        ((1, 2), (), 2, 420, "speeds"),
        ((1, 2, 3), SPEEDS, 2, 0, "0 rows per shard"),
        ((1, 2, 3), SPEEDS, 0, 420, "expected at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    scheme, available, speeds, machines_per_row, rows, message
):
    with pytest.raises(InputError, match=message):
        plan_step(available, speeds, machines_per_row, rows, scheme)


def test_an_unknown_scheme_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="'fast': expected one of heterogeneous, cyclic"):
        plan_step(EVERYONE, SPEEDS, 3, 420, "fast")


# --- plans that are remembered ------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_machines_and_speeds_give_the_same_plan_back(scheme):
    planner = Planner(3, 420, scheme)
    first = planner.plan(EVERYONE, SPEEDS)
    with pytest.raises(InfeasibleError):
        planner.plan((1, 2), SPEEDS)
    assert planner.plan(tuple(range(1, 7)), tuple(map(float, SPEEDS))) is first
    fewer = planner.plan((1, 2, 3, 5), SPEEDS)
    faster = planner.plan(EVERYONE, speeds_of(0))
    assert fewer is not first
    assert (faster is first) == (scheme == "cyclic")  # which looks at no speeds
    assert fewer.assignment.available == (1, 2, 3, 5)
    assert planner.plan(EVERYONE, SPEEDS) is first
    assert planner.plan((1, 2, 3, 5), SPEEDS) is fewer
    assert planner.plan(EVERYONE, speeds_of(0)) is faster


def test_the_plan_used_longest_ago_is_forgotten_first():
    planner = Planner(3, 420)
    used, unused = (planner.plan(EVERYONE, speeds_of(number)) for number in range(2))
    for number in range(2, 200):
        planner.plan(EVERYONE, speeds_of(number))
        assert planner.plan(EVERYONE, speeds_of(0)) is used
    assert planner.plan(EVERYONE, speeds_of(1)) is not unused


def test_plans_with_many_numbers_are_forgotten_sooner():
    machines, recovery = 2000, 500
    everyone, rng = tuple(range(1, machines + 1)), np.random.default_rng(0)
    planner = Planner(recovery, 1_000_000)
    speeds = [tuple(each) for each in rng.uniform(1, 4, (40, machines)).tolist()]
    plans = [planner.plan(everyone, each) for each in speeds]
    assert planner.plan(everyone, speeds[-1]) is plans[-1]
    assert planner.plan(everyone, speeds[-2]) is plans[-2]
    assert planner.plan(everyone, speeds[0]) is not plans[0]


# --- decoders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "scheme", "blocks", "different"),
    [(EVERYONE, "heterogeneous", 4, 4), ((1, 2, 5), "cyclic", 3, 1)],
)
def test_a_plan_keeps_a_decoder_for_each_set_of_machines_and_code(
    available, scheme, blocks, different
):
    plan, code = plan_step(available, SPEEDS, 3, 420, scheme), make_code(6, 3)
    without = plan.cached_size
    assert without > plan.assignment.machines.size
    first, again = plan.decoders(code), plan.decoders(code)
    assert len(first) == len(plan.assignment.blocks) == blocks
    assert len(set(map(id, first))) == different
    assert all(one is two for one, two in zip(first, again, strict=True))
    assert plan.cached_size == without + different * 9
    assert plan.decoders(make_code(6, 3, "gaussian"))[0] is not first[0]
