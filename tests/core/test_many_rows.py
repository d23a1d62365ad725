"""All of core counts rows exactly, also where 32 bits are too few for them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.plan.flow import Network
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.replan import MissingAnswers, replan

ROWS = 2**40  # per shard
SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)


def best_whole_rows(speeds, copies, rows):
    """The smallest makespan in whole rows, by exact numbers: a step below it is too short."""
    speeds = [Fraction(speed) for speed in speeds]

    def possible(time):
        return sum(min(rows, int(time * speed)) for speed in speeds) >= copies * rows

    low, high = Fraction(0), Fraction(copies * rows) / min(speeds)
    while high - low > Fraction(1, 10**6):
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return float(max(Fraction(int(high * speed)) / speed for speed in speeds))


@pytest.mark.parametrize("available", [(1, 2, 3, 4, 5, 6), (1, 2, 3, 5), (2, 3, 5)])
@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
def test_a_plan(available, scheme):
    plan = plan_step(available, SPEEDS, 3, ROWS, scheme=scheme)
    assignment = plan.assignment
    counts = assignment.counts(6)
    assert counts.sum() == 3 * ROWS
    assert sum(b.stop - b.start for b in assignment.blocks) == ROWS
    assert all(len(set(block.machines)) == 3 for block in assignment.blocks)
    for n, bounds in enumerate(plan.interval_bounds(6), start=1):
        assert sum(bounds[1::2]) - sum(bounds[::2]) == counts[n - 1] == assignment.count(n)
    assert Assignment.from_array(assignment.to_array()).blocks == assignment.blocks
    if scheme == "heterogeneous":
        speeds = [SPEEDS[n - 1] for n in available]
        assert plan.makespan == best_whole_rows(speeds, 3, ROWS)


def makespan(shares, speeds):
    rows = [0] * len(speeds)
    for share in shares:
        rows[share.machine - 1] += share.stop - share.start
    return max(n / speed for n, speed in zip(rows, speeds, strict=True))


@pytest.mark.parametrize("rows", [2**31, 2**40])
def test_rows_that_miss_answers(rows):
    missing = [MissingAnswers(0, rows, 2, (1, 2, 3, 4)), MissingAnswers(rows, rows + 5, 1, (4,))]
    speeds = [1.0, 3.0, 4.0, 8.0]
    shares = replan(missing, speeds)
    for each in missing:
        inside = [s for s in shares if each.start <= s.start and s.stop <= each.stop]
        assert {share.machine for share in inside} <= set(each.eligible)
        assert sum(s.stop - s.start for s in inside) == each.needed * (each.stop - each.start)
    # 3/8 of a unit of time after rows/8 the machines have 0, 1, 1 and 3 more rows, which are 5.
    assert makespan(shares, speeds) == rows / 8 + 3 / 8


@st.composite
def networks(draw):
    groups, machines = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    pairs = [(g, n) for g in range(groups) for n in range(machines)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    sizes = draw(st.lists(st.integers(1, 30), min_size=groups, max_size=groups))
    needed = draw(st.lists(st.integers(1, 3), min_size=groups, max_size=groups))
    capacities = draw(st.lists(st.integers(0, 40), min_size=machines, max_size=machines))
    return [n * k for n, k in zip(sizes, needed, strict=True)], sizes, chosen, capacities


@example(([9], [3], [(0, 0), (0, 1), (0, 2)], [5, 2, 3]), 7, 45)
@given(networks(), st.integers(0, 6), st.integers(27, 50))
def test_a_flow_of_many_rows_is_as_large_as_one_of_few(network, odd, bits):
    """The largest flow grows as all capacities do: by ``2**bits + odd``, which 32 bits cannot."""
    supplies, sizes, pairs, capacities = network
    times, machines = 2**bits + odd, len(capacities)
    of_pairs = [sizes[g] for g, _ in pairs]
    few = Network(supplies, of_pairs, pairs, machines).max_flow(np.array(capacities))
    more_supplies, more_sizes = ([each * times for each in rows] for rows in (supplies, of_pairs))
    many = Network(more_supplies, more_sizes, pairs, machines).max_flow(
        np.array(capacities) * times
    )
    assert many.sum() == few.sum() * times
    assert (many >= 0).all()
    assert (many <= np.array(more_sizes)).all()
    groups, at = np.array(pairs, int).reshape(-1, 2).T
    assert (np.bincount(groups, many, len(supplies)) <= np.array(more_supplies)).all()
    assert (np.bincount(at, many, machines) <= np.array(capacities) * times).all()
