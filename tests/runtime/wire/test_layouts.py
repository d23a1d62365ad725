"""Buffers for messages that contain reports and answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.runtime.wire.collective.packets import Layout, packed_size
from cec_mpi.runtime.wire.orders import ReportFields

REPORT = ReportFields.size()
ROWS = st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any)


def fill(buffer, answers, reports):
    """Fill the buffer as MPI does, with the messages of all machines."""
    buffer.fill_with_nan()
    for answer, report, message in zip(answers, reports, buffer.messages, strict=True):
        assert message.size == packed_size(answer.size, answer.dtype)
        message[:REPORT] = report
        message[REPORT:].view(answer.dtype)[: answer.size] = answer


@given(ROWS, st.integers(1, 5), st.sampled_from(["f4", "f8"]))
def test_reports_and_answers_are_separated(rows, columns, dtype):
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    answers = [rng.standard_normal(n * columns).astype(dtype) for n in rows]
    reports = rng.standard_normal((len(rows), REPORT))
    layout = Layout(np.array([0, *rows]), columns, dtype)
    counts, displs = layout.counts_and_displs
    assert counts.tolist() == [0, *(n * columns for n in rows)]
    assert displs.tolist() == [0, *np.cumsum(counts)[:-1].tolist()]
    buffer = layout.gather_buffer(False, 3)
    fill(buffer, answers, reports)
    values, copied = np.empty(sum(rows) * columns, dtype), np.empty((len(rows), REPORT))
    buffer.concatenate_into(values)
    buffer.copy_reports(copied)
    np.testing.assert_array_equal(values, np.concatenate(answers))
    np.testing.assert_array_equal(copied, reports)


@given(ROWS, st.integers(1, 4))
def test_terms_of_machines_with_rows_are_summed(rows, columns):
    rng = np.random.default_rng(1)
    terms = [rng.standard_normal(3 * columns if n else 0) for n in rows]
    buffer = Layout(np.array([0, *rows]), columns, np.dtype("f4")).gather_buffer(True, 3)
    fill(buffer, terms, np.zeros((len(rows), REPORT)))
    out = np.empty(3 * columns)
    buffer.sum_into(out)
    expected = np.sum([term for term in terms if term.size], axis=0)
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_missing_answers_and_reports_are_nan(dtype):
    buffer = Layout(np.array([0, 3, 2]), 1, np.dtype(dtype)).gather_buffer(False, 1)
    buffer.fill_with_nan()
    values, reports = np.zeros(5, dtype), np.zeros((2, REPORT))
    buffer.concatenate_into(values)
    buffer.copy_reports(reports)
    assert np.isnan(values).all()
    assert np.isnan(reports).all()
