"""Plans as fractions of the paper, and their limits."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.cli.commands.explain import explain_plan
from cec_mpi.core import paper
from cec_mpi.errors import InputError


def fractions(text):
    return tuple(Fraction(word) for word in text.split())


@st.composite
def problems(draw):
    machines = draw(st.integers(1, 12))
    available = sorted(draw(st.permutations(range(1, 20)))[:machines])
    speeds = draw(st.lists(st.fractions(min_value=Fraction(1, 10**9)), min_size=20, max_size=20))
    return tuple(available), speeds, draw(st.integers(1, machines))


@given(problems())
def test_fractions_equal_those_of_the_paper(problem):
    available, speeds, recovery = problem
    plan = explain_plan(available, speeds, recovery, 100, exact=True)
    mu, c, k = paper.optimal_load({n: speeds[n - 1] for n in available}, recovery)
    assert [*map(Fraction, plan["mu"])] == [*mu.values()]
    assert (Fraction(plan["c_star"]), plan["k_star"]) == (c, k)
    assert [*zip(map(Fraction, plan["alpha"]), plan["alpha_machines"], strict=True)] == [
        (block.alpha, [*block.P]) for block in paper.algorithm_1(mu, recovery)
    ]


def test_invalid_steps_are_refused():
    with pytest.raises(InputError, match="--steps needs --scheme heterogeneous, found cyclic"):
        explain_plan((1, 2), fractions("1 1"), 1, 4, scheme="cyclic", steps=True)
    many = tuple(range(1, 1002))
    with pytest.raises(InputError, match=r"1001 machines.*at most 1000"):
        explain_plan(many, (Fraction(1),) * 1001, 2, 4000, steps=True)
