"""Answers that come with their reports: where they lie, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.runtime.wire.collective.packets import Layout, packed_size
from cec_mpi.runtime.wire.orders import ReportFields

REPORT = ReportFields.size()


def filled(gathered, answers, reports):
    """The buffer as ranks from 1 on would fill it, with as many numbers as they send."""
    gathered.clear()
    for answer, report, message in zip(answers, reports, gathered.messages, strict=True):
        sent = np.zeros(packed_size(answer.size, answer.dtype))
        sent[:REPORT] = report
        sent[REPORT:].view(answer.dtype)[: answer.size] = answer
        message[:] = sent


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any),
    st.integers(1, 5),
    st.sampled_from(["f4", "f8"]),
)
def test_answers_and_reports_are_kept_apart(rows, columns, dtype):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    answers = [rng.standard_normal(n * columns).astype(dtype) for n in rows]
    reports = rng.standard_normal((len(rows), REPORT))
    layout = Layout(np.array([0, *rows]), columns, dtype)
    counts, places = layout.counts_and_displs
    assert counts.tolist() == [0, *(n * columns for n in rows)]
    assert places.tolist() == [0, *np.cumsum(counts)[:-1].tolist()]
    gathered = layout.gather_buffer(False, 3)
    filled(gathered, answers, reports)
    out, text = np.empty(sum(rows) * columns, dtype), np.empty((len(rows), REPORT))
    gathered.concatenate_into(out)
    gathered.copy_reports(text)
    np.testing.assert_array_equal(out, np.concatenate(answers))
    np.testing.assert_array_equal(text, reports)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5).filter(any), st.integers(1, 4))
def test_sums_are_of_those_who_have_rows(rows, columns):
    rng = np.random.default_rng(1)
    answers = [rng.standard_normal(3 * columns if n else 0) for n in rows]
    layout = Layout(np.array([0, *rows]), columns, np.dtype("f4"))
    gathered = layout.gather_buffer(True, 3)
    filled(gathered, answers, np.zeros((len(rows), REPORT)))
    out = np.empty(3 * columns)
    gathered.sum_into(out)
    expected = np.sum([a for a in answers if a.size], axis=0)
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_does_not_come_is_not_a_number(dtype):
    layout = Layout(np.array([0, 3, 2]), 1, np.dtype(dtype))
    gathered = layout.gather_buffer(False, 1)
    gathered.clear()
    values, reports = np.zeros(5, dtype), np.zeros((2, REPORT))
    gathered.concatenate_into(values)
    gathered.copy_reports(reports)
    assert np.isnan(values).all()
    assert np.isnan(reports).all()
