"""Answers with NaN or infinity: a machine's error is mended, an overflow ends the step."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import MachineError
from cec_mpi.wire.messages.machine_end import MessagesMachineEnd
from cec_mpi.wire.orders import Report
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)

RNG = np.random.default_rng(8)
PATIENT = {"deadline": 20}  # by messages, and nobody is late


def products(operator, X):
    """Each kind of product, made and compared: W, w, V, v."""
    W, V = RNG.standard_normal((X.shape[1], 3)), RNG.standard_normal((X.shape[0], 3))
    yield lambda: np.testing.assert_allclose(operator @ W, X @ W, atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator @ W[:, 0], X @ W[:, 0], atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator.H @ V, X.T @ V, atol=1e-10)
    yield lambda: np.testing.assert_allclose(operator.H @ V[:, 0], X.T @ V[:, 0], atol=1e-10)


@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("options", [PATIENT, {"stragglers": 1}, {"check": "sample"}])
def test_it_is_replaced_with_one_machine_to_spare(comm, store, X, kind, options):
    for step in range(4):
        recorder = Kept()
        faults = {"inject": f"{kind}:2@{step}", "recorder": recorder, "speeds": (1, 1, 1)}
        with open_operator(store, comm, **options, **faults) as operator:
            if operator is not None:
                for compare in products(operator, X):
                    compare()
                if "stragglers" in options and not recorder.happened:
                    continue  # the answers of the others were there before
                (event,) = recorder.happened
                assert event["wrong"] == 2
                assert event["reason"].startswith(f"answered {kind} ")
                assert recorder.records[step].rows[1] == 0
                if "stragglers" not in options:  # with them, a machine may still be at work
                    assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_machine_that_is_late_in_an_earlier_step_is_waited_for(comm, store, X, adjoint):
    faults = {"inject": "slow:3@0x20,inf:2@1", "emulate_speeds": (1, 1, 1), "emulate_base": 1e4}
    with open_operator(store, comm, stragglers=1, speeds=(1, 1, 1), **faults) as operator:
        if operator is not None:
            w, v = RNG.standard_normal(X.shape[1]), RNG.standard_normal(X.shape[0])
            np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)
            if adjoint:
                np.testing.assert_allclose(operator.rmatvec(v), X.T @ v, atol=1e-10)
            else:
                np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)


def test_a_machine_that_does_it_again_and_again_is_asked_no_more(comm, store, X):
    recorder = Kept()
    faults = ",".join(f"nan:3@{step}" for step in range(8))
    options = {"inject": faults, "recorder": recorder, "speeds": (1, 1, 1)}
    with open_operator(store, comm, **PATIENT, **options) as operator:
        if operator is not None:
            for compare in [*products(operator, X), *products(operator, X)]:
                compare()
            kinds = [next(iter(event)) for event in recorder.happened]
            assert kinds == ["wrong"] * 3 + ["excluded"]
            assert recorder.happened[3] == {"excluded": 3, "reason": "wrong in 3 steps"}
            assert recorder.records[-1].available == (1, 2)


def test_with_parity_one_machine_to_spare_beside_it_is_enough(comm, cec_make_store, X):
    path = cec_make_store(X, recovery=1).path
    recorder = Kept()
    options = {"stragglers": 1, "check": "parity", "inject": "nan:2@0,inf:3@1"}
    with open_operator(path, comm, recorder=recorder, **options) as operator:
        if operator is not None:
            for _ in range(2):
                w = RNG.standard_normal(40)
                np.testing.assert_allclose(operator @ w, X @ w, atol=1e-10)
            assert {event["wrong"] for event in recorder.happened} <= {2, 3}


@pytest.mark.parametrize("adjoint", [False, True])
def test_with_nobody_to_spare_the_machine_is_named(comm, store, X, adjoint):
    options = {"available": {1, 2}, "inject": "nan:2@0"}
    for more, says in ((PATIENT, "no other machine is there"), ({}, "--on-loss continue")):
        with open_operator(store, comm, inject="nan:2@0", **more) as operator:
            if operator is not None:
                operator.available = options["available"]
                product = operator.rmatvec if adjoint else operator.matvec
                v = np.ones(X.shape[0 if adjoint else 1])
                with pytest.raises(MachineError, match=rf"machine 2 answered .* step 0, .*{says}"):
                    product(v)
                np.testing.assert_allclose(product(v), (X.T if adjoint else X) @ v, atol=1e-10)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("options", [PATIENT, {"stragglers": 1}, {}])
@pytest.mark.parametrize("precision", ["double", "shard"])
def test_what_is_too_large_is_nobodys_error(comm, stores, X, options, adjoint, precision):
    recorder = Kept()
    options = {"recorder": recorder, "precision": precision, **options}
    with open_operator(stores["float32"], comm, **options) as operator:
        if operator is not None:
            product = operator.rmatvec if adjoint else operator.matvec
            size = X.shape[0 if adjoint else 1]
            for _ in range(4):  # more often than a machine may be wrong
                with pytest.raises(MachineError, match=r"^X.? [vw] is too large for float64"):
                    product(np.where(np.arange(size) == 1, 1.7e308, 1e308))
            for size in 1.0, 1e39, 1e-300:
                v = RNG.standard_normal(X.shape[0 if adjoint else 1])
                expected = (X.T if adjoint else X) @ v
                np.testing.assert_allclose(product(size * v) / size, expected, atol=1e-3)
            assert recorder.happened == []
            if "stragglers" not in options:  # else one may still compute what nobody waits for
                assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("precision", ["double", "shard"])
def test_one_row_may_be_larger_than_the_shards_can_hold(comm, shared_directory, precision):
    matrix = RNG.standard_normal((60, 5)).astype(np.float32)
    matrix[7] = 3e37
    path = shared_directory / f"large-row-{precision}"
    if comm.rank == 0:
        np.save(shared_directory / "large-row.npy", matrix)
        encode(shared_directory / "large-row.npy", path, 3, 2, scaling="none")
    comm.Barrier()
    with open_operator(path, comm, precision=precision, **PATIENT) as operator:
        if operator is not None:
            assert (operator @ np.full(5, 100.0))[7] == pytest.approx(1.5e40)


def test_a_result_that_only_decoding_makes_infinite_is_an_error(comm, shared_directory):
    path = shared_directory / "huge"
    if comm.rank == 0:
        np.save(shared_directory / "huge.npy", np.full((6, 2), 1.6e308) * [1, -1])
        encode(shared_directory / "huge.npy", path, 3, 2, code="gaussian")
    comm.Barrier()
    for options in ({}, PATIENT):
        with open_operator(path, comm, **options) as operator:
            if operator is not None:
                with pytest.raises(MachineError, match="too large for float64"):
                    operator @ np.array([1.0, -1.0])


class Reporting(MessagesMachineEnd):
    """Rank 2 sends half of its answers, or reports nonsense of them."""

    half = False
    nonsense = float("nan")

    def answer(self, order, values, report):
        if self._comm.rank == 2:
            if self.half:
                values = values[: len(values) // 2]
            else:
                report = Report(self.nonsense, report.loaded)
        super().answer(order, values, report)


def test_a_short_answer_is_replaced(comm, store, X, monkeypatch):
    monkeypatch.setattr(Reporting, "half", True)
    monkeypatch.setattr("cec_mpi.wire.messages.machine_end.MessagesMachineEnd", Reporting)
    recorder = Kept()
    with open_operator(store, comm, recorder=recorder, speeds=(1, 1, 1), **PATIENT) as operator:
        if operator is not None:
            for compare in products(operator, X):
                compare()
            assert [event.get("wrong") for event in recorder.happened] == [2, 2, 2, None]


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -np.inf, -5.0, 1e300])
def test_times_that_cannot_be_are_not_learned_from(comm, store, X, monkeypatch, nonsense):
    monkeypatch.setattr(Reporting, "nonsense", nonsense)
    monkeypatch.setattr("cec_mpi.wire.messages.machine_end.MessagesMachineEnd", Reporting)
    recorder = Kept()
    with open_operator(store, comm, recorder=recorder, **PATIENT) as operator:
        if operator is not None:
            for _ in range(12):
                for compare in products(operator, X):
                    compare()
            for record in recorder.records:
                assert 0 <= record.seconds[1] < 20
                assert 0 <= record.measured_makespan < 20
            assert recorder.records[-1].predicted_makespan < 20
