"""Bad numbers in files, and bad options of tasks, are refused before the first step."""

import subprocess
import sys

import numpy as np
import pytest

from cec_mpi.encoding.sources.binary import check_finite
from cec_mpi.errors import InputError
from helpers.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("no_launcher")

ROWS, COLUMNS = 31, 12  # of the store


@pytest.fixture
def run(call, small_store, tmp_path):
    """Run a task with files in a new directory; return its exit code and error message."""

    def run(*args, out="out"):
        code, _, error = call(["run", small_store.path, "--out", out, *args], tmp_path)
        return code, error

    return run


@pytest.mark.parametrize(("order", "bad"), [("C", np.nan), ("F", -np.inf)])
def test_a_vector_that_is_not_finite_is_refused_before_the_first_step(run, tmp_path, bad, order):
    W = np.ones((1000, COLUMNS), order=order)
    W[900, 4] = bad
    np.save(tmp_path / "W.npy", W)
    code, error = run("vectors=W.npy", "--serial")
    assert code == 2
    assert f"W.npy holds {bad} at row 900, column 4 (counted from 0), expected finite" in error
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_a_refused_run_keeps_earlier_results(run, tmp_path):
    def read_results():
        return {path: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}

    W = np.ones((3, COLUMNS))
    np.save(tmp_path / "W.npy", W)
    assert run("vectors=W.npy", "--serial") == (0, "")
    before = read_results()
    W[2, 0] = np.nan
    np.save(tmp_path / "bad.npy", W)
    np.save(tmp_path / "y.npy", np.where(np.arange(ROWS) == 7, np.nan, 1.0))
    assert run("vectors=bad.npy", "--serial", "--overwrite")[0] == 2
    assert run("ridge", "y=y.npy", "--serial", "--overwrite")[0] == 2
    assert read_results() == before


def test_a_bad_option_is_refused_before_the_run_listens(run, tmp_path):
    code, error = run("svd", "k=0", "--accept", "run.json")
    assert (code, error) == (2, "cec-mpi: error: k 0: expected a whole number of at least 1\n")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "run.json").exists()


def test_unused_vectors_are_not_checked(run, tmp_path):
    W = np.ones((3, COLUMNS))
    W[2, 0] = np.nan
    np.save(tmp_path / "W.npy", W)
    assert run("vectors=W.npy", "--serial", "iterations=2") == (0, "")
    assert run("vectors=W.npy", "--serial", "iterations=9", out="more")[0] == 2


@pytest.mark.parametrize(("task", "option"), [("ridge", "y"), ("logistic", "y"), ("lstsq", "b")])
def test_errors_name_the_file_of_an_option(run, tmp_path, task, option):
    args = [task, f"{option}=input.npy", "--serial"]
    np.save(tmp_path / "input.npy", np.where(np.arange(ROWS) == 7, np.inf, 1.0))
    assert f"{option} (input.npy) holds inf at entry 7 (counted from 0)" in run(*args)[1]
    np.save(tmp_path / "input.npy", np.ones(ROWS + 1))
    assert f"{option} (input.npy) has shape (32,), expected (31,)" in run(*args)[1]
    assert not list((tmp_path / "out").glob("*.*"))


def test_integers_and_half_precision_are_checked(tmp_path):
    for dtype in ("i8", "u1", "?", "f2", ">f4"):
        np.save(tmp_path / "W.npy", np.ones((4, 3), dtype))
        check_finite(tmp_path / "W.npy", 4)
    np.save(tmp_path / "W.npy", np.full((1, 2), np.float16(np.inf)))
    with pytest.raises(InputError, match=r"holds inf at row 0, column 0"):
        check_finite(tmp_path / "W.npy", 1)


PROGRAM = """
import resource, sys
from pathlib import Path
from cec_mpi.encoding.sources.binary import check_finite
limit = 900 << 20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
check_finite(Path(sys.argv[1]), 1 << 40)
"""


def test_checking_vectors_needs_little_memory(tmp_path):
    path = tmp_path / "W.npy"
    rows = (5 << 28) // 8000  # 1.25 GiB, sparse on the disk
    np.lib.format.open_memmap(path, mode="w+", dtype="f8", shape=(rows, 1000)).flush()
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=LIMIT
    )
    assert result.returncode == 0, result.stderr
