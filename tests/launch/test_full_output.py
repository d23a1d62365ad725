"""Standard output that is full: results are not lost for it, and rank 0 says so once."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.any_mpi

FULL = ["bash", "-c", 'exec "$@" > /dev/full', "bash", "cec-mpi"]
SAYS = "standard output cannot be written: No space left on device"


def test_a_run_is_done(run, small_store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((3, small_store.columns)))
    words = ["run", small_store.path, "--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}"]
    done = run(["mpirun", "-n", 4, *FULL, *words])
    assert (done.returncode, done.told) == (0, f"cec-mpi: warning: {SAYS}")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == 3


def test_what_was_asked_for_is_not_said(run, small_store):
    done = run(["mpirun", "-n", 2, *FULL, "verify", small_store.path])
    assert (done.returncode, done.told) == (2, f"cec-mpi: error: {SAYS}")
