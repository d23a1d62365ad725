"""Standard output that is full: results are not lost for it, and rank 0 says so once."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.any_mpi

FULL = ["bash", "-c", 'exec "$@" > /dev/full', "bash", "cec-mpi"]


def test_a_run_is_done(run, small_store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((3, small_store.columns)))
    words = ["run", small_store.path, "--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}"]
    done = run(["mpirun", "-n", 4, *FULL, *words])
    warning = "cec-mpi: warning: standard output cannot be written: No space left on device"
    assert (done.returncode, done.errors) == (0, warning)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == 3
