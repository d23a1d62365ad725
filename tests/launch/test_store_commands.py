"""Commands on stores as users start them: alone, and under mpirun."""

import os
import re
import sys
import time

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.blocking_source import BlockingSource
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
    time.sleep(0.15)  # shards that changed within the last 0.1 s are read again
    return matrix / "store"


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_encode_under_mpirun_makes_the_same_bytes(cec, matrix, store, tmp_path):
    words = ("--machines", 5, "--recovery", 3, "--memory", "200M")
    done = cec("encode", matrix / "X.npy", tmp_path / "store", *words, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert contents(tmp_path / "store") == contents(store)


# --- machines reading their shards --------------------------------------------------------


def steps(out):
    header, found = read_steps(out / "steps.jsonl")
    return [header, *found]


@pytest.mark.any_mpi
@pytest.mark.parametrize("holding", ["mmap", "ram"])
@pytest.mark.parametrize("verify", ["first-read", "never"])
def test_reading_shards_is_recorded_in_the_first_step(
    cec, matrix, store, tmp_path, holding, verify
):
    words = (f"vectors={matrix / 'W.npy'}", "--shards", holding, "--verify", verify, "--serial")
    words += ("--speeds", "1,1,1,1,1")  # with learned speeds a machine may read other rows later
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
    assert sum(first["load_bytes"]) < 5 * 20001 * 160  # only assigned rows


# --- on a terminal ------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [pytest.param(0, marks=pytest.mark.any_mpi), 2])
def test_encode_shows_its_rate_and_remaining_time_on_a_terminal(start, matrix, tmp_path, ranks):
    """One process draws a bar; ranks print a line now and then."""
    source = BlockingSource(tmp_path)
    words = ["encode", source.path, tmp_path / "store", "--machines", 5, "--recovery", 3]
    launcher = ["mpirun", "-n", ranks] if ranks else []
    command = [*launcher, sys.executable, "-m", "cec_mpi", *words]
    terminal = Terminal(400, 24)
    streams = {"stdout": terminal.tty, "stderr": terminal.tty}
    process = start(command, variables={"TERM": "xterm-256color"}, **streams)
    os.close(terminal.tty)
    terminal.tty = -1
    text = terminal.await_text(" left")
    assert re.search(r"encoding( .*)? \d+% of 0\.04 GB, \d+ MB/s, \d+:\d\d left", text)
    source.release(source.await_reader())
    assert process.wait(LIMIT) == 0
    terminal.close()
    # The bar is removed. A warning says that a pipe is no chunk.
    *message, last = (line for line in terminal.lines if line and " lacks 1 of " not in line)
    assert all(line.startswith("cec-mpi: encoding ") for line in message)
    assert bool(message) == bool(ranks)
    assert last.startswith(f"{tmp_path / 'store'}: {source.rows} x 4 float64")
    assert last.endswith(" relative")
