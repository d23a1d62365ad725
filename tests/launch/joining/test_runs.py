"""Runs that machines join: the connection file, restarts of the master, and messages."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.processes import await_error, await_exit_codes
from helpers.waiting import LIMIT, wait_for_file, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]

SLOW_WRITES = """
import os, time
write = os.pwrite
os.pwrite = lambda *args: time.sleep(3) or write(*args)
"""


def test_the_connection_file_of_another_run_is_not_replaced(
    open_accepting, store, join, conn, run, tmp_path
):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}", "--accept", conn]
    with open_accepting(store) as checked:
        processes = join(2)
        done = run(["cec-mpi", "run", store.path, *words])
        assert done.returncode == 2, done.stderr
        assert "another run listens there; each run needs a file of its own" in done.stderr
        checked.step()
    assert await_exit_codes(processes) == [0] * 2


@pytest.fixture
def start_run(start, conn, tmp_path):
    """Return a function that starts a run which machines may join, by default of ten products."""
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))

    def start_run(store, *words, task=("vectors=W.npy",), **options):
        command = ["cec-mpi", "run", store.path, "--out", "out", *task, "--accept", conn]
        return start([*command, *words], **options)

    return start_run


def test_an_interrupt_at_the_end_of_a_run_removes_its_connection_file(start, store, tmp_path):
    """The run waits for a suspended machine to leave."""
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    words = ["cec-mpi", "run", store.path, "--out", "out", "vectors=W.npy", "--local", 3]
    run = start([*words, "--inject", "stop:3@2", "--deadline", 0.2])
    wait_for_file(tmp_path / "out" / "summary.json", process=run)
    assert (tmp_path / "out" / "connection.json").exists()
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    assert await_exit_codes([run]) == [130]
    assert not (tmp_path / "out" / "connection.json").exists()


def test_machines_rejoin_a_run_whose_master_was_killed(
    start, store, join, conn, endless_task, tmp_path
):
    records = tmp_path / "out" / "steps.jsonl"
    run = ["cec-mpi", "run", os.path.relpath(store.path, tmp_path), "--out", "out"]
    run += ["--accept", conn, "--wait", *endless_task.prepare(store), "--checkpoint-every", 10]
    master = start(run)
    machines = join(2, "--retry", LIMIT, cwd=store.path.parent)
    wait_for_file(tmp_path / "out" / "checkpoint.npz", process=master)
    for growth in (1, 1000, 1000):  # while it begins to listen, and during steps of both machines
        master.kill()
        master.wait()
        old_size = records.stat().st_size
        master = start([*run, "--resume"])
        wait_until(lambda old=old_size, new=growth: records.stat().st_size >= old + new, master)
    endless_task.stop()
    assert await_exit_codes([master, *machines]) == [0] * 3, await_error(master)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0
    header, _ = read_steps(records)
    assert header["mpi_library"] == "none"
    assert len(list((tmp_path / "out" / "logs").glob("machine-*.log"))) >= 2


def test_machines_wait_for_a_terminated_run_until_a_signal_ends_them(
    start_run, make_store, join, conn
):
    """The run waits for a third machine, so it computes no step."""
    process = start_run(make_store(np.eye(60), 4, 3))
    machines = join(2, "--retry", LIMIT)
    assert all(_has_joined(machine) for machine in machines)
    process.terminate()
    assert process.wait(LIMIT) == 6
    machines[0].terminate()
    assert await_exit_codes(machines[:1]) == [6], await_error(machines[0])
    assert not conn.exists()
    machines[1].send_signal(signal.SIGUSR1)
    assert await_exit_codes(machines[1:]) == [6], await_error(machines[1])


@pytest.mark.parametrize("ending", ["machine", "master"])
def test_a_machine_that_copies_its_shard_leaves_without_delay(
    start_run, make_store, join, tmp_path, ending
):
    master = start_run(make_store(np.ones((60_000, 60)), 3, 2), task=("svd", "k=2"))
    assert "listening" in master.stdout.readline()
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_WRITES)
    slow = {"PYTHONPATH": str(tmp_path / "slow")}
    machines = join(2, "--cache", tmp_path / "disk", variables=slow)
    wait_until(lambda: len(list((tmp_path / "disk").glob("*/*/.shard-*"))) == 2)
    if ending == "machine":
        for machine in machines:
            machine.terminate()
        assert await_exit_codes(machines) == [6, 6], await_error(machines[0])
    master.kill()
    if ending == "master":
        assert await_exit_codes(machines) == [3, 3], await_error(machines[0])
    assert not list((tmp_path / "disk").rglob("*shard-*"))
    assert master.wait(LIMIT) == -signal.SIGKILL


def test_machines_print_that_their_run_was_interrupted(start_run, store, join, conn):
    process = start_run(store)
    wait_for_file(conn, process=process)
    (machine,) = join()
    assert "joined the run of" in machine.stdout.readline()
    assert "this is machine 1" in machine.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert await_exit_codes([process, machine]) == [130, 3]
    assert await_error(machine) == "the master has left: stopped by Ctrl-C\n"


def _has_joined(machine):
    """Read the output of a machine up to the line which states that it has joined."""
    return any("joined the run of" in line for line in machine.stdout)


def test_a_run_with_check_waits_for_one_more_machine(start_run, store, join):
    process = start_run(store, "--check")
    assert any("waiting for 3 more machines (0 present)" in line for line in process.stdout)
    machines = join(2, "-q")
    assert any("waiting for 1 more machine (2 present)" in line for line in process.stdout)
    assert await_exit_codes([process, *machines, *join(1, "-q")]) == [0] * 4


def test_a_machine_prints_that_it_waits_for_the_connection_file(start_run, store, join, conn):
    (machine,) = join(1, "--retry", LIMIT)
    line = machine.stdout.readline()
    assert line.startswith(f"{conn} does not exist")
    assert line.endswith(f"; waiting {LIMIT} s at most\n")
    process = start_run(store)
    later_machines = join(1, "--retry", LIMIT, "-q")
    assert machine.stdout.readline().startswith("joined the run of")
    assert await_exit_codes([process, machine, *later_machines]) == [0] * 3
