"""Runs with a sparse X that start their own machines."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode
from helpers.sparse import random_sparse


@pytest.mark.any_mpi
@pytest.mark.usefixtures("no_launcher")
def test_a_run_starts_as_many_machines_as_it_needs_and_continues_without_one(cec, tmp_path):
    X, W = random_sparse(600, 40), np.random.default_rng(1).standard_normal((8, 40))
    encode(X, tmp_path / "store", 6, copies=2)
    np.save(tmp_path / "W.npy", W)
    (tmp_path / "store" / "shard-0002.csr").unlink()
    done = cec("run", "store", "vectors=W.npy", "--out", "out")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ X.T, atol=1e-12)
    assert "on 5 machines" in done.stdout  # as many as it needs; it started one more
    assert "machines: 1 lost (2)\n" in done.stdout
    assert "shard-0002.csr: missing (cec-mpi repair " in done.stdout
