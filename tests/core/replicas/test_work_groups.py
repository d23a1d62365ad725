"""The minimum makespan of work groups is that of linear programs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.work_groups import WorkGroups
from helpers.linear_program import min_makespan


@st.composite
def problems(draw, max_machines, overhead):
    """Draw costs, holders, speeds, overheads, and machines per row."""
    machines = draw(st.integers(1, max_machines))
    copies = draw(st.integers(1, min(3, machines)))
    sets = st.sets(st.integers(0, machines - 1), min_size=copies, max_size=machines)
    holders = draw(st.lists(sets.map(sorted), min_size=1, max_size=9))
    size = st.floats(0.01, 100)
    costs = draw(st.lists(size, min_size=len(holders), max_size=len(holders)))
    speeds, overheads = (
        np.array(draw(st.lists(value, min_size=machines, max_size=machines)))
        for value in (size, overhead)
    )
    return costs, holders, speeds, overheads, copies


@given(problems(7, st.just(0.0)) | problems(4, st.floats(0, 50)))
def test_the_makespan_is_that_of_the_linear_program(problem):
    costs, holders, speeds, overheads, copies = problem
    groups = WorkGroups(costs, holders, speeds.size, copies)
    time, amounts = groups.minimise_makespan(speeds, overheads)
    assert time == pytest.approx(min_makespan(*problem), rel=1e-6)
    assert (np.bincount(groups.group, amounts) == copies * groups.units).all()
    assert (amounts <= groups.units[groups.group]).all()
    loads = np.bincount(groups.machine, amounts, speeds.size) * groups.unit_cost
    times = ((loads + overheads) / speeds)[loads > groups.unit_cost]
    assert times.max() <= time * (1 + 1e-6) + 2 * groups.unit_cost / speeds.min()


@pytest.mark.parametrize("machines", [1, 300])
def test_machines_that_hold_everything_finish_at_the_same_time(machines):
    speeds = np.random.default_rng(machines).uniform(1, 5, machines)
    groups = WorkGroups([5.0, 0.001, 1e6], [range(machines)] * 3, machines)
    time, amounts = groups.minimise_makespan(speeds)
    assert time == pytest.approx(1_000_005.001 / speeds.sum(), rel=1e-8)
    loads = np.bincount(groups.machine, amounts, machines) * groups.unit_cost
    np.testing.assert_allclose(loads / speeds, time, rtol=1e-3)
