"""Elastic operators: stragglers, bounds on errors, and answers with NaN or infinity."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import MachineError, ScaleWarning
from helpers.elastic import open_in_process
from helpers.recording import MemoryRecorder

pytestmark = pytest.mark.usefixtures("no_launcher")

RNG = np.random.default_rng(3)
X = np.random.default_rng(7).standard_normal((1001, 40))


@pytest.fixture(scope="module")
def stores(make_store):
    """Return paths of stores for three machines, any two of which are enough, by dtype."""
    return {dtype: make_store(X, 3, 2, dtype=dtype).path for dtype in ("float64", "float32")}


@pytest.fixture(scope="module")
def store(stores):
    return stores["float64"]


def test_a_step_does_not_wait_for_a_straggler(store):
    recorder = MemoryRecorder()
    emulation = {"emulate_speeds": (1.0, 0.02, 1.0), "emulate_base": 10_000.0}  # 0.1 s, or 5 s
    options = {"stragglers": 1, "speeds": (1, 1, 1), "recorder": recorder, **emulation}
    with open_operator(store, local=3, **options) as operator:
        w = np.ones(40)
        for _ in range(2):
            assert np.allclose(operator @ w, X @ w)
    first, second = recorder.records
    assert all(0 < step.cancellation < 1e3 for step in recorder.records)
    assert first.hindsight_makespan is second.hindsight_makespan is None
    assert recorder.summary()["median_regret"] is None
    assert recorder.header["stragglers"] == 1
    # Machine 2 is still computing for the first step, and gets no job.
    assert (2 in first.available, 2 in second.available) == (True, False)
    assert [step.rows[1] for step in recorder.records] == [0, 0]


def test_a_checked_step_fails_if_the_faulty_machine_cannot_be_identified(store):
    with open_in_process(store, check=True, inject="corrupt:2@1") as operator:
        assert np.allclose(operator @ np.ones(40), X.sum(axis=1))
        with pytest.raises(MachineError, match=r"step 1 has failed: .* machines 1, 2, 3 for r"):
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
def test_errors_are_below_accuracy_times_cancellation(stores, options, dtype):
    recorder, exact = MemoryRecorder(), X.astype(np.longdouble)
    with open_in_process(stores[dtype], recorder=recorder, **options) as operator:
        for _ in range(5):
            w, v = RNG.standard_normal(40), RNG.standard_normal(1001)
            results = (operator @ w, exact @ w), (operator.rmatvec(v), exact.T @ v)
            for step, (result, expected) in zip(recorder.records[-2:], results, strict=True):
                error = np.abs(result - expected).max() / np.abs(result).max()
                assert error <= operator.product_error * step.cancellation < 1e-2


# --- answers that are not finite ----------------------------------------------------------

NEVER_LATE = {"deadline": 20}


def check_product(operator, X, step):
    """Check X W, X w, X' V or X' v, in steps 0 to 3."""
    adjoint, shape = step > 1, (3,) if step % 2 == 0 else ()
    matrix, product = (X.T, operator.H) if adjoint else (X, operator)
    operand = RNG.standard_normal((matrix.shape[1], *shape))
    np.testing.assert_allclose(product @ operand, matrix @ operand, atol=1e-10)


@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("step", range(4))
def test_a_machine_with_a_wrong_answer_is_excluded(store, kind, step):
    recorder = MemoryRecorder()
    options = {"inject": f"{kind}:2@{step}", "recorder": recorder, "speeds": (1, 1, 1)}
    with open_in_process(store, **NEVER_LATE, **options) as operator:
        for number in range(4):
            check_product(operator, X, number)
    fault, exclusion = recorder.all_events
    assert fault["wrong"] == 2
    assert fault["reason"].startswith(f"answered {kind} ")
    assert exclusion == {"excluded": 2, "reason": f"wrong in step {step}"}
    assert recorder.records[step].rows[1] == 0
    assert {record.available for record in recorder.records[step + 1 :]} <= {(1, 3)}


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_step_waits_for_a_late_machine_if_another_is_faulty(store, adjoint):
    faults = {"inject": "slow:3@0x20,inf:2@1", "emulate_speeds": (1, 1, 1), "emulate_base": 1e4}
    with open_operator(store, local=3, stragglers=1, speeds=(1, 1, 1), **faults) as operator:
        check_product(operator, X, 1)
        check_product(operator, X, 3 if adjoint else 1)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_error_names_the_machine_if_no_other_can_replace_it(store, adjoint):
    with open_in_process(store, inject="nan:2@0", **NEVER_LATE) as operator:
        operator.available = {1, 2}
        product, matrix = (operator.rmatvec, X.T) if adjoint else (operator.matvec, X)
        v = np.ones(matrix.shape[1])
        message = "machine 2 answered .* step 0, .*no other available machine"
        with pytest.raises(MachineError, match=message):
            product(v)
        operator.available = None
        np.testing.assert_allclose(product(v), matrix @ v, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "precision"), [(NEVER_LATE, "double"), ({"stragglers": 1}, "shard")]
)
def test_no_machine_is_excluded_for_overflow(stores, options, precision):
    recorder = MemoryRecorder()
    options = {"recorder": recorder, "precision": precision, **options}
    with open_in_process(stores["float32"], **options) as operator:
        for product, matrix in ((operator.matvec, X), (operator.rmatvec, X.T)):
            columns = matrix.shape[1]
            for _ in range(4):  # more often than a machine may be wrong
                with pytest.raises(MachineError, match=r"^X.? [vw] is too large for float64"):
                    product(np.where(np.arange(columns) == 1, 1.7e308, 1e308))
            for size in 1.0, 1e39, 1e-300:
                v = RNG.standard_normal(columns)
                np.testing.assert_allclose(product(size * v) / size, matrix @ v, atol=1e-3)
    assert recorder.all_events == []
    if "stragglers" not in options:  # with stragglers a machine may still be computing
        assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("precision", ["double", "shard"])
def test_a_result_may_exceed_the_range_of_the_shards(tmp_path, precision):
    matrix = RNG.standard_normal((60, 5)).astype(np.float32)
    matrix[7] = 3e37
    with pytest.warns(ScaleWarning, match="differ in magnitude by a factor"):
        encode(matrix, tmp_path / "store", 3, 2, scaling="none")
    with open_in_process(tmp_path / "store", precision=precision, **NEVER_LATE) as operator:
        assert (operator @ np.full(5, 100.0))[7] == pytest.approx(1.5e40)


def test_overflow_in_decoding_is_an_error(tmp_path):
    encode(np.full((6, 2), 1.6e308) * [1, -1], tmp_path / "store", 3, 2, code="gaussian")
    with (
        open_in_process(tmp_path / "store") as operator,
        pytest.raises(MachineError, match="too large for float64"),
    ):
        operator @ np.array([1.0, -1.0])
