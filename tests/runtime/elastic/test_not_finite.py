"""Answers with NaN or infinity: a machine's error is mended, an overflow ends the step."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import MachineError, ScaleWarning
from helpers.elastic_here import opened_here
from helpers.recording import Kept

pytestmark = pytest.mark.usefixtures("no_launcher")

RNG = np.random.default_rng(8)
PATIENT = {"deadline": 20}  # nobody is late


def products(operator, X):
    """Each kind of product, made and compared: W, w, V, v."""
    W, V = RNG.standard_normal((X.shape[1], 3)), RNG.standard_normal((X.shape[0], 3))
    yield lambda: np.testing.assert_allclose(operator @ W, X @ W, atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator @ W[:, 0], X @ W[:, 0], atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator.H @ V, X.T @ V, atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator.H @ V[:, 0], X.T @ V[:, 0], atol=1e-10)


@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("step", range(4))
def test_with_one_machine_to_spare_its_machine_is_excluded(store, X, kind, step):
    recorder = Kept()
    options = {"inject": f"{kind}:2@{step}", "recorder": recorder, "speeds": (1, 1, 1)}
    with opened_here(store, **PATIENT, **options) as operator:
        for compare in products(operator, X):
            compare()
        wrong, excluded = recorder.happened
        assert wrong["wrong"] == 2
        assert wrong["reason"].startswith(f"answered {kind} ")
        assert excluded == {"excluded": 2, "reason": f"wrong in step {step}"}
        assert recorder.records[step].rows[1] == 0
        assert {record.available for record in recorder.records[step + 1 :]} <= {(1, 3)}


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_machine_that_is_late_in_an_earlier_step_is_waited_for(store, X, adjoint):
    faults = {"inject": "slow:3@0x20,inf:2@1", "emulate_speeds": (1, 1, 1), "emulate_base": 1e4}
    with open_operator(store, local=3, stragglers=1, speeds=(1, 1, 1), **faults) as operator:
        w, v = RNG.standard_normal(X.shape[1]), RNG.standard_normal(X.shape[0])
        np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)
        if adjoint:
            np.testing.assert_allclose(operator.rmatvec(v), X.T @ v, atol=1e-10)
        else:
            np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)


def test_with_a_check_one_more_machine_to_spare_is_enough(replicated, X):
    recorder = Kept()
    with opened_here(replicated, recorder=recorder, check=True, inject="nan:2@0") as operator:
        for _ in range(2):
            w = RNG.standard_normal(40)
            np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)
        assert recorder.records[-1].available == (1, 3)


@pytest.mark.parametrize("adjoint", [False, True])
def test_with_nobody_to_spare_the_machine_is_named(store, X, adjoint):
    with opened_here(store, inject="nan:2@0", **PATIENT) as operator:
        operator.available = {1, 2}
        product, matrix = (operator.rmatvec, X.T) if adjoint else (operator.matvec, X)
        v = np.ones(matrix.shape[1])
        says = "machine 2 answered .* step 0, .*no other available machine"
        with pytest.raises(MachineError, match=says):
            product(v)
        operator.available = None
        np.testing.assert_allclose(product(v), matrix @ v, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "precision"), [(PATIENT, "double"), ({"stragglers": 1}, "shard")]
)
def test_what_is_too_large_is_nobodys_error(stores, X, options, precision):
    recorder = Kept()
    options = {"recorder": recorder, "precision": precision, **options}
    with opened_here(stores["float32"], **options) as operator:
        for product, matrix in ((operator.matvec, X), (operator.rmatvec, X.T)):
            columns = matrix.shape[1]
            for _ in range(4):  # more often than a machine may be wrong
                with pytest.raises(MachineError, match=r"^X.? [vw] is too large for float64"):
                    product(np.where(np.arange(columns) == 1, 1.7e308, 1e308))
            for size in 1.0, 1e39, 1e-300:
                v = RNG.standard_normal(columns)
                np.testing.assert_allclose(product(size * v) / size, matrix @ v, atol=1e-3)
        assert recorder.happened == []
        if "stragglers" not in options:  # else one may still compute what nobody waits for
            assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("precision", ["double", "shard"])
def test_one_row_may_be_larger_than_the_shards_can_hold(tmp_path, precision):
    matrix = RNG.standard_normal((60, 5)).astype(np.float32)
    matrix[7] = 3e37
    path = tmp_path / f"large-row-{precision}"
    np.save(tmp_path / "large-row.npy", matrix)
    with pytest.warns(ScaleWarning, match="differ in size by a factor"):
        encode(tmp_path / "large-row.npy", path, 3, 2, scaling="none")
    with opened_here(path, precision=precision, **PATIENT) as operator:
        assert (operator @ np.full(5, 100.0))[7] == pytest.approx(1.5e40)


def test_a_result_that_only_decoding_makes_infinite_is_an_error(tmp_path):
    path = tmp_path / "huge"
    np.save(tmp_path / "huge.npy", np.full((6, 2), 1.6e308) * [1, -1])
    encode(tmp_path / "huge.npy", path, 3, 2, code="gaussian")
    with (
        opened_here(path) as operator,
        pytest.raises(MachineError, match="too large for float64"),
    ):
        operator @ np.array([1.0, -1.0])
