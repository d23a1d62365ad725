"""Who computes which rows of a sparse X: what a plan of replicas promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.replicas.least import Groups


def by_linear_program(costs, holders, speeds, overheads, copies):
    """The least time, by HiGHS."""
    pairs = [(g, n) for g, each in enumerate(holders) for n in each]
    objective = np.append(np.zeros(len(pairs)), 1.0)
    each_group = np.array(
        [[float(g == own) for own, _ in pairs] + [0.0] for g in range(len(costs))]
    )
    each_machine = np.array(
        [[float(n == own) for _, own in pairs] + [-speeds[n]] for n in range(len(speeds))]
    )
    here = sorted({n for _, n in pairs})
    bounds = [(0, costs[g]) for g, _ in pairs] + [(0, None)]
    best = np.inf
    for used in [here]:
        found = linprog(
            objective,
            A_ub=each_machine[used],
            b_ub=-np.asarray(overheads)[used],
            A_eq=each_group,
            b_eq=copies * np.asarray(costs),
            bounds=bounds,
        )
        best = found.fun
    return best


@st.composite
def instances(draw):
    machines = draw(st.integers(1, 7))
    copies = draw(st.integers(1, min(3, machines)))
    sets = st.sets(st.integers(0, machines - 1), min_size=copies, max_size=machines)
    holders = draw(st.lists(sets.map(sorted), min_size=1, max_size=9))
    sizes = st.floats(0.01, 100)
    costs = draw(st.lists(sizes, min_size=len(holders), max_size=len(holders)))
    speeds = draw(st.lists(sizes, min_size=machines, max_size=machines))
    return costs, holders, np.array(speeds), copies


@settings(max_examples=200, deadline=None)
@given(instances())
def test_the_least_time_is_that_of_a_linear_program(instance):
    costs, holders, speeds, copies = instance
    groups = Groups(costs, holders, speeds.size, copies)
    time, amounts = groups.least(speeds)
    expected = by_linear_program(costs, holders, speeds, np.zeros(speeds.size), copies)
    assert time == pytest.approx(expected, rel=1e-6)
    assert (np.bincount(groups.group, amounts) == copies * groups.whole).all()
    assert (amounts <= groups.whole[groups.group]).all()
    unit = sum(costs) / groups.whole.sum()
    done = np.bincount(groups.machine, amounts, speeds.size) * unit / speeds
    assert done.max() <= time * (1 + 1e-6) + 10 * unit / speeds.min()
