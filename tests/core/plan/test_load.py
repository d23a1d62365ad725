"""Theorem 1 in fractions of a shard, in whole rows, and with overheads."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cec_mpi.core.demand import CodedDemand, optimal_loads
from cec_mpi.core.plan.load import (
    fractional_load,
    makespan,
    unchecked_c_star,
    whole_row_load,
)
from cec_mpi.errors import InfeasibleError, InputError


def rows_before(time, speeds, rows):
    """Return how many whole rows the machines can compute in strictly less than `time`."""
    return sum(min(rows, -(-time * Fraction(s) // 1) - 1) for s in speeds)


def check_whole_row_load(loads, speeds, machines_per_row, rows):
    """Check that a load is feasible and has the minimum makespan; return its makespan."""
    assert sum(loads) == machines_per_row * rows
    assert 0 <= min(loads) <= max(loads) <= rows
    time = max(Fraction(m) / Fraction(s) for m, s in zip(loads, speeds, strict=True))
    assert rows_before(time, speeds, rows) < machines_per_row * rows
    return time


# --- fractional loads ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "speeds",
    [
        [1.0, 1e9, 1e9, 1e9],
        [1e9, 1.0, 1e9, 1.0],
        [1e308] * 4,
        [1e-300] * 4,
        [1e-300, 1e300, 1.0, 2.0],
        [1e-300, 1e-300, 1e300, 1e300],
        [1e-130, 1e-140, 1e140, 1e130, 1e140],
    ],
)
def test_loads_for_extreme_speeds_are_accurate(speeds):
    for machines_per_row in range(1, len(speeds) + 1):
        exact = fractional_load([Fraction(s) for s in speeds], machines_per_row)
        load = fractional_load(speeds, machines_per_row)
        assert load.mu == pytest.approx([float(mu) for mu in exact.mu], rel=1e-12)
        assert load.c_star == pytest.approx(float(exact.c_star), rel=1e-12)
        assert unchecked_c_star(speeds, machines_per_row) == pytest.approx(load.c_star, rel=1e-12)
        loads = whole_row_load(speeds, machines_per_row, 100).tolist()
        check_whole_row_load(loads, speeds, machines_per_row, 100)


@pytest.mark.parametrize(
    ("speeds", "mu"), [([5e-324] * 3, [2 / 3] * 3), ([5e-324, 1e-323, 1e308], [1 / 3, 2 / 3, 1])]
)
def test_a_time_that_overflows_is_infinite(speeds, mu):
    load = fractional_load(speeds, 2)
    assert load.mu == pytest.approx(mu)
    assert load.c_star == np.inf
    loads = whole_row_load(speeds, 2, 300)
    assert loads.tolist() == pytest.approx(np.multiply(mu, 300))
    assert makespan(loads, speeds) == np.inf


def test_k_star_includes_ties_at_the_whole_shard():
    load = fractional_load([1, 1, 2], 2)  # c_2 = 1/2 and c_3 = 2/4
    assert (load.c_star, load.k_star) == (Fraction(1, 2), 3)


# --- whole rows ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.data(), st.integers(1, 10**6))
def test_the_whole_row_load_is_feasible_and_optimal(speeds, data, rows):
    machines_per_row = data.draw(st.integers(1, len(speeds)))
    loads = whole_row_load(speeds, machines_per_row, rows).tolist()
    time = check_whole_row_load(loads, speeds, machines_per_row, rows)
    bound = fractional_load(speeds, machines_per_row).c_star * rows
    assert bound <= time <= bound + Fraction(1, min(speeds))


def test_ties_go_to_the_lowest_position():
    assert whole_row_load([1, 1, 1], 1, 4).tolist() == [2, 1, 1]


@pytest.mark.parametrize("machines_per_row", [1, 499])
def test_the_maximum_number_of_rows_is_assigned_exactly(machines_per_row):
    loads = whole_row_load([0.1] * 500, machines_per_row, 2**48)
    assert int(loads.sum()) == machines_per_row * 2**48
    assert loads.max() - loads.min() <= 1


# --- invalid arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ([0, 1, 2], "position 1 is 0.0"),
        ([1, -2.5, 3], "position 2 is -2.5"),
        ([1, 2, float("nan")], "position 3 is nan"),
        ([1, "fast"], "'fast'"),
        ([1, 2 + 1j], "complex"),
        ([1, 10**400], "too large"),
        ([], r"shape \(0,\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
    ],
)
def test_invalid_speeds_are_rejected(speeds, message):
    for call in (lambda: fractional_load(speeds, 1), lambda: whole_row_load(speeds, 1, 5)):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("compute_load", [fractional_load, lambda s, n: whole_row_load(s, n, 5)])
def test_each_row_needs_from_one_to_all_machines(compute_load):
    with pytest.raises(InfeasibleError, match="2 machines available: each row needs 3"):
        compute_load([1, 2], 3)
    with pytest.raises(InputError, match="0 machines per row"):
        compute_load([1, 2], 0)
    with pytest.raises(InputError, match="0 rows per shard"):
        whole_row_load([1, 2], 1, 0)


# --- overheads of machines ----------------------------------------------------------------


def exact_makespan(speeds, overheads, total, max_load):
    """Return the time at which the machines have computed `total` rows."""
    machines = [(Fraction(s), Fraction(cost)) for s, cost in zip(speeds, overheads, strict=True)]
    event_times = {(cost + rows) / s for s, cost in machines for rows in (0, max_load)}
    last_time, last_rows = Fraction(0), Fraction(0)
    for time in sorted(event_times):
        rows = sum(min(max(s * time - cost, 0), max_load) for s, cost in machines)
        if rows >= total:
            break
        last_time, last_rows = time, rows
    return last_time + (time - last_time) * (total - last_rows) / (rows - last_rows)


@st.composite
def problems(draw):
    """Draw speeds of different magnitudes, overheads, machines per row and rows."""
    count = draw(st.integers(1, 6))
    factors = st.sampled_from([1.0, 1.0, 1e-2, 1e-4, 1e-12])
    speeds = [draw(st.floats(1, 6)) * draw(factors) for _ in range(count)]
    overhead = st.sampled_from([0.0, 0.195, 3.0]) | st.floats(0, 50)
    overheads = [draw(overhead) for _ in range(count)]
    return speeds, overheads, draw(st.integers(1, count)), draw(st.integers(1, 1000))


@given(problems())
@example(([5.071, 5.533, 4.72, 3.2e-4], [0.195] * 4, 3, 703))  # a slow machine starts too late
def test_the_makespan_is_optimal(problem):
    speeds, overheads, machines_per_row, rows = problem
    time, loads = optimal_loads(np.array(speeds), np.array(overheads), machines_per_row, rows)
    expected = float(exact_makespan(speeds, overheads, machines_per_row * rows, rows))
    assert time == pytest.approx(expected, rel=1e-12)
    assert loads.sum() == pytest.approx(machines_per_row * rows, rel=1e-12)
    assert (loads <= rows).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((2, 3, 10), InfeasibleError), ((3, 0, 10), InputError), ((3, 2, 0), InputError)],
)
def test_invalid_demands_are_rejected(arguments, error):
    with pytest.raises(error):
        CodedDemand(*arguments)
