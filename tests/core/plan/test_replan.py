"""Reassignment of rows with missing answers, compared with optima."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.plan.replan import MissingAnswers, replan
from cec_mpi.errors import InfeasibleError


def replanned_loads(missing, speeds):
    """Return the rows of each machine; check that each row gets its missing answers."""
    shares, loads = replan(missing, speeds), np.zeros(len(speeds))
    for share in shares:
        loads[share.machine - 1] += share.stop - share.start
    for group in missing:
        inside = [s for s in shares if group.start <= s.start and s.stop <= group.stop]
        assert {share.machine for share in inside} <= set(group.eligible_machines)
        for row in {group.start, *(s.start for s in inside)} if group.answers_per_row else ():
            machines = [s.machine for s in shares if s.start <= row < s.stop]
            assert len(machines) == len(set(machines)) == group.answers_per_row
    return loads


@st.composite
def problems(draw):
    machines = draw(st.integers(1, 6))
    missing, start = [], 0
    for _ in range(draw(st.integers(1, 4))):
        eligible = draw(st.sets(st.integers(1, machines), min_size=1))
        needed = draw(st.integers(1, len(eligible)))
        start += draw(st.integers(0, 3))
        stop = start + draw(st.integers(1, 3))
        missing.append(MissingAnswers(start, stop, needed, tuple(sorted(eligible))))
        start = stop
    return missing, draw(st.lists(st.floats(0.1, 10), min_size=machines, max_size=machines))


@given(problems())
def test_no_whole_rows_have_a_smaller_makespan(problem):
    missing, speeds = problem
    choices = [
        list(itertools.combinations(group.eligible_machines, group.answers_per_row))
        for group in missing
        for _ in range(group.start, group.stop)
    ]
    if np.prod([len(choice) for choice in choices]) > 3000:
        return
    best = min(
        max(np.bincount(np.concatenate(chosen), minlength=len(speeds) + 1)[1:] / speeds)
        for chosen in itertools.product(*choices)
    )
    assert max(replanned_loads(missing, speeds) / speeds) == pytest.approx(best)


@pytest.mark.parametrize("rows", [2**31, 2**40])
def test_more_rows_than_32_bits(rows):
    missing = [MissingAnswers(0, rows, 2, (1, 2, 3, 4)), MissingAnswers(rows, rows + 5, 1, (4,))]
    speeds = [1.0, 3.0, 4.0, 8.0]
    loads = replanned_loads(missing, speeds)
    # The machines compute rows / 8 each per unit of speed, and 0, 1, 1 and 3 of the last 5 rows.
    assert max(loads / speeds) == rows / 8 + 3 / 8


def test_no_missing_answers_need_no_shares():
    assert replan([], [1.0]) == []
    assert replan([MissingAnswers(3, 3, 1, (1,)), MissingAnswers(3, 9, 0, ())], [1.0]) == []


def test_too_few_eligible_machines_are_infeasible():
    with pytest.raises(InfeasibleError, match=r"rows 2\.\.6 lack 2 answers: 1 machine can"):
        replan([MissingAnswers(2, 7, 2, (3,))], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "speeds", [(1e-310, 1.0, 1.0), (1e-310,) * 3, (1e-310, 1e200, 2.0), (5e-324, 1e-100, 1e100)]
)
@pytest.mark.parametrize("needed", [1, 2, 3])
def test_speeds_may_differ_extremely(speeds, needed):
    missing = [MissingAnswers(0, 1000, needed, (1, 2, 3)), MissingAnswers(1000, 2000, 1, (1, 2))]
    loads = replanned_loads(missing, speeds)
    assert loads.sum() == needed * 1000 + 1000
    if speeds[0] < speeds[1] and needed < 3:
        assert loads[0] == 0
