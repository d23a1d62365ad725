"""Runs with a sparse X that start their own machines."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode
from helpers.sparse import random_sparse

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]

X = random_sparse(600, 40)
W = np.random.default_rng(1).standard_normal((8, 40))


@pytest.fixture
def multiply(cec, tmp_path):
    """Products with a store on six machines, each row on two; returns what is printed."""
    encode(X, tmp_path / "store", 6, copies=2)
    np.save(tmp_path / "W.npy", W)

    def multiply(*options):
        done = cec("run", "store", "vectors=W.npy", "--out", "out", *options)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ X.T, atol=1e-12)
        return done.stdout

    return multiply


def test_a_run_starts_as_many_machines_as_it_needs(multiply):
    assert "on 6 machines" in multiply()  # any 5, and one that may be lost


def test_a_run_continues_without_a_machine_whose_shard_is_missing(multiply, tmp_path):
    (tmp_path / "store" / "shard-0002.csr").unlink()
    assert "shard-0002.csr: missing (cec-mpi repair " in multiply("--local", "6")
