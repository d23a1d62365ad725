"""Machines with several shards: Theorem 1 for them, and plans with every row on enough of them."""

import json
from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.plan.assignment import SCHEMES
from cec_mpi.core.plan.explain import explain_plan
from cec_mpi.core.plan.load import fractional_load, makespan, whole_row_load
from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.plan.planner import Planner, plan_placed, plan_step
from cec_mpi.core.plan.schemes import cyclic, cyclic_most, in_turns
from cec_mpi.errors import InfeasibleError, InputError

SPEEDS = (2, 2, 3, 3, 4, 4)  # the paper's example
ONE_FAST = (1, 1, 1, 1, 1, 20)


@st.composite
def loads(draw, most_shards=5):
    """(speeds, shards of machines, recovery)."""
    machines = draw(st.integers(1, 7))
    speeds = draw(st.lists(st.integers(1, 20), min_size=machines, max_size=machines))
    counts = st.lists(st.integers(1, most_shards), min_size=machines, max_size=machines)
    held = draw(counts)
    return speeds, held, draw(st.integers(1, sum(held)))


@st.composite
def steps(draw, adopting=False):
    """(placement, available, speeds, recovery, rows): some machines are away."""
    speeds, counts, _ = draw(loads(4))
    shards = sum(counts) + draw(st.integers(0, 2))
    placement = Placement(counts, shards)
    for n in draw(st.sets(st.integers(1, len(counts)))) if adopting else ():
        others = st.sets(st.integers(1, shards), max_size=4)
        mine = set(placement.of(n))
        placement = placement.adopting(n, sorted(draw(others) - mine))
    available = tuple(sorted(draw(st.sets(st.integers(1, len(counts)), min_size=1))))
    recovery = draw(st.integers(1, placement.count(available)))
    return placement, available, speeds, recovery, draw(st.sampled_from([1, 3, 50, 10_000]))


# --- how much each machine computes -------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "mu", "c_star", "k_star"),
    [
        # One shard each: the fast machine is at its limit, and the others do three shards.
        ((1, 1, 1, 1, 1, 1), "3/5 3/5 3/5 3/5 3/5 1", "3/5", 5),
        ((1, 1, 1, 1, 1, 2), "2/5 2/5 2/5 2/5 2/5 2", "2/5", 5),
        ((1, 1, 1, 1, 1, 3), "1/5 1/5 1/5 1/5 1/5 3", "1/5", 5),
        # With four it is no longer at its limit, and a fifth is of no use.
        ((1, 1, 1, 1, 1, 4), "4/25 4/25 4/25 4/25 4/25 16/5", "4/25", 6),
        ((1, 1, 1, 1, 1, 5), "4/25 4/25 4/25 4/25 4/25 16/5", "4/25", 6),
    ],
)
def test_one_fast_machine_with_more_and_more_shards(counts, mu, c_star, k_star):
    load = fractional_load(ONE_FAST, 4, counts)
    assert load.mu == tuple(map(Fraction, mu.split()))
    assert (load.c_star, load.k_star) == (Fraction(c_star), k_star)


@given(loads(), st.sampled_from([Fraction, float]))
def test_it_is_theorem_1_of_shards_with_equal_parts_of_the_speed_of_their_machine(case, kind):
    speeds, counts, recovery = case
    load = fractional_load(list(map(kind, speeds)), recovery, counts)
    parts = [Fraction(s, c) for s, c in zip(speeds, counts, strict=True) for _ in range(c)]
    assert load.c_star == pytest.approx(fractional_load(parts, recovery).c_star, rel=1e-13)
    assert sum(load.mu) == pytest.approx(recovery)
    assert all(0 < mu <= count for mu, count in zip(load.mu, counts, strict=True))
    assert makespan(load.mu, speeds) == pytest.approx(float(load.c_star))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_optimum_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    machines = int(rng.integers(1, 13))
    counts = rng.integers(1, 6, machines).tolist()
    recovery = int(rng.integers(1, sum(counts) + 1))
    speeds = np.exp(rng.normal(0, 1, machines))
    best = linprog(
        np.append(np.zeros(machines), 1),
        A_ub=np.column_stack((np.eye(machines), -speeds)),
        b_ub=np.zeros(machines),
        A_eq=np.append(np.ones(machines), 0)[None],
        b_eq=[recovery],
        bounds=[(0, count) for count in counts] + [(0, None)],
    )
    assert fractional_load(speeds, recovery, counts).c_star == pytest.approx(best.fun, rel=1e-9)


@given(loads(), st.integers(1, 2000), st.sampled_from([1e-290, 1.0, 1e290]))
def test_no_whole_rows_are_done_sooner(case, rows, unit):
    speeds, counts, recovery = case
    found = whole_row_load([s * unit for s in speeds], recovery, rows, counts).tolist()
    assert sum(found) == recovery * rows
    assert all(0 <= m <= c * rows for m, c in zip(found, counts, strict=True))
    time = max(Fraction(m, s) for m, s in zip(found, speeds, strict=True))
    # In less time than that, with rows that are begun and not done, there would be too few.
    sooner = [min(c * rows, -(-time * s // 1) - 1) for c, s in zip(counts, speeds, strict=True)]
    assert sum(sooner) < recovery * rows


@given(loads(most_shards=3), st.integers(1, 3))
def test_brute_force(case, rows):
    speeds, counts, recovery = case
    ways = [range(count * rows + 1) for count in counts]
    if np.prod([len(way) for way in ways], dtype=float) > 5000:
        return
    best = min(makespan(way, speeds) for way in product(*ways) if sum(way) == recovery * rows)
    assert makespan(whole_row_load(speeds, recovery, rows, counts), speeds) == best


# --- which rows of which shards -----------------------------------------------------------


def check(plan, placement, available, speeds, recovery, rows, stragglers=0):
    """That each row keeps `recovery` shards without any `stragglers` machines, and the times."""
    spans = sorted((block.start, block.stop) for block in plan.assignment.blocks)
    assert [spans[0][0], spans[-1][1]] == [0, rows]
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    whose = {shard: machine for machine, shard, _ in plan.pieces()}
    for shard, machine in whose.items():
        assert machine in available
        assert shard in placement.of(machine)
    for block in plan.assignment.blocks:
        machines = [whose[shard] for shard in block.machines]
        assert len(set(block.machines)) == len(machines)
        assert max(map(machines.count, machines)) <= plan.most_shards
        for late in combinations(available, min(stragglers, len(available))):
            assert sum(machine not in late for machine in machines) >= recovery
    counts = plan.counts(placement.machines)
    assert counts.sum() == plan.assignment.copies * rows
    assert plan.most_rows == counts.max()
    assert plan.makespan == pytest.approx(max(counts[n - 1] / speeds[n - 1] for n in available))
    assert plan.bound <= plan.makespan * (1 + 1e-9)
    for n, bounds in enumerate(plan.bounds(placement.machines), start=1):
        assert sum(bounds[1::2]) - sum(bounds[::2]) == counts[n - 1]
        assert list(zip(bounds[::2], bounds[1::2], strict=True)) == list(plan.intervals(n))
    alone = {(shard, row) for _, shard, some in plan.pieces() for a, b in some for row in (a, b)}
    assert {shard for shard, _ in alone} <= set(whose)


@given(steps(), st.sampled_from(SCHEMES))
def test_every_row_is_on_l_different_shards(case, scheme):
    _, available, speeds, recovery, rows = case
    plan = plan_placed(*case, scheme=scheme)
    check(plan, *case)
    assert plan.assignment.copies == recovery
    if scheme == "heterogeneous":
        slowest = min(speeds[n - 1] for n in available)
        assert plan.makespan <= plan.bound + 1 / slowest
        for n in available:  # full shards first: at most one of a machine is used in part
            mine = [some for machine, _, some in plan.pieces() if machine == n]
            parts = [sum(b - a for a, b in some) for some in mine]
            assert sum(0 < part < rows for part in parts) <= 1


@given(steps(), st.integers(1, 3), st.sampled_from(SCHEMES))
def test_any_s_machines_may_be_late(case, stragglers, scheme):
    placement, available, speeds, recovery, rows = case
    counts = [placement.counts[n - 1] for n in available]
    copies = {b: recovery + stragglers * b for b in range(1, max(counts) + 1)}
    used = {b: [min(c, b) for c in counts] for b in copies}
    possible = [b for b in copies if sum(used[b]) >= copies[b]]
    try:
        plan = plan_placed(*case, stragglers, scheme)
    except InfeasibleError:
        assert scheme == "cyclic" or not possible
        return
    check(plan, *case, stragglers)
    if scheme == "heterogeneous":  # no b would have been better, but for the rounding of rows
        present = [float(speeds[n - 1]) for n in available]
        levels = [fractional_load(present, copies[b], used[b]).c_star for b in possible]
        assert plan.makespan <= min(levels) * rows * (1 + 1e-9) + 1 / min(present)


@given(steps(adopting=True), st.booleans(), st.sampled_from(SCHEMES))
def test_a_shard_that_several_have_is_asked_from_one_of_them(case, by_speed, scheme):
    placement, available, speeds, *rest = case
    plan = Planner(*rest, scheme, placement=placement, by_speed=by_speed)
    check(plan.plan(available, tuple(speeds)), *case)


def test_scarce_shards_go_first_and_then_to_who_is_done_first():
    placement = Placement((1, 1, 1), 3).adopting(2, (1, 3)).adopting(3, (1,))
    found = placement.among((1, 2, 3), (1, 9, 2))
    # Shard 2 is nobody else's. Of 3 the second machine has 2 / 9 of a unit of time then, the third
    # 1 / 2; and shard 1 is its third, after 3 / 9, before 1 / 2 and 1.
    assert [found.holder(shard) for shard in (1, 2, 3)] == [2, 2, 2]
    assert [placement.among((1, 2, 3)).holder(shard) for shard in (1, 2, 3)] == [1, 2, 3]
    assert found.rows([5, 6, 7]).tolist() == [0, 18, 0]
    assert placement.among((1, 3), (1, 9, 5)).holder(1) == 3
    assert placement.among((1, 2, 3), (1, 1, 1)).holder(1) == 1


def test_machines_that_have_all_shards_share_the_rows_by_their_speeds():
    placement = Placement((3, 3), 6).adopting(1, (4, 5, 6)).adopting(2, (1, 2, 3))
    plan = Planner(3, 100, placement=placement, by_speed=True).plan((1, 2), (1.0, 5.0))
    assert plan.counts(2).tolist() == [50, 250]


@pytest.mark.parametrize("stragglers", [0, 1])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_one_shard_each_machines_and_shards_are_one(scheme, stragglers):
    placement = Placement.plain(6)
    for available in (1, 2, 3, 4, 5, 6), (1, 2, 3, 5, 6), (1, 2, 3, 5):
        plan = plan_placed(placement, available, SPEEDS, 3, 420, stragglers, scheme)
        same = plan_step(available, SPEEDS, 3 + stragglers, 420, scheme)
        assert plan.assignment == same.assignment
        assert (plan.makespan, plan.bound) == (same.makespan, same.bound)


def test_one_fast_machine():
    """Speeds 1,1,1,1,1,20 and L = 4: 60 units of time with one shard each, 16 with four."""
    times = {}
    for count in 1, 2, 3, 4, 5:
        placement = Placement((1, 1, 1, 1, 1, count), 10)
        plan = plan_placed(placement, range(1, 7), ONE_FAST, 4, 100)
        times[count] = plan.makespan, plan.bound
    assert times == {n: (t, t) for n, t in {1: 60, 2: 40, 3: 20, 4: 16, 5: 16}.items()}
    assert plan.counts(6).tolist() == [16, 16, 16, 16, 16, 320]
    assert plan.intervals(6) == ((0, 300), (380, 400))
    assert plan.intervals(1) == ((0, 16),)
    assert plan.intervals(7) == ()


def test_l_plus_s_shards_are_not_enough_for_a_machine_with_two_of_them():
    plan = plan_placed(Placement((2, 2, 2), 6), (1, 2, 3), (1, 1, 1), 4, 6, stragglers=1)
    assert (plan.most_shards, plan.assignment.copies) == (2, 6)
    assert plan.makespan == 12


def test_one_b_for_all_rows_can_take_a_quarter_longer_than_a_mix():
    """4/5 of the rows on 3 shards and 1/5 on 4 would take 40."""
    plan = plan_placed(Placement((2, 3, 3), 8), (1, 2, 3), (2, 3, 3), 2, 100, stragglers=1)
    assert (plan.most_shards, plan.makespan, plan.bound) == (1, 50, 37.5)


def test_a_planner_tolerates_as_many_as_it_can():
    planner = Planner(3, 40, stragglers=2, placement=Placement((2, 2, 2), 6))
    speeds = (1.0, 1.0, 1.0)
    found = [planner.plan(there, speeds) for there in ((1, 2, 3), (1, 2))]
    assert [plan.assignment.copies for plan in found] == [5, 3]


# --- what a plan says ---------------------------------------------------------------------


def test_what_the_plan_of_the_paper_with_two_shards_each_says():
    plan = explain_plan((1, 2, 3), [1, 2, 1], 2, 4, shards=(1, 2, 1), exact=True)
    assert json.loads(json.dumps(plan)) == plan
    assert plan == {
        "available": [1, 2, 3],
        "shards": [[1], [2, 3], [4]],
        "recovery": 2,
        "rows": 4,
        "loads": [2, 4, 2],
        "shard_loads": [2, 4, 0, 2],
        "blocks": [
            {"start": 0, "stop": 2, "shards": [1, 2], "machines": [1, 2]},
            {"start": 2, "stop": 4, "shards": [2, 4], "machines": [2, 3]},
        ],
        "makespan": 2.0,
        "bound": 2.0,
        "mu": ["1/2", "1", "1/2"],
        "alpha": ["1/2", "1/2"],
        "alpha_shards": [[1, 2], [2, 4]],
        "c_star": "1/2",
        "k_star": 3,
    }


def test_what_a_plan_with_a_tolerance_says():
    plan = explain_plan((1, 2, 3), [1, 1, 1], 4, 6, shards=(2, 2, 2), stragglers=1)
    assert (plan["most_shards"], plan["copies"], plan["makespan"]) == (2, 6, 12)
    assert (plan["bound"], plan["bound_without_stragglers"]) == (10.0, 8.0)


@given(steps(), st.sampled_from(SCHEMES))
def test_fractions_add_up(case, scheme):
    placement, available, speeds, recovery, rows = case
    exact = [Fraction(speed) for speed in speeds]
    given_all = available, exact, recovery, rows
    plan = explain_plan(*given_all, scheme=scheme, shards=placement.counts, exact=True)
    shares = dict.fromkeys(available, Fraction(0))
    for alpha, shards in zip(plan["alpha"], plan["alpha_shards"], strict=True):
        assert len(set(shards)) == recovery
        for shard in shards:
            shares[placement.holder(shard)] += Fraction(alpha)
    assert [shares[n] for n in available] == [Fraction(mu) for mu in plan["mu"]]
    assert float(Fraction(plan["c_star"]) * rows) == pytest.approx(plan["bound"])


# --- the cyclic scheme --------------------------------------------------------------------


def test_shards_of_a_machine_are_far_from_each_other():
    placement = Placement((4, 2, 2), 8)
    order = in_turns([placement.of(n) for n in (1, 2, 3)])
    assert [placement.holder(shard) for shard in order] == [1, 2, 3, 1, 1, 2, 3, 1]


def test_equal_loads_of_all_shards():
    plan = plan_placed(Placement((1, 2, 1), 4), (1, 2, 3), (1, 2, 1), 2, 8, scheme="cyclic")
    assert plan.counts(3).tolist() == [4, 8, 4]
    assert plan.assignment.loads.tolist() == cyclic((1, 2, 3, 4), 2, 8).loads.tolist()


@pytest.mark.parametrize(
    ("counts", "recovery", "stragglers", "most"),
    [([1] * 5, 3, 2, 1), ([2, 2, 2], 2, 1, 1), ([2, 2, 2], 4, 1, 2), ([4, 2, 2], 3, 1, 4)],
)
def test_the_cyclic_scheme_has_as_few_of_a_machine_as_are_safe(counts, recovery, stragglers, most):
    placement = Placement(counts, sum(counts))
    held = [placement.of(n) for n in range(1, len(counts) + 1)]
    assert cyclic_most(held, recovery, stragglers) == most
    machines = [placement.holder(shard) for shard in in_turns(held)] * 2
    for b in range(1, most + 1):  # by looking at all neighbours
        size = recovery + stragglers * b
        windows = [machines[k : k + size] for k in range(len(machines) // 2)]
        found = max(window.count(n) for window in windows for n in set(window))
        assert (found <= b and size <= sum(counts)) == (b == most)


# --- what cannot be -----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_too_few_shards(scheme):
    with pytest.raises(
        InfeasibleError, match="1 machine with 2 shards available: each row needs 3"
    ):
        plan_placed(Placement((1, 2), 3), (2,), (1, 1), 3, 10, scheme=scheme)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [("heterogeneous", "no row can keep 2"), ("cyclic", "the cyclic scheme cannot")],
)
def test_machines_that_cannot_be_done_without(scheme, said):
    with pytest.raises(InfeasibleError, match=f"2 machines with 6 shards available: {said}"):
        plan_placed(Placement((1, 5), 6), (1, 2), (1, 1), 2, 10, 1, scheme)


@pytest.mark.parametrize(
    ("available", "speeds", "said"),
    [
        ((1, 3), (1, 1), r"available machines \(1, 3\): 2 speeds are given"),
        ((2, 1), (1, 1), "expected ascending numbers from 1"),
        ((1, 2), (1, -1), "the speed at position 2 is -1.0"),
    ],
)
def test_machines_that_do_not_fit(available, speeds, said):
    with pytest.raises(InputError, match=said):
        plan_placed(Placement((1, 2), 3), available, speeds, 2, 10)
