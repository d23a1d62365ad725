"""Reassignment of missing answers, compared with optima, and its maximum flows."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.plan.flow import Network
from cec_mpi.core.plan.replan import MissingAnswers, replan
from cec_mpi.errors import InfeasibleError


def replanned_loads(missing, speeds):
    """Return the rows of each machine; check that each row gets its missing answers."""
    shares, loads = replan(missing, speeds), np.zeros(len(speeds))
    for share in shares:
        loads[share.machine - 1] += share.stop - share.start
    for group in missing:
        group_shares = [s for s in shares if group.start <= s.start and s.stop <= group.stop]
        assert {share.machine for share in group_shares} <= set(group.eligible_machines)
        for row in {group.start, *(s.start for s in group_shares)} if group.answers_per_row else ():
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
def test_no_other_assignment_of_whole_rows_has_a_smaller_makespan(problem):
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
def test_the_number_of_rows_may_exceed_32_bits(rows):
    missing = [MissingAnswers(0, rows, 2, (1, 2, 3, 4)), MissingAnswers(rows, rows + 5, 1, (4,))]
    speeds = [1.0, 3.0, 4.0, 8.0]
    loads = replanned_loads(missing, speeds)
    # Each machine computes rows / 8 per unit of speed, and then 0, 1, 1 and 3 of 5 more rows.
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


# --- maximum flows with capacities of more than 32 bits -----------------------------------


@st.composite
def networks(draw):
    groups, machines = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    pairs = [(g, n) for g in range(groups) for n in range(machines)]
    pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    sizes = draw(st.lists(st.integers(1, 30), min_size=groups, max_size=groups))
    needed = draw(st.lists(st.integers(1, 3), min_size=groups, max_size=groups))
    capacities = draw(st.lists(st.integers(0, 40), min_size=machines, max_size=machines))
    return (
        np.multiply(sizes, needed),
        np.array([sizes[g] for g, _ in pairs], int),
        pairs,
        capacities,
    )


@example((np.array([9]), np.array([3, 3, 3]), [(0, 0), (0, 1), (0, 2)], [5, 2, 3]), 2**45 + 7)
@given(
    networks(), st.integers(0, 6).flatmap(lambda odd: st.sampled_from([2**27 + odd, 2**45 + odd]))
)
def test_the_maximum_flow_is_proportional_to_all_capacities(network, factor):
    supplies, pair_capacities, pairs, capacities = network
    machines, capacities = len(capacities), np.array(capacities)
    small_flow = Network(supplies, pair_capacities, pairs, machines).max_flow(capacities)
    network = Network(supplies * factor, pair_capacities * factor, pairs, machines)
    flow = network.max_flow(capacities * factor)
    assert flow.sum() == small_flow.sum() * factor
    assert ((flow >= 0) & (flow <= pair_capacities * factor)).all()
    group, machine = np.array(pairs, int).reshape(-1, 2).T
    assert (np.bincount(group, flow, supplies.size) <= supplies * factor).all()
    assert (np.bincount(machine, flow, machines) <= capacities * factor).all()
