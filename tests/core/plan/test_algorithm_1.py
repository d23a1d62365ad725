"""Algorithm 1 iteration by iteration: the paper's Figure 2, and the plan that it belongs to."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.plan.algorithm_1 import algorithm_1, fill, fractional_blocks, in_parts
from cec_mpi.core.plan.explain import explain_plan
from cec_mpi.core.plan.load import fractional_load, whole_row_load
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.errors import InfeasibleError, InputError


def fractions(text):
    return tuple(Fraction(word) for word in text.split())


def test_figure_2_of_the_paper():
    """Section V, t = 2, in fifths: alpha_f, P_f, l[1], the machine of the other bound, m, L'."""
    assert [
        (each.alpha, each.machines, each.smallest, each.next_largest, each.loads, each.total)
        for each in algorithm_1([2, 2, 3, 4, 4], 3)
    ] == [
        (2, (0, 3, 4), 0, 2, (2, 2, 3, 4, 4), 15),
        (1, (1, 2, 4), 1, 3, (0, 2, 3, 2, 2), 9),
        (1, (1, 2, 3), 1, 4, (0, 1, 2, 2, 1), 6),
        (1, (2, 3, 4), 2, None, (0, 0, 1, 1, 1), 3),
    ]


def test_figure_2_as_json():
    speeds = fractions("2 2 3 3 4 4")
    plan = explain_plan((1, 2, 3, 5, 6), speeds, 3, 420, exact=True, steps=True)
    rows = explain_plan((1, 2, 3, 5, 6), speeds, 3, 420, steps=True)
    assert plan["iterations"][1] == {
        "alpha": "1/5",
        "machines": [2, 3, 6],
        "smallest": 2,
        "load": "2/5",
        "next_largest": 5,
        "room": "1/5",
        "decided_by": "room",
        "loads": ["0", "2/5", "3/5", "2/5", "2/5"],
        "total": "9/5",
    }
    assert [each["decided_by"] for each in plan["iterations"]] == ["load", "room", "load", "load"]
    assert [each["alpha"] for each in rows["iterations"]] == [168, 84, 84, 84]
    assert rows["iterations"][1]["loads"] == [0, 168, 252, 168, 168]
    assert [each["total"] for each in rows["iterations"]] == [1260, 756, 504, 252]


@st.composite
def problems(draw):
    machines = draw(st.integers(1, 12))
    available = sorted(draw(st.permutations(range(1, 20)))[:machines])
    speeds = draw(st.lists(st.integers(1, 9), min_size=20, max_size=20))
    return tuple(available), speeds, draw(st.integers(1, machines)), draw(st.integers(1, 200))


def check(found, loads, copies):
    """That no machine is in a block twice, all loads are met, and there are at most N_t blocks."""
    left = list(loads)
    for each in found:
        assert each.loads == tuple(left)
        assert each.total == sum(left)
        assert len(set(each.machines)) == copies
        assert each.alpha >= 1
        for k in each.machines:
            left[k] -= each.alpha
    assert not any(left)
    assert len(found) <= len(loads)


@given(problems())
def test_the_blocks_of_a_plan_are_those_of_the_paper(problem):
    available, speeds, copies, rows = problem
    present = [speeds[n - 1] for n in available]
    loads = whole_row_load(present, copies, rows).tolist()
    found = algorithm_1(loads, copies)
    check(found, loads, copies)
    blocks = plan_step(available, speeds, copies, rows).assignment.blocks
    assert [(each.alpha, tuple(available[k] for k in each.machines)) for each in found] == [
        (block.stop - block.start, block.machines) for block in blocks
    ]


@given(problems())
def test_the_blocks_in_fractions_are_those_of_the_paper(problem):
    available, speeds, copies, _ = problem
    mu = fractional_load([Fraction(speeds[n - 1]) for n in available], copies).mu
    loads, parts = in_parts(mu)
    assert [Fraction(load, parts) for load in loads] == list(mu)
    found = algorithm_1(loads, copies)
    check(found, loads, copies)
    assert [(Fraction(each.alpha, parts), each.machines) for each in found] == fractional_blocks(
        mu, copies
    )


def test_loads_that_cannot_be_met_are_refused():
    with pytest.raises(InputError, match="cannot be met"):
        algorithm_1([3, 1], 2)
    with pytest.raises(InfeasibleError):
        algorithm_1([3], 2)


def test_steps_of_what_has_none_are_refused():
    with pytest.raises(InputError, match="cyclic scheme has no steps"):
        explain_plan((1, 2), fractions("1 1"), 1, 4, scheme="cyclic", steps=True)
    many = tuple(range(1, 1002))
    with pytest.raises(InputError, match=r"1001 machines.*at most 1000"):
        explain_plan(many, (Fraction(1),) * 1001, 2, 4000, steps=True)


@pytest.mark.parametrize("scale", [1, 2**42, 2**70])
@pytest.mark.parametrize("machines", [1, 30, 300])
@pytest.mark.parametrize("seed", range(4))
def test_the_fast_version_finds_the_same_blocks(machines, scale, seed):
    """Also of numbers of more than 62 bits, and where many loads are equal."""
    rng = np.random.default_rng(seed)
    copies = int(rng.integers(1, machines + 1))
    speeds = rng.choice([1.0, 2.0, 4.0, 5.0], machines) if seed % 2 else rng.uniform(1, 4, machines)
    loads = [load * scale for load in whole_row_load(speeds, copies, 500).tolist()]
    sizes, members = fill(np.array(loads, dtype=object), copies)
    found = algorithm_1(loads, copies)
    assert sizes == [each.alpha for each in found]
    assert members.tolist() == [list(each.machines) for each in found]
