"""Answers with NaN or infinity: is the machine faulty, or do the rows overflow?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.checks.finite import NonfiniteChecker

NONFINITE = st.sampled_from([np.nan, np.inf, -np.inf])


@given(st.data())
def test_answers_of_two_machines_that_are_not_finite_in_the_same_row_are_coincident(data):
    rows, columns = data.draw(st.integers(1, 30), "rows"), data.draw(st.integers(1, 3), "columns")
    checker, nonfinite_rows = NonfiniteChecker(columns), {}
    for _ in range(data.draw(st.integers(1, 6), "answers")):
        machine = data.draw(st.integers(1, 4), "machine")
        cuts = sorted(data.draw(st.sets(st.integers(0, rows), min_size=2, max_size=6), "cuts"))
        intervals = tuple(zip(cuts[::2], cuts[1::2], strict=False))
        answered = [row for start, stop in intervals for row in range(start, stop)]
        values = np.ones((len(answered), columns))
        nonfinite = data.draw(st.sets(st.sampled_from(answered), max_size=3), "not finite")
        for row in nonfinite:
            column = data.draw(st.integers(0, columns - 1))
            values[answered.index(row), column] = data.draw(NONFINITE)
        answer = checker.check(machine, intervals, values.ravel())
        coincident_machines = {
            n for n, earlier in nonfinite_rows.items() if n != machine and earlier & nonfinite
        }
        assert (answer is None) == (not nonfinite)
        if answer is not None:
            assert (answer.machine, answer.row in nonfinite) == (machine, True)
            assert not np.isfinite(answer.value)
            assert (answer.coincident_answer is not None) == bool(coincident_machines)
            if answer.coincident_answer is not None:
                assert answer.coincident_answer.machine in coincident_machines
                assert answer.coincident_answer.row == answer.row
        nonfinite_rows.setdefault(machine, set()).update(nonfinite)


@pytest.mark.parametrize(
    ("intervals", "is_coincident"),
    [(((0, 10),), True), (((9, 12), (20, 30)), True), (((10, 20),), False)],
)
def test_terms_are_coincident_only_if_they_have_rows_in_common(intervals, is_coincident):
    checker = NonfiniteChecker(2, adjoint=True)
    first = checker.check(1, ((0, 10),), np.array([1.0, 2.0, 3.0, np.inf]))
    assert (first.row, first.coincident_answer) == (1, None)
    different_entry = checker.check(2, intervals, np.array([np.nan, 2.0, 3.0, 4.0]))
    assert (different_entry.row, different_entry.coincident_answer) == (0, None)
    answer = checker.check(3, intervals, np.array([1.0, 2.0, 3.0, np.nan]))
    assert answer.row == 1
    assert (answer.coincident_answer is not None) == is_coincident
