"""Processes and nodes that go under srun: runs of Intel MPI go on, and MPICH's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps

pytestmark = [pytest.mark.needs("pmi2"), pytest.mark.needs("pmi2-always")]

SURVIVING = ("--no-kill", "--kill-on-bad-exit=0", "--wait=0")
# Eight ranks, two on each node: MPICH does not start on nodes of unlike numbers of tasks.
SRUN = ("srun", "--mpi=pmi2", "-N", 4, "-n", 8, "--ntasks-per-node=2", *SURVIVING)
LIMIT = 90  # seconds
START = 25  # and until the first steps


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 6, 3)


@pytest.fixture
def command(store, tmp_path):
    """Thirty products on six machines, any three of which are enough, and a spare."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)
    words = ("cec-mpi", "run", store.path, "--out", tmp_path / "out")
    return *words, "--vectors", tmp_path / "W.npy", "--on-loss", "continue", "--spares", 1


@pytest.fixture
def is_right(store, tmp_path):
    def is_right():
        W, result = np.load(tmp_path / "W.npy"), np.load(tmp_path / "out" / "result.npy")
        return np.allclose(result, W @ store.X.T, atol=1e-10)

    return is_right


def events(out):
    _, steps = read_steps(out / "steps.jsonl")
    return [event for step in steps for event in step["events"]]


@pytest.fixture
def started(start, desk, command, tmp_path):
    """Start the run with these options, and see its first steps.

    A start that does not come through MPI_Init under Slurm's pmi2 is made again.
    """
    steps = tmp_path / "out" / "steps.jsonl"

    def started(*options, launcher=SRUN):
        for _ in range(4):
            process = start([*launcher, *command, *options], variables=desk.variables)
            by = time.monotonic() + START
            while process.poll() is None and time.monotonic() < by:
                if steps.exists() and len(steps.read_text().splitlines()) > 5:
                    return process
                time.sleep(0.02)
            desk.cancel_jobs()
            _, stderr = process.communicate(timeout=LIMIT)
            assert not steps.exists(), stderr
        raise AssertionError(f"four starts without a step: {stderr}")

    return started


SLOW = ("--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 2000)  # 50 ms and more a step


def test_killed_machines_are_left_out_and_replaced(started, is_right, tmp_path):
    process = started(*SLOW, "--inject", "kill:3@10,kill:5@20")
    process.communicate(timeout=LIMIT)
    assert process.returncode == 137  # of the killed processes, though the run is right
    assert (tmp_path / "out" / "summary.json").exists()
    assert is_right()
    found = events(tmp_path / "out")
    assert [event["lost"] for event in found if "lost" in event] == [3, 5]
    assert [(event["joined"], event["rank"]) for event in found if "joined" in event] == [(3, 7)]


def test_a_node_that_goes_down_is_left_out(started, desk, is_right, tmp_path):
    """Machines 2 and 3, of ranks 2 and 3, are on the second node."""
    allocation = ("salloc", "--quiet", "--no-kill", "-N", 4, "-n", 8, "--ntasks-per-node=2")
    process = started(*SLOW, launcher=(*allocation, *SRUN))
    with desk.without("n2"):
        _, stderr = process.communicate(timeout=LIMIT)
    assert (tmp_path / "out" / "summary.json").exists(), stderr
    assert is_right()
    found = events(tmp_path / "out")
    assert {event["lost"] for event in found if "lost" in event} == {2, 3}
    assert [event["rank"] for event in found if "joined" in event] == [7]
