"""Processes and nodes that are lost under srun, which starts elastic runs without any MPI."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.commands import steps_of
from helpers.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]

SURVIVING = ("--no-kill", "--kill-on-bad-exit=0", "--wait=0")
SPREAD = ("-N", 3, "-n", 6, "--ntasks-per-node=2")
SRUN = ("srun", "--mpi=none", *SPREAD, *SURVIVING)
SPEEDS = ("--speeds", "1,1,1,1")  # with learned ones a machine may have no rows
SLOW = (*SPEEDS, "--emulate-speeds", "1,1,1,1", "--emulate-base", 3000)  # 50 ms and more a step


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def command(store, tmp_path):
    """Thirty products on four machines, any two of which are enough, and a spare."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)
    words = ("cec-mpi", "run", store.path, "--out", tmp_path / "out", *SLOW)
    return *words, f"vectors={tmp_path / 'W.npy'}", "--elastic"


@pytest.fixture
def check(store, tmp_path):
    """Check that the run is right, and has lost and replaced these machines, in any order."""

    def check(lost, replaced):
        out = tmp_path / "out"
        assert (out / "summary.json").exists()
        result = np.load(out / "result.npy")
        np.testing.assert_allclose(result, np.load(tmp_path / "W.npy") @ store.X.T, atol=1e-10)
        _, steps = read_steps(out / "steps.jsonl")
        events = [event for step in steps for event in step["events"]]
        assert {event["lost"] for event in events if "lost" in event} == lost
        joined = [event for event in events if "joined" in event]
        assert [event["rank"] for event in joined] == [5]  # the spare
        assert joined[0]["joined"] in replaced

    return check


def test_killed_machines_are_left_out_and_replaced(run, cluster, command, check):
    done = run([*SRUN, *command, "--inject", "kill:3@10,kill:4@20"], variables=cluster)
    assert done.returncode == 137  # of the killed processes, though the run is right
    check({3, 4}, {3})


def test_too_few_machines_leave_a_checkpoint(run, cluster, command, tmp_path):
    killed = ",".join(f"kill:{machine}@10" for machine in (1, 2, 3, 4))
    done = run([*SRUN, *command, "--inject", killed], variables=cluster)
    assert done.returncode == 137
    assert done.stderr.count("cec-mpi: error: step ") == 1
    assert (tmp_path / "out" / "checkpoint.npz").exists()


def test_the_first_ranks_say_that_the_master_is_gone(start, desk, command, tmp_path):
    process = start([*SRUN, *command], variables=desk.variables)
    wait_for_steps(process, tmp_path / "out")
    master(tmp_path / "out").kill()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 137
    assert 1 <= stderr.count("cec-mpi: error: the connection to the master has ended\n") <= 2
    assert stderr.count("cec-mpi: error: ") <= 2


def test_a_node_that_goes_down_is_left_out(start, desk, command, check, tmp_path):
    """Machines 2 and 3, of ranks 2 and 3, are on the second node."""
    allocation = ("salloc", "--quiet", "--no-kill", *SPREAD)
    process = start([*allocation, *SRUN, *command], variables=desk.variables)
    wait_for_steps(process, tmp_path / "out")
    with desk.without("n2"):
        _, stderr = process.communicate(timeout=LIMIT)
    assert "Node failure on n2" in stderr
    check({2, 3}, {2, 3})


def master(out):
    """The process of rank 0, which is no child of srun."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_first = process.environ().get("SLURM_PROCID") == "0"
            if is_first and str(out) in process.cmdline():
                return process
    raise AssertionError


def wait_for_steps(process, out):
    wait_until(lambda: steps_of(out) >= 5, process)
