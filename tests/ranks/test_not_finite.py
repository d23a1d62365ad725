"""Answers with NaN or infinity in lockstep: the machine is named, or an overflow is."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import MachineError, ScaleWarning
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_machine_is_named(comm, store, X, adjoint):
    with open_operator(store, comm, inject="nan:2@0") as operator:
        if operator is not None:
            operator.available = {1, 2}
            product = operator.rmatvec if adjoint else operator.matvec
            v = np.ones(X.shape[0 if adjoint else 1])
            with pytest.raises(MachineError, match=r"machine 2 answered .* step 0, .*--elastic"):
                product(v)
            np.testing.assert_allclose(product(v), (X.T if adjoint else X) @ v, atol=1e-10)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("precision", ["double", "shard"])
def test_what_is_too_large_is_nobodys_error(comm, stores, X, adjoint, precision):
    recorder = Kept()
    options = {"recorder": recorder, "precision": precision}
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
            assert recorder.records[-1].available == (1, 2, 3)


@pytest.mark.parametrize("precision", ["double", "shard"])
def test_one_row_may_be_larger_than_the_shards_can_hold(comm, shared_directory, precision):
    matrix = RNG.standard_normal((60, 5)).astype(np.float32)
    matrix[7] = 3e37
    path = shared_directory / f"large-row-{precision}"
    if comm.rank == 0:
        np.save(shared_directory / "large-row.npy", matrix)
        with pytest.warns(ScaleWarning):
            encode(shared_directory / "large-row.npy", path, 3, 2, scaling="none")
    comm.Barrier()
    with open_operator(path, comm, precision=precision) as operator:
        if operator is not None:
            assert (operator @ np.full(5, 100.0))[7] == pytest.approx(1.5e40)


def test_a_result_that_only_decoding_makes_infinite_is_an_error(comm, shared_directory):
    path = shared_directory / "huge"
    if comm.rank == 0:
        np.save(shared_directory / "huge.npy", np.full((6, 2), 1.6e308) * [1, -1])
        encode(shared_directory / "huge.npy", path, 3, 2, code="gaussian")
    comm.Barrier()
    with open_operator(path, comm) as operator:
        if operator is not None:
            with pytest.raises(MachineError, match="too large for float64"):
                operator @ np.array([1.0, -1.0])
