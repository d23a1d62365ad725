"""Answers with NaN or infinity: wrong machines are excluded, and overflow is an error."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import MachineError, ScaleWarning
from helpers.elastic import open_in_process
from helpers.recording import MemoryRecorder

pytestmark = pytest.mark.usefixtures("no_launcher")

RNG = np.random.default_rng(8)
NEVER_LATE = {"deadline": 20}


def check_product(operator, X, step):
    """Check X W, X w, X' V or X' v, in turn."""
    adjoint, shape = step > 1, (3,) if step % 2 == 0 else ()
    matrix, product = (X.T, operator.H) if adjoint else (X, operator)
    operand = RNG.standard_normal((matrix.shape[1], *shape))
    np.testing.assert_allclose(product @ operand, matrix @ operand, atol=1e-10)


@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("step", range(4))
def test_a_machine_with_a_wrong_answer_is_excluded(store, X, kind, step):
    recorder = MemoryRecorder()
    options = {"inject": f"{kind}:2@{step}", "recorder": recorder, "speeds": (1, 1, 1)}
    with open_in_process(store, **NEVER_LATE, **options) as operator:
        for number in range(4):
            check_product(operator, X, number)
    wrong, excluded = recorder.all_events
    assert wrong["wrong"] == 2
    assert wrong["reason"].startswith(f"answered {kind} ")
    assert excluded == {"excluded": 2, "reason": f"wrong in step {step}"}
    assert recorder.records[step].rows[1] == 0
    assert {record.available for record in recorder.records[step + 1 :]} <= {(1, 3)}


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_step_waits_for_a_late_machine_if_another_is_wrong(store, X, adjoint):
    faults = {"inject": "slow:3@0x20,inf:2@1", "emulate_speeds": (1, 1, 1), "emulate_base": 1e4}
    with open_operator(store, local=3, stragglers=1, speeds=(1, 1, 1), **faults) as operator:
        check_product(operator, X, 1)
        check_product(operator, X, 3 if adjoint else 1)


def test_a_wrong_answer_is_replaced_with_check(replicated, X):
    recorder = MemoryRecorder()
    with open_in_process(replicated, recorder=recorder, check=True, inject="nan:2@0") as operator:
        check_product(operator, X, 1)
        check_product(operator, X, 1)
    assert recorder.records[-1].available == (1, 3)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_error_names_the_machine_if_no_other_can_replace_it(store, X, adjoint):
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
def test_no_machine_is_excluded_for_overflow(stores, X, options, precision):
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
    if "stragglers" not in options:  # with stragglers a machine may still compute
        assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("precision", ["double", "shard"])
def test_a_result_may_exceed_the_range_of_the_shards(tmp_path, precision):
    matrix = RNG.standard_normal((60, 5)).astype(np.float32)
    matrix[7] = 3e37
    with pytest.warns(ScaleWarning, match="differ in size by a factor"):
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
