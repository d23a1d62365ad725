"""Whose error NaN and infinity are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.checks.finite import NonfiniteChecker

ODD = st.sampled_from([np.nan, np.inf, -np.inf])


@given(st.data())
def test_two_machines_at_one_row_and_nothing_else_is_an_overflow(data):
    """Compared with the rows of each machine as plain sets."""
    rows, columns = data.draw(st.integers(1, 30), "rows"), data.draw(st.integers(1, 3), "columns")
    answers, bad_rows = NonfiniteChecker(columns), {}
    for _ in range(data.draw(st.integers(1, 6), "answers")):
        machine = data.draw(st.integers(1, 4), "machine")
        cuts = sorted(data.draw(st.sets(st.integers(0, rows), min_size=2, max_size=6), "cuts"))
        intervals = tuple(zip(cuts[::2], cuts[1::2], strict=False))
        listed = [row for start, stop in intervals for row in range(start, stop)]
        values = np.ones((len(listed), columns))
        wrong = data.draw(st.sets(st.sampled_from(listed), max_size=3), "wrong rows")
        for row in wrong:
            values[listed.index(row), data.draw(st.integers(0, columns - 1))] = data.draw(ODD)
        found = answers.check(machine, intervals, values.ravel())
        assert (found is None) == (not wrong)
        shared = [n for n, before in bad_rows.items() if n != machine and before & wrong]
        if found is not None:
            assert (found.machine, found.row in wrong) == (machine, True)
            assert not np.isfinite(found.value)
            assert (found.coincident is not None) == bool(shared)
            if found.coincident is not None:
                assert found.coincident.machine in shared
                assert found.coincident.row == found.row in bad_rows[found.coincident.machine]
        bad_rows.setdefault(machine, set()).update(wrong)


def test_parts_of_a_sum_overflow_together_only_where_they_have_rows_in_common():
    for others, overflow in ((((0, 10),), True), (((9, 12), (20, 30)), True), (((10, 20),), False)):
        parts = NonfiniteChecker(2, adjoint=True)
        assert parts.check(1, ((0, 10),), np.array([1.0, 2.0, 3.0, np.inf])).coincident is None
        found = parts.check(3, others, np.array([1.0, 2.0, np.nan, np.nan]))
        assert (found.coincident is not None) == overflow
        assert found.row == 1
    parts = NonfiniteChecker(1, adjoint=True)
    parts.check(1, ((0, 10),), np.array([np.nan, 1.0]))
    assert parts.check(2, ((0, 10),), np.array([1.0, np.nan])).coincident is None
