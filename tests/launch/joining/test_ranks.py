"""Ranks of a launcher, and machines that come as processes of their own, in one run."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps
from helpers.joined import exit_codes
from helpers.killing import CONTINUING, code_with_kills
from helpers.ranks import ranks_of
from helpers.recording import Kept
from helpers.waiting import LIMIT, wait_for_file, wait_until


@pytest.fixture
def begin(start, store, tmp_path):
    """Start a run that machines may join, of thirty products if nothing else is said."""

    def begin(ranks, *options, task=("vectors=W.npy",), launcher=("mpirun",)):
        np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((30, 60)))
        words = ["cec-mpi", "run", store.path, "--out", "out", *task, "--speeds", "1,1,1,1"]
        return start([*launcher, "-n", ranks, *words, "--accept", "conn", *options])

    return begin


@pytest.fixture
def join(start):
    def join(count, *options):
        return [
            start(["cec-mpi", "join", "conn", "--retry", LIMIT, *options]) for _ in range(count)
        ]

    return join


@pytest.fixture
def is_right(store, tmp_path):
    def is_right():
        found = np.load(tmp_path / "out" / "result.npy")
        return np.allclose(found, np.load(tmp_path / "W.npy") @ store.X.T, atol=1e-10)

    return is_right


def header_and_events(out):
    header, steps = read_steps(out / "steps.jsonl")
    return header, [event for step in steps for event in step["events"]]


@pytest.mark.needs("code after a signal")
def test_a_run_that_is_stopped_lets_all_go(begin, join, store, endless_task, tmp_path):
    run = begin(2, task=endless_task.words(store))
    machines = join(1)
    wait_for_file(tmp_path / "out" / "steps.jsonl", '"step":5', run)
    ranks_of(run)[0].send_signal(signal.SIGTERM)
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == 6, stderr
    assert stderr.count("cec-mpi: error: ") == stderr.count("stopped by the signal SIGTERM") == 1
    for machine in machines:
        machine.terminate()  # which waits for the run to be resumed
    assert exit_codes(machines) == [6]


@pytest.mark.needs("ulfm")
def test_lost_ranks_are_replaced_by_machines_that_join(begin, join, is_right, tmp_path):
    run = begin(2, "--inject", "kill:1@5", launcher=CONTINUING)
    lines = iter(run.stdout.readline, "")
    assert any("waiting for 1 more machine (1 machine here)" in line for line in lines)
    machines = join(2, "-q")
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == code_with_kills(0), stderr
    assert exit_codes(machines) == [0, 0]
    assert is_right()
    _, events = header_and_events(tmp_path / "out")
    assert [event["lost"] for event in events if "lost" in event] == [1]


@pytest.mark.any_mpi
@pytest.mark.needs("ulfm")
def test_ranks_go_on_without_machines_that_joined(begin, join, store, endless_task, tmp_path):
    run = begin(3, task=endless_task.words(store), launcher=CONTINUING)
    (machine,) = join(1)
    assert any("this is machine 3" in line for line in iter(machine.stdout.readline, ""))
    steps = tmp_path / "out" / "steps.jsonl"
    wait_for_file(steps, '"kind":"step"', run)
    machine.kill()
    wait_for_file(steps, '"lost":3', run)
    endless_task.stop()
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == 0, stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0


@pytest.mark.usefixtures("no_launcher")
def test_machines_that_a_launcher_starts_come_and_go(start, store, tmp_path):
    recorder = Kept()
    machines = ["mpirun", "-n", 2, "cec-mpi", "join", "conn", "-q"]
    options = {"accept": str(tmp_path / "conn"), "wait": True, "recorder": recorder}
    with cec_mpi.open_operator(store.path, **options) as operator:

        def until(count, *kinds):
            w = np.random.default_rng(6).standard_normal(60)

            def happened():
                np.testing.assert_allclose(operator @ w, store.X @ w, atol=1e-10)
                return sum(kind in event for event in recorder.happened for kind in kinds)

            wait_until(lambda: happened() >= count, describe=lambda: recorder.happened)

        first = start(machines)
        until(2, "joined")
        ranks_of(first)[1].send_signal(signal.SIGKILL)  # some launchers end the others then
        second = start(machines)
        until(1, "lost", "left")
        until(4, "joined")
    assert second.wait(LIMIT) == 0
    assert first.wait(LIMIT) != 0
