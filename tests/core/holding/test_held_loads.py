"""Loads of machines with several shards: against Theorem 1, a linear program and brute force."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.holding.load import exact_load, least_time, limited_load
from cec_mpi.core.plan.limited import exact_level
from cec_mpi.core.plan.load import fractional_load, makespan, whole_row_load
from cec_mpi.errors import InfeasibleError, InputError

many = settings(max_examples=100, deadline=None, database=None)
ONE_FAST = (1, 1, 1, 1, 1, 20)


@st.composite
def problems(draw, most_shards=5):
    """(speeds, counts, recovery)."""
    machines = draw(st.integers(1, 7))
    speeds = draw(st.lists(st.integers(1, 20), min_size=machines, max_size=machines))
    counts = st.lists(st.integers(1, most_shards), min_size=machines, max_size=machines)
    held = draw(counts)
    return speeds, held, draw(st.integers(1, sum(held)))


def fractions(numbers):
    return [Fraction(number) for number in numbers]


# --- in fractions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "mu", "c_star", "k_star"),
    [
        # One shard each: the fast machine is at its limit, and the others do three shards.
        ((1, 1, 1, 1, 1, 1), "3/5 3/5 3/5 3/5 3/5 1", "3/5", 5),
        ((1, 1, 1, 1, 1, 2), "2/5 2/5 2/5 2/5 2/5 2", "2/5", 5),
        ((1, 1, 1, 1, 1, 3), "1/5 1/5 1/5 1/5 1/5 3", "1/5", 5),
        # With four it is no longer at its limit, and a fifth is of no use.
        ((1, 1, 1, 1, 1, 4), "4/25 4/25 4/25 4/25 4/25 16/5", "4/25", 6),
        ((1, 1, 1, 1, 1, 5), "4/25 4/25 4/25 4/25 4/25 16/5", "4/25", 6),
    ],
)
def test_one_fast_machine_with_more_and_more_shards(counts, mu, c_star, k_star):
    load = exact_load(fractions(ONE_FAST), counts, 4)
    assert load.mu == tuple(fractions(mu.split()))
    assert (load.c_star, load.k_star) == (Fraction(c_star), k_star)


@many
@given(problems(most_shards=1))
def test_with_one_shard_each_it_is_theorem_1(problem):
    speeds, counts, recovery = problem
    load, theorem = (
        exact_load(fractions(speeds), counts, recovery),
        fractional_load(speeds, recovery),
    )
    assert (load.mu, load.c_star, load.k_star) == (theorem.mu, theorem.c_star, theorem.k_star)


@many
@given(problems())
def test_it_is_theorem_1_of_shards_with_equal_parts_of_the_speed_of_their_machine(problem):
    speeds, counts, recovery = problem
    load = exact_load(fractions(speeds), counts, recovery)
    parts = [Fraction(s, c) for s, c in zip(speeds, counts, strict=True) for _ in range(c)]
    assert load.c_star == fractional_load(parts, recovery).c_star
    assert sum(load.mu) == recovery
    assert all(0 < mu <= count for mu, count in zip(load.mu, counts, strict=True))
    assert max(mu / s for mu, s in zip(load.mu, speeds, strict=True)) == load.c_star


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_optimum_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    machines = int(rng.integers(1, 13))
    counts = rng.integers(1, 6, machines)
    recovery = int(rng.integers(1, counts.sum() + 1))
    speeds = np.exp(rng.normal(0, 1, machines))
    best = linprog(
        np.append(np.zeros(machines), 1),
        A_ub=np.column_stack((np.eye(machines), -speeds)),
        b_ub=np.zeros(machines),
        A_eq=np.append(np.ones(machines), 0)[None],
        b_eq=[recovery],
        bounds=[(0, int(count)) for count in counts] + [(0, None)],
    )
    assert least_time(speeds, counts.astype(float), recovery) == pytest.approx(best.fun, rel=1e-9)
    exact = exact_load(fractions(speeds), counts.tolist(), recovery)
    assert float(exact.c_star) == pytest.approx(best.fun, rel=1e-9)


@many
@given(problems(), st.floats(-250, 250))
def test_floats_give_what_fractions_give_in_any_unit(problem, exponent):
    speeds, counts, recovery = problem
    speeds = np.array(speeds) * 10**exponent
    exact = exact_level(fractions(speeds), counts, recovery)
    found = least_time(speeds, np.array(counts, dtype=float), recovery)
    assert found == pytest.approx(float(exact), rel=1e-12)


def test_extreme_speeds():
    speeds = np.array([1e-300, 1e-300, 1e300])
    assert least_time(speeds, np.array([1.0, 1.0, 2.0]), 2.0) == pytest.approx(2e-300)
    assert least_time(speeds, np.array([1.0, 1.0, 2.0]), 3.0) == pytest.approx(5e299)
    assert least_time(np.array([5e-324, 1.0]), np.array([1.0, 1.0]), 2.0) == np.inf
    assert limited_load(speeds, np.array([10, 10, 20]), 30).tolist() == [5, 5, 20]


# --- in whole rows ------------------------------------------------------------------------


@many
@given(problems(most_shards=1), st.integers(1, 5000))
def test_with_one_shard_each_rows_are_those_of_the_paper(problem, rows):
    speeds, counts, recovery = problem
    limits = np.array(counts) * rows
    found = limited_load(np.array(speeds, dtype=float), limits, recovery * rows)
    assert found.tolist() == whole_row_load(speeds, recovery, rows).tolist()


@many
@given(problems(), st.integers(1, 2000))
def test_no_whole_rows_are_done_sooner(problem, rows):
    speeds, counts, recovery = problem
    limits = np.array(counts) * rows
    found = limited_load(np.array(speeds, dtype=float), limits, recovery * rows)
    assert found.sum() == recovery * rows
    assert (found >= 0).all()
    assert (found <= limits).all()
    time = max(Fraction(m, s) for m, s in zip(found.tolist(), speeds, strict=True))
    # In less time than that, with rows that are begun and not done, there would be too few.
    sooner = [
        min(int(limit), -(-time * s // 1) - 1) for limit, s in zip(limits, speeds, strict=True)
    ]
    assert sum(sooner) < recovery * rows


@settings(max_examples=80, deadline=None, database=None)
@given(problems(most_shards=3), st.integers(1, 3))
def test_brute_force(problem, rows):
    speeds, counts, recovery = problem
    ways = [range(count * rows + 1) for count in counts]
    if np.prod([len(way) for way in ways], dtype=float) > 5000:
        return
    best = min(
        max(m / s for m, s in zip(way, speeds, strict=True))
        for way in product(*ways)
        if sum(way) == recovery * rows
    )
    limits = np.array(counts) * rows
    found = limited_load(np.array(speeds, dtype=float), limits, recovery * rows)
    assert makespan(found, speeds) == pytest.approx(best)


# --- what cannot be -----------------------------------------------------------------------


def test_too_few_shards():
    with pytest.raises(
        InfeasibleError, match="2 machines with 3 shards available: each row needs 4"
    ):
        exact_load(fractions([1, 1]), [1, 2], 4)
    with pytest.raises(ValueError, match="limits with sum 3: expected at least 4"):
        exact_level(fractions([1, 1]), [1, 2], 4)


def test_no_shards():
    with pytest.raises(InputError, match="each row with 0 shards: expected at least 1"):
        exact_load(fractions([1, 1]), [1, 2], 0)
