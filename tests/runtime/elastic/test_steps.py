"""Elastic steps: stragglers, wrong answers, machines that leave, bounds of errors."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.runtime.availability.models import ListedAvailability
from helpers.elastic import open_in_process
from helpers.products import check_products
from helpers.recording import MemoryRecorder

pytestmark = pytest.mark.usefixtures("no_launcher")

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6)])
def test_products_with_each_set_of_available_machines(stores, X, dtype, tolerance, scheme):
    masks = ListedAvailability([(1, 2, 3), (1, 2), (1, 3), (2, 3)], repeat=True)
    options = {"availability": masks, "stragglers": 1, "scheme": scheme}
    with open_in_process(stores[dtype], **options) as operator:
        for _ in range(5):
            check_products(operator, X, tolerance=tolerance)


def test_a_step_does_not_wait_for_a_straggler(store, X):
    recorder = MemoryRecorder()
    emulated = {"emulate_speeds": (1.0, 0.02, 1.0), "emulate_base": 10_000.0}  # 0.1 s, or 5 s
    options = {"stragglers": 1, "speeds": (1, 1, 1), "recorder": recorder, **emulated}
    with open_operator(store, local=3, **options) as operator:
        w = np.ones(40)
        for _ in range(2):
            assert np.allclose(operator @ w, X @ w)
    first, second = recorder.records
    assert all(0 < step.cancellation < 1e3 for step in recorder.records)
    assert first.hindsight_makespan is second.hindsight_makespan is None
    assert recorder.summary()["median_regret"] is None
    assert recorder.header["stragglers"] == 1
    # Machine 2 still computes the first step, and gets no job.
    assert (2 in first.available, 2 in second.available) == (True, False)
    assert [step.rows[1] for step in recorder.records] == [0, 0]


def test_a_machine_that_leaves_gets_no_more_rows(store, X):
    recorder = MemoryRecorder()
    with open_operator(store, local=3, recorder=recorder, inject="leave:3@1") as operator:
        check_products(operator, X)
        assert [step.rows[2] > 0 for step in recorder.records] == [True, True, False, False]
        (event,) = recorder.all_events
        assert event["left"] == 3
        operator.available = {1, 3}
        with pytest.raises(InfeasibleError):
            operator @ np.ones(40)


def test_check_refuses_a_step_if_the_wrong_machine_cannot_be_identified(store, X):
    with open_in_process(store, check=True, inject="corrupt:2@1") as operator:
        assert np.allclose(operator @ np.ones(40), X.sum(axis=1))
        with pytest.raises(MachineError, match=r"step 1 has failed: .* machines 1, 2, 3 to r"):
            operator @ np.ones(40)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_check_accepts_correct_answers_of_all_sizes(stores, dtype):
    recorder = MemoryRecorder()
    with open_in_process(stores[dtype], check=True, recorder=recorder) as operator:
        for size in 10.0 ** np.arange(-15, 15, 2):
            operator @ (RNG.standard_normal(40) * size)
            operator.H @ (RNG.standard_normal(1001) * size)
    assert recorder.all_events == []


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("options", [{}, {"stragglers": 1}])
def test_errors_are_below_accuracy_times_cancellation(stores, X, options, dtype):
    recorder, exact = MemoryRecorder(), X.astype(np.longdouble)
    with open_in_process(stores[dtype], recorder=recorder, **options) as operator:
        for _ in range(5):
            w, v = RNG.standard_normal(40), RNG.standard_normal(1001)
            results = (operator @ w, exact @ w), (operator.rmatvec(v), exact.T @ v)
            for step, (result, expected) in zip(recorder.records[-2:], results, strict=True):
                error = np.abs(result - expected).max() / np.abs(result).max()
                assert error <= operator.accuracy * step.cancellation < 1e-2
