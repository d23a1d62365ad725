"""Plans of machines that hold several shards: every row on enough of them, whoever is late."""

import json
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.holding.cyclic import cyclic_type, in_turns
from cec_mpi.core.holding.explain import explain_holding
from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.core.holding.spreading import over_shards
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.schemes import cyclic, heterogeneous
from cec_mpi.errors import InfeasibleError, InputError

SPEEDS = (2, 2, 3, 3, 4, 4)  # the paper's example
both_schemes = pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
many = settings(max_examples=60, deadline=None, database=None)


@st.composite
def problems(draw):
    """(holding, available, speeds, recovery, rows): shards in any order, some machines away."""
    machines = draw(st.integers(1, 7))
    counts = draw(st.lists(st.integers(1, 4), min_size=machines, max_size=machines))
    shards = draw(st.permutations(range(1, sum(counts) + 1)))
    ends = np.cumsum(counts).tolist()
    held = tuple(
        tuple(sorted(shards[end - count : end])) for count, end in zip(counts, ends, strict=True)
    )
    available = sorted(draw(st.sets(st.integers(1, machines), min_size=1)))
    there = sum(counts[n - 1] for n in available)
    speeds = draw(st.lists(st.integers(1, 9), min_size=machines, max_size=machines))
    rows = draw(st.integers(1, draw(st.sampled_from([3, 50, 10_000]))))
    return Holding(held), available, speeds, draw(st.integers(1, there)), rows


def check(plan, holding, available, speeds, recovery, rows, stragglers=0):
    """What a plan promises, straight from its blocks and from its intervals."""
    spans = sorted((block.start, block.stop) for block in plan.blocks)
    assert [spans[0][0], spans[-1][1]] == [0, rows]
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    loads = dict.fromkeys(available, 0)
    for block in plan.blocks:
        assert block.stop > block.start
        assert list(block.shards) == sorted(set(block.shards))
        for shard, machine in zip(block.shards, block.machines, strict=True):
            assert shard in holding.of(machine)
            loads[machine] += block.stop - block.start
        most = min(stragglers, len(available))
        for late in combinations(available, most):
            assert sum(machine not in late for machine in block.machines) >= recovery
    assert [loads[n] for n in available] == [plan.count(n) for n in available]
    assert [plan.count(n) for n in available] == plan.loads.tolist()
    assert plan.makespan == pytest.approx(max(loads[n] / speeds[n - 1] for n in available))
    assert plan.bound <= plan.makespan * (1 + 1e-9)
    assert plan.bound_without <= plan.bound * (1 + 1e-9)
    for n in available:
        mine = plan.intervals(n)
        assert set(mine) <= set(holding.of(n))
        found = [(shard, *span) for shard, spans in mine.items() for span in spans]
        assert sum(stop - start for _, start, stop in found) == loads[n]
        for shard, start, stop in found:
            inside = [b for b in plan.blocks if start <= b.start and b.stop <= stop]
            assert sum(b.stop - b.start for b in inside) == stop - start
            assert all(n == dict(zip(b.shards, b.machines, strict=True))[shard] for b in inside)


# --- any machines, any shards -------------------------------------------------------------


@many
@given(problems(), st.sampled_from(["heterogeneous", "cyclic"]))
def test_every_row_is_on_l_different_shards(problem, scheme):
    holding, available, speeds, recovery, rows = problem
    plan = plan_holding(holding, available, speeds, recovery, rows, scheme=scheme)
    check(plan, holding, available, speeds, recovery, rows)
    assert {len(block.shards) for block in plan.blocks} == {recovery}
    used = {shard for block in plan.blocks for shard in block.shards}
    assert len(plan.blocks) <= len(used)
    assert plan.bound_without == plan.bound
    if scheme == "heterogeneous":
        for n in available:  # full shards first: at most one of a machine is used in part
            parts = [sum(stop - start for start, stop in s) for s in plan.intervals(n).values()]
            assert sum(part < rows for part in parts) <= 1


@many
@given(problems(), st.integers(1, 3), st.sampled_from(["heterogeneous", "cyclic"]))
def test_any_s_machines_may_be_late(problem, stragglers, scheme):
    holding, available, speeds, recovery, rows = problem
    arguments = holding, available, speeds, recovery, rows, stragglers
    try:
        plan = plan_holding(*arguments, scheme=scheme)
    except InfeasibleError:
        if scheme == "cyclic":
            return
        most = sorted((len(holding.of(n)) for n in available), reverse=True)
        # Rows of type b need L of the machines that are not late, at most b of each.
        assert all(
            sum(min(b, count) for count in most) < recovery + stragglers * b
            for b in range(1, most[0] + 1)
        )
        return
    check(plan, *arguments)
    for rows_of_type in plan.types:
        for block in rows_of_type.assignment.blocks:
            of = [sum(s in holding.of(n) for s in block.machines) for n in available]
            assert max(of) <= rows_of_type.at_most


@pytest.mark.parametrize("stragglers", [0, 1])
@both_schemes
def test_with_one_shard_each_machines_and_shards_are_one(scheme, stragglers):
    holding = Holding.consecutive([1] * 6)
    for available in (1, 2, 3, 4, 5, 6), (1, 2, 3, 5, 6), (1, 2, 3, 5):
        plan = plan_holding(holding, available, SPEEDS, 3, 420, stragglers, scheme)
        same = plan_step(available, SPEEDS, 3 + stragglers, 420, scheme)
        assert plan.types[0].assignment == same.assignment
        assert (plan.makespan, plan.bound) == pytest.approx((same.makespan, same.bound))
        assert plan.loads.tolist() == same.assignment.loads.tolist()
        assert all(block.shards == block.machines for block in plan.blocks)


@many
@given(problems())
def test_leaving_out_what_is_computed_of_all_rows_changes_nothing(problem):
    """Algorithm 1 over all shards gives the same blocks as over those that are used in part."""
    holding, available, speeds, recovery, rows = problem
    plan = plan_holding(holding, available, speeds, recovery, rows)
    (found,) = plan.types
    assignment = found.assignment
    whole = heterogeneous(assignment.available, assignment.loads, recovery)
    sizes = [(b.stop - b.start, b.machines) for b in whole.blocks]
    assert [(b.stop - b.start, b.machines) for b in assignment.blocks] == sizes


# --- golden values ------------------------------------------------------------------------


def test_one_fast_machine():
    """Speeds 1,1,1,1,1,20 and L = 4: 60 units of time with one shard each, 16 with four."""
    times = {}
    for count in 1, 2, 3, 4, 5:
        holding = Holding.consecutive([1, 1, 1, 1, 1, count])
        plan = plan_holding(holding, range(1, 7), (1, 1, 1, 1, 1, 20), 4, 100)
        times[count] = plan.makespan, plan.bound
    assert times == {n: (t, t) for n, t in {1: 60, 2: 40, 3: 20, 4: 16, 5: 16}.items()}
    assert plan.loads.tolist() == [16, 16, 16, 16, 16, 320]
    of_the_fast = {6: ((0, 100),), 7: ((0, 100),), 8: ((0, 100),), 9: ((80, 100),)}
    assert plan.intervals(6) == of_the_fast
    assert plan.intervals(1) == {1: ((0, 16),)}
    assert (plan.intervals(7), plan.count(7)) == ({}, 0)


def test_one_machine_alone_can_do_it_all():
    plan = plan_holding(Holding.consecutive([2, 3]), (2,), (1, 4), 3, 10)
    assert [(b.start, b.stop, b.shards, b.machines) for b in plan.blocks] == [
        (0, 10, (3, 4, 5), (2, 2, 2))
    ]
    assert (plan.makespan, plan.bound) == (7.5, 7.5)


def test_what_the_plan_of_the_paper_with_two_shards_each_says():
    holding = Holding.consecutive([1, 2, 1])
    plan = explain_holding(holding, (1, 2, 3), [1, 2, 1], 2, 4, exact=True)
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
    holding = Holding.consecutive([2, 2, 2])
    plan = explain_holding(holding, (1, 2, 3), [1, 1, 1], 4, 6, stragglers=1)
    assert plan["types"] == [{"at_most": 2, "start": 0, "stop": 6, "copies": 6}]
    assert (plan["bound"], plan["bound_without_stragglers"]) == (12.0, 8.0)


@many
@given(problems(), st.sampled_from(["heterogeneous", "cyclic"]))
def test_fractions_add_up(problem, scheme):
    holding, available, speeds, recovery, rows = problem
    exact = [Fraction(speed) for speed in speeds]
    plan = explain_holding(holding, available, exact, recovery, rows, scheme=scheme, exact=True)
    loads = dict.fromkeys(available, Fraction(0))
    machine_of = {shard: n for n in available for shard in holding.of(n)}
    for alpha, shards in zip(plan["alpha"], plan["alpha_shards"], strict=True):
        assert len(set(shards)) == recovery
        for shard in shards:
            loads[machine_of[shard]] += Fraction(alpha)
    assert [loads[n] for n in available] == [Fraction(mu) for mu in plan["mu"]]
    assert float(Fraction(plan["c_star"]) * rows) == pytest.approx(plan["bound"])


# --- the cyclic scheme --------------------------------------------------------------------


def test_shards_of_a_machine_are_far_from_each_other():
    held = Holding.consecutive([4, 2, 2]).among((1, 2, 3))
    order = in_turns(held)
    machines = [int(held.machines[shard - 1]) for shard in order]
    assert machines == [0, 1, 2, 0, 0, 1, 2, 0]


def test_equal_loads_of_all_shards():
    plan = plan_holding(Holding.consecutive([1, 2, 1]), (1, 2, 3), (1, 2, 1), 2, 8, scheme="cyclic")
    assert plan.loads.tolist() == [4, 8, 4]
    assert plan.types[0].assignment.loads.tolist() == cyclic((1, 2, 3, 4), 2, 8).loads.tolist()


@pytest.mark.parametrize(
    ("counts", "recovery", "stragglers", "at_most"),
    [([1] * 5, 3, 2, 1), ([2, 2, 2], 2, 1, 1), ([2, 2, 2], 4, 1, 2), ([4, 2, 2], 3, 1, 4)],
)
def test_the_cyclic_type_is_the_smallest_that_is_safe(counts, recovery, stragglers, at_most):
    held = Holding.consecutive(counts).among(range(1, len(counts) + 1))
    assert cyclic_type(held, recovery, stragglers) == at_most
    machines = held.machines[in_turns(held) - 1].tolist() * 2
    for b in range(1, at_most + 1):  # by looking at all neighbours
        size = recovery + stragglers * b
        windows = [machines[k : k + size] for k in range(len(machines) // 2)]
        most = max(window.count(n) for window in windows for n in set(window))
        assert (most <= b and size <= sum(counts)) == (b == at_most)


def test_a_tolerance_that_the_cyclic_scheme_does_not_have():
    held = Holding.consecutive([1, 5]).among((1, 2))
    with pytest.raises(InfeasibleError, match="2 machines with 6 shards available: the cyclic"):
        cyclic_type(held, 2, 1)


# --- what cannot be -----------------------------------------------------------------------


def test_too_few_shards():
    with pytest.raises(
        InfeasibleError, match="1 machine with 2 shards available: each row needs 3"
    ):
        plan_holding(Holding.consecutive([1, 2]), (2,), (1, 1), 3, 10)


@pytest.mark.parametrize(
    ("available", "speeds", "said"),
    [
        ((1, 2), (1,), "shards of 2 machines: 1 speed is given"),
        ((1, 3), (1, 1), r"available machines \(1, 3\): expected numbers from 1 to 2"),
        ((2, 1), (1, 1), "expected ascending numbers from 1"),
        ((1, 2), (1, -1), "the speed at position 2 is -1.0"),
    ],
)
def test_machines_that_do_not_fit(available, speeds, said):
    with pytest.raises(InputError, match=said):
        plan_holding(Holding.consecutive([1, 2]), available, speeds, 2, 10)


@pytest.mark.parametrize("shards", [((1, 2), (4, 3)), ((1, 1),), ((0, 1),), ((1, 2**31),)])
def test_shards_that_are_none(shards):
    with pytest.raises(InputError, match=rf"machine {len(shards)} holds the shards"):
        Holding(shards)


def test_machines_without_shards():
    with pytest.raises(InputError, match="machine 2 has 0 shards: expected at least 1"):
        Holding.consecutive([1, 0])
    with pytest.raises(InputError, match="shards of no machine"):
        Holding(())
    plan = plan_holding(Holding(((1, 2), ())), (1, 2), (1, 1), 2, 5)  # it has room for some
    assert plan.loads.tolist() == [10, 0]


def test_loads_that_no_assignment_meets():
    with pytest.raises(InputError, match="cannot be met with each row on 2 machines"):
        over_shards(np.arange(1, 4), np.array([5, 3, 1]), 2, 5)


def test_exact_fractions_of_a_linear_program():
    with pytest.raises(InputError, match="expected no stragglers"):
        explain_holding(Holding.consecutive([2, 2]), (1, 2), [1, 1], 2, 4, stragglers=1, exact=True)


def test_a_plan_says_how_good_it_is():
    plan = plan_holding(Holding.consecutive([1, 2]), (1, 2), (1, 2), 2, 9)
    assert repr(plan) == "<HoldingPlan of makespan 6, at least 6>"
