"""Bad numbers in files, and bad options of tasks, are refused before the first step."""

import subprocess
import sys

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.encoding.sources.binary import check_finite
from cec_mpi.errors import InputError
from helpers.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("no_launcher")

COLUMNS, ROWS = 9, 40


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    np.save(directory / "X.npy", np.random.default_rng(0).standard_normal((ROWS, COLUMNS)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 4, 2)
    return directory / "store"


def multiply(store, out, vectors, *words):
    return main(["run", str(store), "--serial", "--out", str(out), f"vectors={vectors!s}", *words])


@pytest.mark.parametrize(("order", "bad"), [("C", np.nan), ("C", np.inf), ("F", -np.inf)])
def test_a_vector_that_is_not_finite_is_refused_before_the_first_step(
    store, tmp_path, capsys, bad, order
):
    W = np.ones((1000, COLUMNS), order=order)
    W[900, 4] = bad
    np.save(tmp_path / "W.npy", W)
    out = tmp_path / "out"
    assert multiply(store, out, tmp_path / "W.npy") == 2
    error = capsys.readouterr().err
    assert f"W.npy holds {bad} at row 900, column 4 (counted from 0), expected finite" in error
    assert [path for path in out.rglob("*") if path.is_file()] == []


def test_a_refused_run_keeps_earlier_results(store, tmp_path):
    W = np.ones((3, COLUMNS))
    np.save(tmp_path / "W.npy", W)
    assert multiply(store, tmp_path / "out", tmp_path / "W.npy") == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    W[2, 0] = np.nan
    np.save(tmp_path / "bad.npy", W)
    np.save(tmp_path / "y.npy", np.where(np.arange(ROWS) == 7, np.nan, 1.0))
    assert multiply(store, tmp_path / "out", tmp_path / "bad.npy", "--overwrite") == 2
    words = ["--serial", "--overwrite", "ridge", f"y={tmp_path / 'y.npy'}"]
    assert main(["run", str(store), "--out", str(tmp_path / "out"), *words]) == 2
    after = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert after == before


def test_a_bad_option_is_refused_before_the_run_listens(store, tmp_path, capsys):
    out, file = tmp_path / "out", tmp_path / "run.json"
    words = ["svd", "k=0", "--accept", str(file), "--out", str(out)]
    assert main(["run", str(store), *words]) == 2
    assert capsys.readouterr().err == "cec-mpi: error: k 0: expected a whole number of at least 1\n"
    assert not out.exists()
    assert not file.exists()


def test_unused_vectors_are_not_checked(store, tmp_path):
    W = np.ones((3, COLUMNS))
    W[2, 0] = np.nan
    np.save(tmp_path / "W.npy", W)
    assert multiply(store, tmp_path / "out", tmp_path / "W.npy", "iterations=2") == 0
    assert multiply(store, tmp_path / "more", tmp_path / "W.npy", "iterations=9") == 2


@pytest.mark.parametrize(("task", "option"), [("ridge", "y"), ("logistic", "y"), ("lstsq", "b")])
def test_errors_name_the_file_of_an_option(store, tmp_path, capsys, task, option):
    path = tmp_path / "given.npy"
    np.save(path, np.where(np.arange(ROWS) == 7, np.inf, 1.0))
    words = ["--serial", task, f"{option}={path}"]
    assert main(["run", str(store), "--out", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert f"{option} ({path}) holds inf at entry 7 (counted from 0)" in error
    assert not list((tmp_path / "out").glob("*.*"))
    np.save(path, np.ones(ROWS + 1))
    assert main(["run", str(store), "--out", str(tmp_path / "out"), *words]) == 2
    assert f"{option} ({path}) has shape (41,), expected (40,)" in capsys.readouterr().err


def test_integers_and_halves_are_checked(tmp_path):
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
