"""The least time of work that only some machines can do, against linear programs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.work_groups import WorkGroups
from helpers.linear_program import least_time


@st.composite
def instances(draw, most, fixed):
    machines = draw(st.integers(1, most))
    copies = draw(st.integers(1, min(3, machines)))
    sets = st.sets(st.integers(0, machines - 1), min_size=copies, max_size=machines)
    holders = draw(st.lists(sets.map(sorted), min_size=1, max_size=9))
    sizes = st.floats(0.01, 100)
    costs = draw(st.lists(sizes, min_size=len(holders), max_size=len(holders)))
    speeds, overheads = (
        np.array(draw(st.lists(each, min_size=machines, max_size=machines)))
        for each in (sizes, st.floats(0, 50) if fixed else st.just(0.0))
    )
    return costs, holders, speeds, overheads, copies


@given(instances(7, fixed=False) | instances(4, fixed=True))
def test_the_least_time_is_that_of_a_linear_program(instance):
    costs, holders, speeds, overheads, copies = instance
    groups = WorkGroups(costs, holders, speeds.size, copies)
    time, amounts = groups.minimise_makespan(speeds, overheads)
    assert time == pytest.approx(least_time(*instance), rel=1e-6)
    assert (np.bincount(groups.group, amounts) == copies * groups.units).all()
    assert (amounts <= groups.units[groups.group]).all()
    done = np.bincount(groups.machine, amounts, speeds.size) * groups.unit_cost
    needed = (done + overheads) / speeds
    assert (
        needed[done > groups.unit_cost].max()
        <= time * (1 + 1e-6) + 2 * groups.unit_cost / speeds.min()
    )


@pytest.mark.parametrize("machines", [1, 40, 300])
def test_machines_that_hold_everything_finish_together(machines):
    speeds = np.random.default_rng(machines).uniform(1, 5, machines)
    groups = WorkGroups([5.0, 0.001, 1e6], [range(machines)] * 3, machines)
    time, amounts = groups.minimise_makespan(speeds)
    assert time == pytest.approx(1_000_005.001 / speeds.sum(), rel=1e-8)
    done = np.bincount(groups.machine, amounts, machines) * groups.unit_cost
    np.testing.assert_allclose(done / speeds, time, rtol=1e-3)


def test_many_groups_of_equal_work_take_no_longer_than_their_sum():
    random = np.random.default_rng(0)
    holders = [random.choice(100, 3, replace=False).tolist() for _ in range(800)]
    time, _ = WorkGroups(np.full(800, 7.0), holders, 100).minimise_makespan(np.ones(100))
    assert time == pytest.approx(7 * 800 / 100, rel=1e-9)
