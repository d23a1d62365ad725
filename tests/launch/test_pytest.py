"""The multi-rank tests' own promise: a rank that fails or hangs ends the run, and shows where."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

RUNTIME_TESTS = Path(__file__).parent.parent / "runtime"

FAILS = """
import pytest
from mpi4py import MPI

@pytest.mark.mpi(min_size=2)
def test_one_rank_fails_while_the_others_wait():
    assert MPI.COMM_WORLD.rank != 1, "this rank is wrong"
    MPI.COMM_WORLD.Barrier()
"""

HANGS = """
import time
import pytest
from mpi4py import MPI

def wait_for_ever():
    time.sleep(100)

@pytest.mark.mpi(min_size=2)
@pytest.mark.timeout(5, method="thread")
def test_one_rank_hangs():
    if MPI.COMM_WORLD.rank == 1:
        wait_for_ever()
    MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize(
    ("text", "shown"), [(FAILS, "this rank is wrong"), (HANGS, "in wait_for_ever")]
)
def test_a_rank_that_fails_or_hangs_ends_the_run_with_its_traceback(run, tmp_path, text, shown):
    shutil.copy(RUNTIME_TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(text)
    command = ["mpirun", "-n", "3", sys.executable, "-m", "pytest", "--with-mpi", "-q"]
    options = ["-p", "no:cacheprovider", "-o", "faulthandler_timeout=3"]
    done = run([*command, str(tmp_path), *options], cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert shown in done.stdout + done.stderr
