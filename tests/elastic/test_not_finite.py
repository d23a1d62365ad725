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


@pytest.mark.parametrize(
    ("kind", "options"),
    [("nan", PATIENT), ("inf", {"stragglers": 1}), ("inf", {"check": "sample"})],
)
def test_it_is_replaced_with_one_machine_to_spare(store, X, kind, options):
    recorder, wrong = Kept(), (1, 2, 3, 2)  # in each step
    faults = ",".join(f"{kind}:{machine}@{step}" for step, machine in enumerate(wrong))
    options = {"inject": faults, "recorder": recorder, "speeds": (1, 1, 1), **options}
    with opened_here(store, **options) as operator:
        for compare in products(operator, X):
            compare()
        for record, machine in zip(recorder.records, wrong, strict=True):
            if "stragglers" in options and not record.events:
                continue  # the answers of the others were there before
            (event,) = record.events
            assert event["wrong"] == machine
            assert event["reason"].startswith(f"answered {kind} ")
            assert record.rows[machine - 1] == 0
        if "stragglers" not in options:  # with them, a machine may still be at work
            assert recorder.records[-1].available == (1, 2, 3)


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


def test_a_machine_that_does_it_again_and_again_is_asked_no_more(store, X):
    recorder = Kept()
    faults = ",".join(f"nan:3@{step}" for step in range(8))
    options = {"inject": faults, "recorder": recorder, "speeds": (1, 1, 1)}
    with opened_here(store, **PATIENT, **options) as operator:
        for compare in [*products(operator, X), *products(operator, X)]:
            compare()
        kinds = [next(iter(event)) for event in recorder.happened]
        assert kinds == ["wrong"] * 3 + ["excluded"]
        assert recorder.happened[3] == {"excluded": 3, "reason": "wrong in 3 steps"}
        assert recorder.records[-1].available == (1, 2)


def test_with_parity_one_machine_to_spare_beside_it_is_enough(replicated, X):
    recorder = Kept()
    options = {"stragglers": 1, "check": "parity", "inject": "nan:2@0,inf:3@1"}
    with opened_here(replicated, recorder=recorder, **options) as operator:
        for _ in range(2):
            w = RNG.standard_normal(40)
            np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)
        assert {event["wrong"] for event in recorder.happened} <= {2, 3}


def test_with_nobody_to_spare_the_machine_is_named(store, X):
    with opened_here(store, inject="nan:2@0,nan:2@2", **PATIENT) as operator:
        operator.available = {1, 2}
        for step, product, matrix in ((0, operator.matvec, X), (2, operator.rmatvec, X.T)):
            v = np.ones(matrix.shape[1])
            says = f"machine 2 answered .* step {step}, .*no other machine is there"
            with pytest.raises(MachineError, match=says):
                product(v)
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
