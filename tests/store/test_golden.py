"""Each version reads the stores that earlier releases wrote."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.manifest_files import VERSION

GOLDEN = Path(__file__).parent / "golden"
X = np.arange(1.0, 22.0).reshape(7, 3)  # in all golden stores


@pytest.fixture(params=sorted(path.name for path in GOLDEN.iterdir()))
def golden_store(request, tmp_path):
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "store"))


def test_this_version_has_a_golden_store():
    assert f"version-{VERSION}" in {path.name for path in GOLDEN.iterdir()}


def test_a_golden_store_is_decoded_and_multiplied(golden_store, tmp_path):
    assert not cec_mpi.verify(golden_store).damaged
    bound = cec_mpi.decode(golden_store, tmp_path / "X.npy")
    parts = np.vstack([np.abs(X), np.zeros((1, 3))]).reshape(2, 4, 3)  # L = 2, padded
    exponents = read_scaling(golden_store, cec_mpi.open_store(golden_store).manifest).exponents
    powers = np.ones((2, 4, 1))
    if exponents is not None:  # -4096 marks a row of zeros
        powers = 2.0 ** np.where(exponents == -4096, 0, exponents)[..., np.newaxis]
    largest = (powers * (parts / powers).max(axis=0)).reshape(8, 3)[:7]
    assert (np.abs(np.load(tmp_path / "X.npy") - X) <= bound * largest).all()
    with cec_mpi.open_operator(golden_store, None) as operator:
        for available in (1, 2), (2, 3), (3, 4), (1, 2, 3, 4):
            operator.available = available
            np.testing.assert_allclose(operator @ np.ones(3), X.sum(axis=1), rtol=1e-12)
            np.testing.assert_allclose(operator.H @ np.ones(7), X.sum(axis=0), rtol=1e-12)


def test_exponents_of_rows_are_in_a_file_and_its_copy():
    expected = [[2, 3, 4, 4], [4, 5, 5, -4096]]  # scale 3, 6, 9, ..., 21 to [1/2, 1)
    for name in "row-exponents.npy", "row-exponents.copy.npy":
        exponents = np.load(GOLDEN / "version-2" / name)
        assert exponents.dtype == np.dtype("<i2")
        assert exponents.tolist() == expected
    assert not (GOLDEN / "version-2-systematic" / name).exists()
    for store, powers in (
        ("version-2-systematic", np.ones((7, 1))),
        ("version-2", 2.0 ** np.ravel(expected)[:7, np.newaxis]),
    ):
        maxima = np.load(GOLDEN / store / "column-maxima.npy")
        np.testing.assert_array_equal(maxima, (X / powers).max(axis=0))


def test_a_golden_store_is_repaired_and_grows(golden_store):
    shards = cec_mpi.open_store(golden_store).manifest.shards
    assert [bool(shard.rebuilt) for shard in shards] == [False, True, False, True]
    (golden_store / "shard-0001.npy").unlink()
    cec_mpi.repair(golden_store)
    assert not cec_mpi.verify(golden_store).damaged
    manifest = cec_mpi.add_machine(golden_store)
    assert (manifest.code.machines, manifest.column_names) == (5, ("a", "b", "c"))
