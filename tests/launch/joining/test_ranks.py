"""Ranks of a launcher and machines that join separately serve one run."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill
from helpers.processes import await_exit_codes, find_ranks
from helpers.waiting import LIMIT


@pytest.mark.needs("ulfm")
def test_lost_ranks_are_replaced_by_machines_that_join(start, join, store, tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((30, 60)))
    words = ["cec-mpi", "run", store.path, "--out", "out", "vectors=W.npy", "--accept", "conn"]
    words += ["--speeds", "1,1,1,1", "--inject", "kill:1@5"]
    run = start([*continuing_mpirun(), "-n", 2, *words])
    lines = iter(run.stdout.readline, "")
    assert any("waiting for 1 more machine (1 present)" in line for line in lines)
    machines = join(2, "-q")
    stderr = run.communicate(timeout=LIMIT)[1]
    assert run.returncode == exit_code_after_kill(0), stderr
    assert await_exit_codes(machines) == [0, 0]
    expected = np.load(tmp_path / "W.npy") @ store.X.T
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), expected, atol=1e-10)
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert [e["lost"] for step in steps for e in step["events"] if "lost" in e] == [1]


@pytest.mark.usefixtures("no_launcher")
def test_machines_of_a_launcher_join_and_are_replaced(open_accepting, start, store, conn):
    machines = ["mpirun", "-n", 2, "cec-mpi", "join", conn, "-q"]
    with open_accepting(store, wait=True) as checked:
        first = start(machines)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 2)
        find_ranks(first)[1].kill()  # some launchers then end the other rank
        second = start(machines)
        checked.run_until(lambda: checked.event_machines("lost", "left"))
        checked.run_until(lambda: len(checked.event_machines("joined")) >= 4)
    assert second.wait(LIMIT) == 0
    assert first.wait(LIMIT) != 0
