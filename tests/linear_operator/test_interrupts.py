"""Ctrl-C amid a step, as in a notebook: the steps after it are as if it had not been."""

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.records.recorder import Recorder
from helpers.interrupts import interrupted

X = np.random.default_rng(0).standard_normal((70, 9))
SETS = ((1, 2, 3, 4), (1, 3, 4), (2, 4))
FAR, EACH = 20_000, 31  # lines


@pytest.fixture
def opened(tmp_path):
    cec_mpi.encode(X, tmp_path / "store", 4, 2)
    records = []
    watched = Recorder(watch=records.append)
    with cec_mpi.open_operator(tmp_path / "store", None, recorder=watched) as operator:
        yield operator, records


def make_step(operator, available, columns, adjoint):
    operator.available = available
    numbers = np.random.default_rng(columns).standard_normal((X.shape[not adjoint], columns))
    if adjoint:
        np.testing.assert_allclose(operator.H @ numbers, X.T @ numbers, atol=1e-12)
    else:
        np.testing.assert_allclose(operator @ numbers, X @ numbers, atol=1e-12)


@pytest.mark.parametrize(
    "folder", ["cec_mpi/core", "cec_mpi/runtime/master", "cec_mpi/runtime/machine", "cec_mpi"]
)
@pytest.mark.parametrize("adjoint", [False, True])
def test_steps_after_one_that_was_cut_off_are_right(opened, folder, adjoint):
    operator, records = opened
    cuts = 0
    for place in range(0, FAR, EACH):
        before, cut, after = (SETS[(place + i) % 3] for i in range(3))
        make_step(operator, before, 1, adjoint)
        # Turns have a test of their own: lines are not where Python sees to signals.
        if not interrupted(place, folder, lambda: make_step(operator, cut, 3, adjoint), "locks.py"):  # noqa: B023
            break
        cuts += 1
        for available in (before, after, cut):
            make_step(operator, available, 1 + cuts % 3, not adjoint)
            found = records[-1]
            assert found.available == available
            assert found.rows == [rows_of(bounds) for bounds in found.assignment]
    assert cuts
    assert place + EACH < FAR


def rows_of(bounds):
    return sum(stop - start for start, stop in zip(bounds[::2], bounds[1::2], strict=True))
