"""Rows that miss answers, planned again: against brute force and a linear program."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.plan.replan import MissingAnswers, replan
from cec_mpi.errors import InfeasibleError


def loads(shares, machines):
    rows = np.zeros(machines, int)
    for share in shares:
        rows[share.machine - 1] += share.stop - share.start
    return rows


def check(missing, shares):
    """Each row has the answers that it misses, from different eligible machines."""
    for each in missing:
        for row in range(each.start, each.stop):
            by = [s.machine for s in shares if s.start <= row < s.stop]
            assert len(by) == len(set(by)) == each.needed
            assert set(by) <= set(each.eligible)


def optimum(missing, speeds):
    """The makespan of the linear program, in fractions of rows."""
    pairs = [(g, n) for g, each in enumerate(missing) for n in each.eligible]
    costs = np.append(np.zeros(len(pairs)), 1.0)
    rows = [each.stop - each.start for each in missing]
    equal = np.zeros((len(missing), len(pairs) + 1))
    at_most = np.zeros((len(speeds), len(pairs) + 1))
    at_most[:, -1] = -np.asarray(speeds)
    for k, (g, n) in enumerate(pairs):
        equal[g, k] = at_most[n - 1, k] = 1
    needed = [size * each.needed for size, each in zip(rows, missing, strict=True)]
    bounds = [(0, rows[g]) for g, _ in pairs] + [(0, None)]
    found = linprog(costs, at_most, np.zeros(len(speeds)), equal, needed, bounds)
    return found.fun


@st.composite
def problems(draw, most_rows=40):
    machines = draw(st.integers(1, 6))
    missing, start = [], 0
    for _ in range(draw(st.integers(1, 4))):
        eligible = draw(
            st.lists(st.integers(1, machines), min_size=1, max_size=machines, unique=True)
        )
        needed = draw(st.integers(1, len(eligible)))
        start += draw(st.integers(0, 3))
        stop = start + draw(st.integers(1, most_rows))
        missing.append(MissingAnswers(start, stop, needed, tuple(sorted(eligible))))
        start = stop
    speeds = draw(st.lists(st.floats(0.1, 10), min_size=machines, max_size=machines))
    return missing, speeds


@given(problems())
def test_every_row_is_answered_within_one_row_of_the_linear_program(problem):
    missing, speeds = problem
    shares = replan(missing, speeds)
    check(missing, shares)
    rows, best = loads(shares, len(speeds)), optimum(missing, speeds)
    makespan = max(rows / speeds)
    assert makespan >= best * (1 - 1e-9)
    assert makespan <= best + 1 / min(speeds) + 1e-9


@given(problems(most_rows=3))
def test_no_whole_rows_do_better(problem):
    missing, speeds = problem
    choices = [
        itertools.combinations(each.eligible, each.needed)
        for each in missing
        for _ in range(each.start, each.stop)
    ]
    choices = [list(choice) for choice in choices]
    if np.prod([len(choice) for choice in choices]) > 3000:
        return
    best = min(
        max(np.bincount(np.concatenate(chosen), minlength=len(speeds) + 1)[1:] / speeds)
        for chosen in itertools.product(*choices)
    )
    assert max(loads(replan(missing, speeds), len(speeds)) / speeds) == pytest.approx(best)


def test_nothing_is_missing():
    assert replan([], [1.0]) == []
    assert replan([MissingAnswers(3, 3, 1, (1,)), MissingAnswers(3, 9, 0, ())], [1.0]) == []


def test_too_few_machines_are_eligible():
    with pytest.raises(InfeasibleError, match=r"rows 2\.\.6 lack 2 answers: 1 machine can"):
        replan([MissingAnswers(2, 7, 2, (3,))], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "speeds", [(1e-310, 1.0, 1.0), (1e-310,) * 3, (1e-310, 1e200, 2.0), (5e-324, 1e-100, 1e100)]
)
@pytest.mark.parametrize("needed", [1, 2, 3])
def test_speeds_that_differ_absurdly(speeds, needed):
    missing = [MissingAnswers(0, 1000, needed, (1, 2, 3)), MissingAnswers(1000, 2000, 1, (1, 2))]
    shares = replan(missing, speeds)
    rows = loads(shares, 3)
    assert rows.sum() == needed * 1000 + 1000
    if speeds[0] < speeds[1] and needed < 3:  # the slowest machine is not needed
        assert rows[0] == 0
