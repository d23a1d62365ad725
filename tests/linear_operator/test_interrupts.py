"""Ctrl-C in a step, for example in a notebook, does not affect later steps."""

import numpy as np
import pytest

import cec_mpi
from helpers.interrupts import interrupt_at_line
from helpers.recording import MemoryRecorder

X = np.random.default_rng(0).standard_normal((70, 9))
SETS = ((1, 2, 3, 4), (1, 3, 4), (2, 4))
MAX_LINES, LINES_BETWEEN = 20_000, 31


def run_step(operator, available, columns, adjoint):
    operator.available = available
    factor = np.random.default_rng(columns).standard_normal((X.shape[not adjoint], columns))
    product, expected = (operator.H @ factor, X.T) if adjoint else (operator @ factor, X)
    np.testing.assert_allclose(product, expected @ factor, atol=1e-12)


def count_rows(bounds):
    return sum(stop - start for start, stop in zip(bounds[::2], bounds[1::2], strict=True))


@pytest.mark.parametrize(
    "folder", ["cec_mpi/core", "cec_mpi/runtime/master", "cec_mpi/runtime/machine", "cec_mpi"]
)
@pytest.mark.parametrize("adjoint", [False, True])
def test_steps_after_an_interrupted_one_are_right(tmp_path, folder, adjoint):
    cec_mpi.encode(X, tmp_path / "store", 4, 2)
    recorder, count = MemoryRecorder(), 0
    with cec_mpi.open_operator(tmp_path / "store", recorder=recorder) as operator:
        for line in range(0, MAX_LINES, LINES_BETWEEN):
            sets = [SETS[(line + i) % 3] for i in range(3)]
            run_step(operator, sets[0], 1, adjoint)
            step = (operator, sets[1], 3, adjoint)
            # Locks are tested at the places where Python handles signals, not at lines.
            if not interrupt_at_line(line, folder, lambda step=step: run_step(*step), "locks.py"):
                break
            count += 1
            for available in (sets[0], sets[2], sets[1]):
                run_step(operator, available, 1 + count % 3, not adjoint)
                record = recorder.records[-1]
                assert record.available == available
                assert record.rows == [count_rows(bounds) for bounds in record.assignment]
    assert count
    assert line + LINES_BETWEEN < MAX_LINES
