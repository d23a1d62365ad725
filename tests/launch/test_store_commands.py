"""Commands on stores as users start them: alone, and under mpirun."""

import os
import re
import shutil
import sys

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.held import HeldSource
from helpers.terminals import Terminal
from helpers.waiting import LIMIT


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    directory = tmp_path_factory.mktemp("matrix")
    X = np.random.default_rng(5).standard_normal((60_001, 40), dtype=np.float32)
    np.save(directory / "X.npy", X)
    np.save(directory / "W.npy", np.random.default_rng(6).standard_normal((2, 40)))
    return directory


@pytest.fixture(scope="module")
def store(run, matrix):
    words = ["cec-mpi", "encode", matrix / "X.npy", matrix / "store"]
    done = run([*words, "--machines", 5, "--recovery", 3])
    assert done.returncode == 0, done.stderr
    return matrix / "store"


@pytest.fixture
def copy(store, tmp_path):
    return shutil.copytree(store, tmp_path / "store")


def contents(path):
    return {each.name: each.read_bytes() for each in path.iterdir()}


def spoil(path, machine, row):
    shard = np.load(path / f"shard-{machine:04d}.npy", mmap_mode="r+")
    shard[row, 0] += 1
    shard.flush()


def test_encode_under_mpirun_makes_the_same_bytes(cec, matrix, store, tmp_path):
    words = ("--machines", 5, "--recovery", 3, "--memory", "200M")
    done = cec("encode", matrix / "X.npy", tmp_path / "store", *words, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert contents(tmp_path / "store") == contents(store)


@pytest.mark.any_mpi
def test_decode_under_mpirun_writes_by_the_name_of_the_file(cec, store, tmp_path):
    name = "Y.h5::/group/Y"
    assert cec("decode", store, tmp_path / "one.npy").returncode == 0
    done = cec("decode", store, f"{tmp_path}/{name}", ranks=2)
    assert done.returncode == 0, done.stderr
    assert f"{name}: error about " in done.stdout
    done = cec(
        "encode", f"{tmp_path}/{name}", tmp_path / "again", "--machines", 1, "--recovery", 1,
        "--systematic", "--dtype", "float32",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    again = np.load(tmp_path / "again" / "shard-0001.npy")
    assert np.array_equal(again, np.load(tmp_path / "one.npy"))


# --- machines reading their shards --------------------------------------------------------


def steps(out):
    header, found = read_steps(out / "steps.jsonl")
    return [header, *found]


@pytest.mark.any_mpi
@pytest.mark.parametrize("holding", ["mmap", "ram"])
@pytest.mark.parametrize("verify", ["first-read", "never"])
def test_the_record_says_what_the_first_step_costs(cec, matrix, store, tmp_path, holding, verify):
    words = (f"vectors={matrix / 'W.npy'}", "--shards", holding, "--verify", verify, "--serial")
    words += ("--speeds", "1,1,1,1,1")  # learned ones may give a machine rows that are new to it
    done = cec("run", store, "--out", tmp_path / "out", *words)
    assert done.returncode == 0, done.stderr
    header, first, second = steps(tmp_path / "out")
    assert (header["shards"], header["verify"]) == (holding, verify)
    read = holding == "ram" or verify == "first-read"
    assert all(
        (size > 0) == (seconds > 0) == read
        for size, seconds in zip(first["load_bytes"], first["load_seconds"], strict=True)
    )
    assert second["load_bytes"] == [0] * 5
    assert sum(first["load_bytes"]) < 5 * 20001 * 160  # not the rows that nobody asked for


@pytest.mark.any_mpi
def test_a_run_reads_the_copies_of_an_earlier_one(cec, matrix, copy, tmp_path):
    X, W = (np.load(matrix / name) for name in ("X.npy", "W.npy"))
    for out in ("first", "second"):
        words = ["run", copy, f"vectors={matrix / 'W.npy'}", "--out", tmp_path / out, "--local", 5]
        done = cec(*words, "--cache", tmp_path / "disk", "--cache-limit", "1G")
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(
            np.load(tmp_path / out / "result.npy"), W @ X.T, rtol=1e-3, atol=1e-3
        )
        assert steps(tmp_path / out)[0]["machines_with_copies"] == [1, 2, 3, 4, 5]
        assert len(list((tmp_path / "disk").glob("*/*/shard-*"))) == 5
        for n in range(1, 6):
            spoil(copy, n, 0)


@pytest.mark.any_mpi
def test_a_run_without_a_place_for_copies_is_warned_once(cec, matrix, copy, tmp_path):
    words = ["run", copy, f"vectors={matrix / 'W.npy'}", "--out", tmp_path / "out", "--local", 5]
    done = cec(*words, "--cache", matrix / "W.npy")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be copied to") == 1
    assert steps(tmp_path / "out")[0]["machines_with_copies"] == []


# --- on a terminal ------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [pytest.param(0, marks=pytest.mark.any_mpi), 2])
def test_rate_and_time_left_on_a_terminal(start, matrix, tmp_path, ranks):
    """A bar; or of ranks, whose terminal is the launcher's, a line now and then."""
    source = HeldSource(tmp_path)
    words = ["encode", source.path, tmp_path / "store", "--machines", 5, "--recovery", 3]
    launcher = ["mpirun", "-n", ranks] if ranks else []
    command = [*launcher, sys.executable, "-m", "cec_mpi", *words]
    terminal = Terminal(400, 24)
    streams = {"stdout": terminal.end, "stderr": terminal.end}
    process = start(command, variables={"TERM": "xterm-256color"}, **streams)
    os.close(terminal.end)
    terminal.end = -1
    text = terminal.await_text(" left")
    assert re.search(r"encoding( .*)? \d+% of 0\.04 GB, \d+ MB/s, \d+:\d\d left", text)
    source.let_go(source.await_reader())
    assert process.wait(LIMIT) == 0
    terminal.close()
    # The bar has gone, and the answer stands alone.
    # A pipe is no chunk, which a warning says.
    *message, last = (line for line in terminal.lines if line and " lacks 1 of " not in line)
    assert all(line.startswith("cec-mpi: encoding ") for line in message)
    assert bool(message) == bool(ranks)
    assert last.startswith(f"{tmp_path / 'store'}: {source.rows} x 4 float64")
    assert last.endswith(" relative")
