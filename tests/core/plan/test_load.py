"""Loads: Theorem 1 in fractions of a shard, and the optimal load in whole rows."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.plan.load import (
    check_speeds,
    fractional_load,
    makespan,
    optimal_c_star,
    whole_row_load,
)
from cec_mpi.errors import InfeasibleError, InputError

# The example of the paper, Section III: six machines, three of which compute each row.
SPEEDS = {
    1: (2, 2, 3, 3, 4, 4),
    2: (2, 2, 3, 4, 4),
    3: (2, 2, 3, 4),
    4: (2, 3, 4),
}
many = settings(max_examples=60)
small_speeds = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@st.composite
def speeds_and_copies(draw, speeds=small_speeds):
    drawn = draw(speeds)
    return drawn, draw(st.integers(1, len(drawn)))


def rows_before(time, speeds, rows):
    """Whole rows that all machines together can compute in strictly less than `time`."""
    return sum(min(rows, -(-time * Fraction(s) // 1) - 1) for s in speeds)


# --- the paper's example ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "c_star", "k_star", "mu"),
    [
        (1, "1/6", 6, "1/3 1/3 1/2 1/2 2/3 2/3"),
        (2, "1/5", 5, "2/5 2/5 3/5 4/5 4/5"),
        (3, "2/7", 3, "4/7 4/7 6/7 1"),
        (4, "1/2", None, "1 1 1"),
    ],
)
def test_the_papers_example_to_the_last_fraction(step, c_star, k_star, mu):
    load = fractional_load(SPEEDS[step], 3)
    assert load.mu == tuple(Fraction(value) for value in mu.split())
    assert load.c_star == Fraction(c_star)
    assert load.k_star == k_star
    assert all(isinstance(value, Fraction) for value in (*load.mu, load.c_star))


# --- Theorem 1 ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_fractional_load_is_the_optimum_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    machines = int(rng.integers(1, 13))
    machines_per_row = int(rng.integers(1, machines + 1))
    speeds = np.exp(rng.normal(0, 1, machines))
    # Unknowns mu[1..N] and c: minimise c with mu[n] <= c s[n] and sum mu = machines_per_row.
    best = linprog(
        np.append(np.zeros(machines), 1),
        A_ub=np.column_stack((np.eye(machines), -speeds)),
        b_ub=np.zeros(machines),
        A_eq=np.append(np.ones(machines), 0)[None],
        b_eq=[machines_per_row],
        bounds=[(0, 1)] * machines + [(0, None)],
    )
    load = fractional_load(speeds, machines_per_row)
    assert load.c_star == pytest.approx(best.fun, rel=1e-9)
    assert sum(load.mu) == pytest.approx(machines_per_row, rel=1e-12)
    assert makespan(load.mu, speeds) == pytest.approx(load.c_star, rel=1e-12)


@given(
    speeds=st.lists(
        st.floats(1e-300, 1e300) | st.sampled_from([1.0, 2.0]), min_size=1, max_size=140
    ),
    data=st.data(),
)
def test_the_level_alone_is_that_of_the_loads(speeds, data):
    machines_per_row = data.draw(st.integers(1, len(speeds)))
    assert optimal_c_star(speeds, machines_per_row) == pytest.approx(
        float(fractional_load(speeds, machines_per_row).c_star), rel=1e-14
    )


def test_k_star_counts_ties_at_the_full_shard():
    # c_2 = 1/2 and c_3 = 2/4: with k = 3 the third machine's load is 1 as well.
    load = fractional_load([1, 1, 2], 2)
    assert (load.c_star, load.k_star) == (Fraction(1, 2), 3)


EXTREMES = [
    [1.0, 1e9, 1e9, 1e9],
    [1.0, 1.0, 1.0, 1e9],
    [1e9, 1.0, 1e9, 1.0],
    [1e308] * 4,
    [1e-300] * 4,
    [1e-300, 1e300, 1.0, 2.0],
    [1e-300, 1e-300, 1e300],
    [1e-300, 1e-300, 1e300, 1e300],
    [1e-130, 1e-140, 1e140, 1e130, 1e140],
]
EXTREME_CASES = [
    (speeds, machines_per_row)
    for speeds in EXTREMES
    for machines_per_row in range(1, len(speeds) + 1)
]


@pytest.mark.parametrize(("speeds", "machines_per_row"), EXTREME_CASES)
def test_extreme_speeds_lose_no_accuracy(speeds, machines_per_row):
    exact = fractional_load([Fraction(s) for s in speeds], machines_per_row)
    floats = fractional_load(speeds, machines_per_row)
    assert floats.mu == pytest.approx([float(mu) for mu in exact.mu], rel=1e-12)
    assert floats.c_star == pytest.approx(float(exact.c_star), rel=1e-12)


@pytest.mark.parametrize(("speeds", "machines_per_row"), EXTREME_CASES)
def test_extreme_speeds_have_whole_row_loads(speeds, machines_per_row):
    loads = whole_row_load(speeds, machines_per_row, 100)
    assert loads.sum() == machines_per_row * 100
    assert loads.min() >= 0
    assert loads.max() <= 100
    time = max(Fraction(m) / Fraction(s) for m, s in zip(loads.tolist(), speeds, strict=True))
    assert rows_before(time, speeds, 100) < machines_per_row * 100


@pytest.mark.parametrize("machines", [2, 3, 5])
def test_a_time_too_long_for_a_float_is_infinite(machines):
    speeds = [5e-324] * machines
    load = fractional_load(speeds, 2)
    assert load.mu == pytest.approx([2 / machines] * machines)
    assert load.c_star == float("inf")
    loads = whole_row_load(speeds, 2, 30)
    assert loads.tolist() == [60 // machines] * machines
    assert makespan(loads, speeds) == float("inf")


def test_machines_that_slow_still_share_by_their_speeds():
    speeds = [5e-324, 1e-323, 1e308]
    load = fractional_load(speeds, 2)
    assert load.mu == pytest.approx((1 / 3, 2 / 3, 1))
    assert load.c_star == float("inf")
    assert whole_row_load(speeds, 2, 100).tolist() == [33, 67, 100]


# --- whole rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_other_load_in_whole_rows_is_faster(seed):
    rng = np.random.default_rng(seed)
    machines, rows = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    machines_per_row = int(rng.integers(1, machines + 1))
    speeds = rng.integers(1, 8, machines).tolist()
    best = min(
        makespan(loads, speeds)
        for loads in product(range(rows + 1), repeat=machines)
        if sum(loads) == machines_per_row * rows
    )
    assert makespan(whole_row_load(speeds, machines_per_row, rows), speeds) == best


@many
@given(
    speeds_and_copies(st.lists(st.integers(1, 1000), min_size=1, max_size=12)),
    st.integers(1, 10**6),
)
def test_whole_row_load_fits_and_in_less_time_the_rows_could_not_be_done(case, rows):
    speeds, machines_per_row = case
    loads = whole_row_load(speeds, machines_per_row, rows).tolist()
    assert sum(loads) == machines_per_row * rows
    assert min(loads) >= 0
    assert max(loads) <= rows
    time = max(Fraction(m, s) for m, s in zip(loads, speeds, strict=True))
    assert rows_before(time, speeds, rows) < machines_per_row * rows
    bound = fractional_load(speeds, machines_per_row).c_star * rows
    assert bound <= time <= bound + Fraction(1, min(speeds))


def test_a_machine_too_slow_for_a_row_gets_none():
    assert whole_row_load([1, 1000, 1000], 1, 10).tolist() == [0, 5, 5]


def test_rows_left_over_go_to_the_lowest_position_in_a_tie():
    assert whole_row_load([1, 1, 1], 1, 4).tolist() == [2, 1, 1]


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan", [lambda s: fractional_load(s, 1), lambda s: whole_row_load(s, 1, 5)]
)
@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ([0, 1, 2], "position 1 is 0.0"),
        ([1, -2.5, 3], "position 2 is -2.5"),
        ([1, 2, float("nan")], "position 3 is nan"),
        ([float("inf"), 1], "position 1 is inf"),
        ([1, -float("inf")], "position 2 is -inf"),
        ([1, "fast"], "'fast'"),
        ([1, 2 + 1j], "complex"),
        ([1, 10**400], "too large"),
        ([], r"shape \(0,\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
        (3.0, r"shape \(\)"),
    ],
)
def test_a_speed_that_cannot_be_is_named(plan, speeds, message):
    with pytest.raises(InputError, match=message) as caught:
        plan(speeds)
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 2


def test_speeds_come_back_as_they_are():
    speeds = check_speeds((1, 2.5, Fraction(1, 4)))
    assert speeds.tolist() == [1.0, 2.5, 0.25]
    assert speeds.dtype == np.float64


@pytest.mark.parametrize(
    "plan", [fractional_load, lambda s, machines_per_row: whole_row_load(s, machines_per_row, 5)]
)
def test_each_row_needs_from_one_to_all_machines(plan):
    with pytest.raises(InfeasibleError, match="2 machines available: each row needs 3") as caught:
        plan([1, 2], 3)
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 4
    with pytest.raises(InputError, match="each row on 0 machines"):
        plan([1, 2], 0)


def test_rows_start_at_one():
    with pytest.raises(InputError, match="0 rows per shard"):
        whole_row_load([1, 2], 1, 0)


@pytest.mark.parametrize("machines_per_row", [1, 499])
def test_the_most_rows_that_there_can_be_are_given_out_exactly(machines_per_row):
    loads = whole_row_load([0.1] * 500, machines_per_row, 2**48)
    assert int(loads.sum()) == machines_per_row * 2**48
    assert loads.max() - loads.min() <= 1
