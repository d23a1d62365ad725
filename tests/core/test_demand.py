"""The least time of a step with costs of calls, against exact numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.demand import optimal_loads


def exact_time(speeds, overheads, needed, most):
    """The least time at which machines have done what is needed, by trying all events."""
    speeds, overheads = ([Fraction(each) for each in values] for values in (speeds, overheads))
    machines = list(zip(speeds, overheads, most, strict=True))
    events = {cost / speed for speed, cost, _ in machines}
    events |= {(cost + rows) / speed for speed, cost, rows in machines}
    before, done_before = Fraction(0), Fraction(0)
    for time in sorted(events):
        done = sum(min(max(s * time - cost, 0), rows) for s, cost, rows in machines)
        if done >= needed:
            break
        before, done_before = time, done
    return before + (time - before) * (needed - done_before) / (done - done_before)


@st.composite
def machines(draw):
    """Speeds of which some are much slower than others, costs of calls, L and rows."""
    count = draw(st.integers(1, 6))
    scales = st.sampled_from([1.0, 1.0, 1e-2, 1e-4, 1e-12])
    speeds = [draw(st.floats(1, 6)) * draw(scales) for _ in range(count)]
    costs = [draw(st.sampled_from([0.0, 0.195, 3.0]) | st.floats(0, 50)) for _ in range(count)]
    return speeds, costs, draw(st.integers(1, count)), draw(st.integers(1, 1000))


@given(machines())
@example(([5.071, 5.533, 4.72, 3.2e-4], [0.195] * 4, 3, 703))  # 703 rows, then a gap
def test_the_least_time(case):
    speeds, costs, copies, rows = case
    time, loads = optimal_loads(np.array(speeds), np.array(costs), copies, rows)
    most = [rows] * len(speeds)
    assert time == pytest.approx(float(exact_time(speeds, costs, copies * rows, most)), rel=1e-12)
    assert loads.sum() == pytest.approx(copies * rows, rel=1e-12)
    assert (loads <= rows).all()
