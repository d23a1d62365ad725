"""Programs under mpirun that open a second operator, or leave with a code."""

from __future__ import annotations

import sys

import pytest

LEAVING = """
import sys

import numpy as np
from mpi4py import MPI

import cec_mpi

with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD) as X:
    if X is not None:
        X @ np.ones(X.shape[1])
        {statement}
print("after", flush=True)
"""


def leave(run, store, tmp_path, statement):
    (tmp_path / "program.py").write_text(LEAVING.format(statement=statement))
    return run(["mpirun", "-n", 4, sys.executable, tmp_path / "program.py", store.path])


@pytest.mark.any_mpi
def test_a_second_operator_is_refused_once(run, small_store, tmp_path):
    second = "\n        with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD): pass"
    done = leave(run, small_store, tmp_path, second)
    assert done.returncode == 1
    assert done.told.count("Traceback") == 1
    assert "X.open(store)" in done.told


def test_a_program_that_leaves_with_a_code(run, small_store, tmp_path):
    done = leave(run, small_store, tmp_path, "sys.exit(9)")
    assert done.returncode == 9
    assert "Traceback" not in done.told
