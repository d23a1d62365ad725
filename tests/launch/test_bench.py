"""Benchmarks that start ranks themselves, and what is left of them however they end."""

import json
import signal
import time

import pytest

STEP = [
    "bench",
    "step",
    "--ranks",
    "3",
    "--recovery",
    "2",
    "--rows",
    "60",
    "--columns",
    "8",
    "--steps",
    "3",
    "--turns",
    "1",
]


@pytest.mark.parametrize("ranks", [0, 3])
def test_steps_of_ranks_of_its_own_or_of_a_launcher(cec, tmp_path, ranks):
    done = cec(*STEP, "--directory", tmp_path, "--json", ranks=ranks)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["settings"]["ranks"] == 3
    assert {"X w", "X'v", "X W, 8 columns", "bare"} <= {each["name"] for each in found["figures"]}
    assert list(tmp_path.iterdir()) == []


def test_steps_of_few_ranks_and_of_more(cec, tmp_path):
    words = ("--ranks", 4, "--recovery", 2, "--steps", 3, "--turns", 1)
    done = cec("bench", "scale", *words, "--directory", tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    names = {each["name"] for each in json.loads(done.stdout)["figures"]}
    assert {"2 ranks, collectives", "4 ranks, collectives, wide X: model"} <= names
    assert list(tmp_path.iterdir()) == []


def test_ranks_of_its_own_say_what_they_measure(cec, tmp_path):
    done = cec(*STEP, "--directory", tmp_path, "-v")
    assert done.returncode == 0
    assert done.stderr.count("turn 1 of 1: published, ") == 1


def test_a_start(cec):
    done = cec("bench", "start", "--ranks", 2, "--rows", 6, "--turns", 1, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    names = [each["name"] for each in json.loads(done.stdout)["figures"]]
    assert names == ["run, seconds", "run, CPU seconds", "run", "a bare program"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ranks_and_their_store_go_with_the_command(start, tmp_path, number):
    process = start(["cec-mpi", *STEP, "--directory", tmp_path, "--turns", "10000"])
    until = time.monotonic() + 30
    while not list(tmp_path.glob("*/*/store/*")):  # of rank 0, in what the command has made
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_take_too_long(cec, tmp_path):
    done = cec(*STEP, "--directory", tmp_path, "--turns", 10000, "--limit", 2)
    assert done.returncode == 3
    assert "no end after 2 seconds (--limit)" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recovery", 3], "--recovery 3 with 3 ranks"),
        (["--directory", "/dev/null/none"], "/dev/null/none is not a directory"),
    ],
)
def test_what_cannot_be_measured_under_a_launcher(cec, words, said):
    done = cec(*STEP, *words, ranks=3)
    assert done.returncode == 2
    assert done.stderr.count("cec-mpi: error:") == 1
    assert f"cec-mpi: error: {said}" in done.stderr
