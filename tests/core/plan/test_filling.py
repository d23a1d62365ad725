"""Algorithm 1 iteration by iteration: the paper's Figure 2, and the plan that it belongs to."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.plan import filling
from cec_mpi.core.plan.explain import explain_plan
from cec_mpi.core.plan.filling import fill, iterations
from cec_mpi.core.plan.load import fractional_load, whole_row_load
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.schemes import fractional_blocks
from cec_mpi.errors import InfeasibleError, InputError


def fractions(text):
    return tuple(Fraction(word) for word in text.split())


# Section V of the paper, t = 2: alpha_f, P_f, l[1], m[l[1]], the machine of the other bound, that
# bound, m before, L'.
FIGURE_2 = [
    ("2/5", (1, 5, 6), 1, "2/5", 3, "2/5", "2/5 2/5 3/5 4/5 4/5", "3"),
    ("1/5", (2, 3, 6), 2, "2/5", 5, "1/5", "0 2/5 3/5 2/5 2/5", "9/5"),
    ("1/5", (2, 3, 5), 2, "1/5", 6, "1/5", "0 1/5 2/5 2/5 1/5", "6/5"),
    ("1/5", (3, 5, 6), 3, "1/5", None, None, "0 0 1/5 1/5 1/5", "3/5"),
]


def test_figure_2_of_the_paper():
    found = iterations((1, 2, 3, 5, 6), fractions("2/5 2/5 3/5 4/5 4/5"), 3)
    assert [
        (
            str(each.alpha),
            each.machines,
            each.smallest,
            str(each.load),
            each.next_largest,
            None if each.room is None else str(each.room),
            " ".join(map(str, each.loads)),
            str(each.total),
        )
        for each in found
    ] == FIGURE_2


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


def check(found, available, loads, copies):
    """That the iterations are Algorithm 1, line by line."""
    left = list(loads)
    for each in found:
        assert list(each.loads) == left
        assert each.total == sum(left)
        # From smallest to largest, as the paper sorts them; equal ones by their numbers.
        order = sorted((k for k in range(len(left)) if left[k]), key=lambda k: (left[k], k))
        chosen = [order[0], *order[len(order) - copies + 1 :]]
        assert each.smallest == available[order[0]]
        assert each.load == left[order[0]]
        assert each.machines == tuple(available[k] for k in sorted(chosen))
        if len(order) > copies:
            other = order[len(order) - copies]
            assert each.next_largest == available[other]
            assert each.room == Fraction(each.total, copies) - left[other]
            assert each.alpha == min(each.load, each.room)
        else:
            assert (each.next_largest, each.room) == (None, None)
            assert each.alpha == each.load
        for k in chosen:
            left[k] -= each.alpha
    assert not any(left)


@settings(deadline=None, max_examples=150)
@given(problems())
def test_the_iterations_are_those_of_the_plan(problem):
    available, speeds, copies, rows = problem
    present = [speeds[n - 1] for n in available]
    loads = whole_row_load(present, copies, rows).tolist()
    found = iterations(available, loads, copies)
    blocks = plan_step(available, speeds, copies, rows).assignment.blocks
    assert [(each.alpha, each.machines) for each in found] == [
        (block.stop - block.start, block.machines) for block in blocks
    ]
    check(found, available, loads, copies)


@settings(deadline=None, max_examples=100)
@given(problems())
def test_the_iterations_on_fractions_are_those_of_the_paper(problem):
    available, speeds, copies, _ = problem
    mu = fractional_load([Fraction(speeds[n - 1]) for n in available], copies).mu
    found = iterations(available, mu, copies)
    assert [(each.alpha, each.machines) for each in found] == [
        (alpha, tuple(available[k] for k in chosen))
        for alpha, chosen in fractional_blocks(mu, copies)
    ]
    check(found, available, mu, copies)


def test_loads_that_cannot_be_met_are_refused():
    with pytest.raises(InputError, match="cannot be met"):
        iterations((1, 2), [3, 1], 2)
    with pytest.raises(InfeasibleError):
        iterations((1,), [3], 2)


def test_steps_of_what_has_none_are_refused():
    with pytest.raises(InputError, match="cyclic scheme has no steps"):
        explain_plan((1, 2), fractions("1 1"), 1, 4, scheme="cyclic", steps=True)
    many = tuple(range(1, 1002))
    with pytest.raises(InputError, match=r"1001 machines.*at most 1000"):
        explain_plan(many, (Fraction(1),) * 1001, 2, 4000, steps=True)


@pytest.mark.parametrize("rows", [20, 2**48])
@pytest.mark.parametrize("copies", [1, 2, 7, 30])
@pytest.mark.parametrize("way", ["arrays", "marks"])
def test_blocks_of_many_machines_are_those_of_few(copies, rows, way, monkeypatch):
    speeds = np.random.default_rng(copies).choice([1.0, 2.0, 4.0, 5.0], 30)
    loads = whole_row_load(speeds, copies, rows)
    for wanted in (loads, loads.astype(object) * 2**40):
        looks, others = [], []
        sizes, members = fill(wanted, copies, looks)
        monkeypatch.setattr(filling, "_LISTED", 0)
        monkeypatch.setattr(filling, "_MANY", 1 if way == "marks" else 1500)
        again, same = fill(wanted, copies, others)
        monkeypatch.undo()
        assert again == sizes
        assert np.array_equal(same, members)
        assert others == looks
