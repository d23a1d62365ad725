"""Ranks of a launcher and machines that join separately serve one run."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps
from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill
from helpers.processes import exit_codes, ranks_of
from helpers.recording import MemoryRecorder
from helpers.waiting import LIMIT, wait_for_file, wait_until


@pytest.fixture
def begin(start, store, tmp_path):
    """Start a run that machines may join, by default of thirty products."""

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


@pytest.mark.needs("code after a signal")
def test_a_run_that_a_signal_ends_releases_ranks_and_machines(
    begin, join, store, endless_task, tmp_path
):
    run = begin(2, task=endless_task.words(store))
    machines = join(1)
    wait_for_file(tmp_path / "out" / "steps.jsonl", '"step":5', run)
    ranks_of(run)[0].send_signal(signal.SIGTERM)
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == 6, stderr
    assert stderr.count("cec-mpi: error: ") == stderr.count("stopped by the signal SIGTERM") == 1
    for machine in machines:
        machine.terminate()  # it waits until the run is resumed
    assert exit_codes(machines) == [6]


@pytest.mark.needs("ulfm")
def test_lost_ranks_are_replaced_by_machines_that_join(begin, join, store, tmp_path):
    run = begin(2, "--inject", "kill:1@5", launcher=continuing_mpirun())
    lines = iter(run.stdout.readline, "")
    assert any("waiting for 1 more machine (1 present)" in line for line in lines)
    machines = join(2, "-q")
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == exit_code_after_kill(0), stderr
    assert exit_codes(machines) == [0, 0]
    expected = np.load(tmp_path / "W.npy") @ store.X.T
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), expected, atol=1e-10)
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert [e["lost"] for step in steps for e in step["events"] if "lost" in e] == [1]


@pytest.mark.usefixtures("no_launcher")
def test_machines_of_a_launcher_join_and_are_replaced(start, store, tmp_path):
    recorder = MemoryRecorder()
    machines = ["mpirun", "-n", 2, "cec-mpi", "join", "conn", "-q"]
    options = {"accept": str(tmp_path / "conn"), "wait": True, "recorder": recorder}
    with cec_mpi.open_operator(store.path, **options) as operator:

        def until(count, *kinds):
            w = np.random.default_rng(6).standard_normal(60)

            def happened():
                np.testing.assert_allclose(operator @ w, store.X @ w, atol=1e-10)
                return sum(kind in event for event in recorder.all_events for kind in kinds)

            wait_until(lambda: happened() >= count, describe=lambda: recorder.all_events)

        first = start(machines)
        until(2, "joined")
        ranks_of(first)[1].send_signal(signal.SIGKILL)  # some launchers end the others then
        second = start(machines)
        until(1, "lost", "left")
        until(4, "joined")
    assert second.wait(LIMIT) == 0
    assert first.wait(LIMIT) != 0
