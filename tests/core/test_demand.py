"""The minimum makespan with overheads, in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.demand import CodedDemand, optimal_loads
from cec_mpi.errors import InfeasibleError, InputError


def exact_makespan(speeds, overheads, total, max_load):
    """Return the time at which the machines have computed `total` rows."""
    machines = [(Fraction(s), Fraction(cost)) for s, cost in zip(speeds, overheads, strict=True)]
    events = {(cost + rows) / s for s, cost in machines for rows in (0, max_load)}
    last_time, last_rows = Fraction(0), Fraction(0)
    for time in sorted(events):
        rows = sum(min(max(s * time - cost, 0), max_load) for s, cost in machines)
        if rows >= total:
            break
        last_time, last_rows = time, rows
    return last_time + (time - last_time) * (total - last_rows) / (rows - last_rows)


@st.composite
def machines(draw):
    """Draw speeds of different magnitudes, overheads, machines per row and rows."""
    count = draw(st.integers(1, 6))
    factors = st.sampled_from([1.0, 1.0, 1e-2, 1e-4, 1e-12])
    speeds = [draw(st.floats(1, 6)) * draw(factors) for _ in range(count)]
    overhead = st.sampled_from([0.0, 0.195, 3.0]) | st.floats(0, 50)
    overheads = [draw(overhead) for _ in range(count)]
    return speeds, overheads, draw(st.integers(1, count)), draw(st.integers(1, 1000))


@given(machines())
@example(([5.071, 5.533, 4.72, 3.2e-4], [0.195] * 4, 3, 703))  # a slow machine starts too late
def test_the_makespan_is_optimal(case):
    speeds, overheads, machines_per_row, rows = case
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
