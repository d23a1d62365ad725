"""Runs that machines join, from beginning to end: the connection file, and messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.runtime.wire.sockets.connection_file import KEY_VARIABLE
from helpers.joined import error_of, exit_codes
from helpers.waiting import LIMIT, wait_for_file, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]

SLOW_WRITES = """
import os, time
write = os.pwrite
os.pwrite = lambda *args: time.sleep(3) or write(*args)
"""


def test_the_file_of_a_run_that_goes_on_is_left_alone(accepting, store, join, conn, run, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}", "--accept", conn]
    with accepting(store) as made:
        processes = join(2)
        done = run(["cec-mpi", "run", store.path, *words])
        assert done.returncode == 2, done.stderr
        assert "another run listens there; each run needs a file of its own" in done.stderr
        made.step()
    assert exit_codes(processes) == [0] * 2


@pytest.fixture
def begin(start, conn, tmp_path):
    """Start a run that machines join, of ten products if the words name no task."""
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))

    def begin(store, *words, task=("vectors=W.npy",), **options):
        command = ["cec-mpi", "run", store.path, "--out", "out", *task, "--accept", conn]
        return start([*command, *words], **options)

    return begin


def test_the_file_is_gone_when_the_end_of_a_run_is_interrupted(start, store, tmp_path):
    """While it waits for a machine to leave that is stopped."""
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    words = ["cec-mpi", "run", store.path, "--out", "out", "vectors=W.npy", "--local", 3]
    run = start([*words, "--inject", "stop:3@2", "--deadline", 0.2])
    wait_for_file(tmp_path / "out" / "summary.json", process=run)
    assert (tmp_path / "out" / "connection.json").exists()
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    assert exit_codes([run]) == [130]
    assert not (tmp_path / "out" / "connection.json").exists()


@pytest.mark.parametrize("way", ["file", "address"])
def test_machines_come_back_whenever_the_master_is_killed(
    start, store, join, conn, endless_task, tmp_path, way
):
    there, elsewhere = os.path.relpath(store.path, tmp_path), store.path.parent
    records, source, variables = tmp_path / "out" / "steps.jsonl", conn, {}
    run = ["cec-mpi", "run", there, "--out", "out", "--accept", conn]
    if way == "address":
        with socket.create_server(("127.0.0.1", 0)) as free:
            source = f"127.0.0.1:{free.getsockname()[1]}"
        variables = {KEY_VARIABLE: "k" * 16}
        run[-2:] = ["--listen", source]
    run += ["--wait", *endless_task.words(store), "--checkpoint-every", 10]
    where = {"file": source, "cwd": elsewhere, "variables": variables}  # of machines
    master = start(run, variables=variables)
    hosts, carried = (1, 2) if way == "address" else (2, 1)
    patient = join(hosts, "--retry", LIMIT, "--machines", carried, **where)
    wait_for_file(tmp_path / "out" / "checkpoint.npz", process=master)
    master.kill()
    for moment in range(4):
        before = records.stat().st_size
        master = start([*run, "--resume"], variables=variables)
        if not moment:  # it has begun to listen, or will
            wait_until(lambda before=before: records.stat().st_size != before, master)
        else:  # steps, each of which needs both machines
            wait_until(lambda before=before: records.stat().st_size >= before + 1000, master)
        if moment < 3:
            master.kill()
            master.wait()
    endless_task.stop()
    assert exit_codes([master, *patient]) == [0] * (1 + hosts), error_of(master)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0
    header, _ = read_steps(records)
    assert header["mpi_library"] == "none"
    assert len(list((tmp_path / "out" / "logs").glob("machine-*.log"))) >= 2


def test_a_run_that_is_stopped_lets_its_machines_go(begin, make_store, join, conn):
    """It waits for a third machine, so that it does not end before."""
    process = begin(make_store(np.eye(60), 4, 3))
    machines = join(2, "--retry", LIMIT)
    assert all(_has_joined(machine) for machine in machines)
    process.terminate()
    assert process.wait(LIMIT) == 6
    machines[0].terminate()
    assert exit_codes(machines[:1]) == [6], error_of(machines[0])
    assert not conn.exists()
    machines[1].send_signal(signal.SIGUSR1)
    assert exit_codes(machines[1:]) == [6], error_of(machines[1])


@pytest.mark.parametrize("leaves", ["machine", "master"])
def test_a_machine_that_copies_its_shard_can_leave(begin, make_store, join, tmp_path, leaves):
    master = begin(make_store(np.ones((60_000, 60)), 3, 2), task=("svd", "k=2"))
    assert "listening" in master.stdout.readline()
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_WRITES)
    slow = {"PYTHONPATH": str(tmp_path / "slow")}
    machines = join(2, "--cache", tmp_path / "disk", variables=slow)
    wait_until(lambda: len(list((tmp_path / "disk").glob("*/*/.shard-*"))) == 2)
    if leaves == "machine":
        for machine in machines:
            machine.terminate()
        assert exit_codes(machines) == [6, 6], error_of(machines[0])
    master.kill()
    if leaves == "master":
        assert exit_codes(machines) == [3, 3], error_of(machines[0])
    assert not list((tmp_path / "disk").rglob("*shard-*"))
    assert master.wait(LIMIT) == -signal.SIGKILL


def test_a_waiting_run_prints_why_no_machine_can_join(begin, make_store, join):
    store = make_store(np.eye(60), 3, 2)
    for n in (1, 2):
        (store.path / f"shard-000{n}.npy").unlink()
    master = begin(store, "--wait", task=("power",))
    for _ in range(2):
        (machine,) = join(1, "--retry", LIMIT)
        assert exit_codes([machine]) == [3], error_of(machine)
    master.terminate()
    assert master.wait(LIMIT) == 6
    lines = [line for line in master.stdout if "cannot join" in line]
    assert len(lines) == 2  # one was tried on another number
    assert "shard-0001.npy: missing" in lines[0]
    assert "shard-0002.npy: missing" in lines[1]


def test_a_run_that_is_interrupted_says_so_to_its_machines(begin, store, join, conn):
    process = begin(store)
    wait_for_file(conn, process=process)
    (machine,) = join()
    assert "joined the run of" in machine.stdout.readline()
    assert "this is machine 1" in machine.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert exit_codes([process, machine]) == [130, 3]
    assert error_of(machine) == "the master has left: stopped by Ctrl-C\n"


def _has_joined(machine):
    """Whether it says so, once it has said that it waits, if it does."""
    return any("joined the run of" in line for line in machine.stdout)


def test_a_run_that_compares_answers_says_that_it_waits_for_one_more(begin, store, join):
    process = begin(store, "--check")
    assert any("waiting for 3 more machines (0 machines" in line for line in process.stdout)
    machines = join(2, "-q")
    assert any("waiting for 1 more machine (2 machines" in line for line in process.stdout)
    assert exit_codes([process, *machines, *join(1, "-q")]) == [0] * 4


def test_a_machine_says_what_it_waits_for(begin, store, join, conn):
    (machine,) = join(1, "--retry", LIMIT)
    line = machine.stdout.readline()
    assert line.startswith(f"{conn} does not exist")
    assert line.endswith(f"; waiting {LIMIT} s at most\n")
    process = begin(store)
    others = join(1, "--retry", LIMIT, "-q")
    assert machine.stdout.readline().startswith("joined the run of")
    assert exit_codes([process, machine, *others]) == [0] * 3
