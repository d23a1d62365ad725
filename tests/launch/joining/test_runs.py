"""Runs that machines join, from beginning to end: the connection file, and what is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest

from cec_mpi.errors import InputError
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.recorder import read_steps
from cec_mpi.session.joining.master import reception
from cec_mpi.wire.messages import parting
from helpers.joined import LIMIT, codes, told

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


def test_who_cannot_open_a_shard_is_followed_by_one_that_opens_another(store, start, tmp_path):
    shutil.copytree(store.path, tmp_path / "left")
    for number in (1, 3, 4, 5):
        (tmp_path / "left" / f"shard-{number:04d}.npy").unlink()
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", "out", "--vectors", "W.npy", "--accept", "conn"]
    master = start(["cec-mpi", "run", "left", *words])
    assert "listening" in master.stdout.readline()
    first = start(["cec-mpi", "join", "conn"])
    assert "machine 1 on" in told(first)
    second = start(["cec-mpi", "join", "conn"])
    assert "joined" in second.stdout.readline()
    assert "this is machine 2 of" in second.stdout.readline()
    master.terminate()
    assert codes([master, first, second]) == [6, 3, 3]


def test_the_file_of_a_run_that_goes_on_is_left_alone(accepting, store, join, conn, run, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", tmp_path / "out", "--vectors", tmp_path / "W.npy", "--accept", conn]
    with accepting(store) as made:
        processes = join(3)
        done = run(["cec-mpi", "run", store.path, *words])
        assert done.returncode == 2, done.stderr
        assert "another run listens there, expected a name of its own" in done.stderr
        made.step()
    assert codes(processes) == [0] * 3


def test_of_two_runs_that_begin_at_once_one_has_the_file(store, conn):
    receptions = [reception(SessionOptions(accept=str(conn))) for _ in range(2)]
    try:
        receptions[1].begin(store.path)
        written = conn.read_bytes()
        with pytest.raises(InputError, match="another run has begun to listen there"):
            receptions[0].begin(store.path)
    finally:
        receptions[0].close()
        assert conn.read_bytes() == written
        receptions[1].close()
    assert not conn.exists()


def test_the_file_is_gone_when_the_end_of_a_run_is_interrupted(
    accepting, store, join, conn, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    def step_once():
        with accepting(store) as made:
            made.step()
            monkeypatch.setattr(parting, "all_that_hear", interrupted)

    processes = join(3, "--retry", 2)
    with pytest.raises(KeyboardInterrupt):
        step_once()
    assert not conn.exists()
    assert codes(processes) == [3] * 3


FORKS = """
import os, sys
import numpy as np
import cec_mpi
with cec_mpi.open_operator(sys.argv[1], None, accept=sys.argv[2]) as X:
    first = X @ np.ones(60)
    child = os.fork()
    if not child:
        sys.exit("a forked process leaves")
    os.waitpid(child, 0)
    print(os.path.exists(sys.argv[2]), np.array_equal(X @ np.ones(60), first))
"""


def test_a_forked_process_ends_nothing(start, store, join, conn):
    program = start([sys.executable, "-c", FORKS, store.path, conn])
    machines = join(3, "--retry", LIMIT)
    assert codes([program, *machines]) == [0] * 4
    assert "True True" in program.stdout.read()


def test_machines_join_again_when_a_run_is_resumed(start, store, join, conn, until_told, tmp_path):
    there = os.path.relpath(store.path, tmp_path)
    run = ["cec-mpi", "run", there, "--out", "out", "--accept", conn]
    run += ["--wait", *until_told.words(store), "--checkpoint-every", 10]
    checkpoint, elsewhere = tmp_path / "out" / "checkpoint.npz", store.path.parent
    first = start(run)  # machines start in another directory
    due = time.monotonic() + LIMIT
    while not conn.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    patient = join(3, "--retry", LIMIT, cwd=elsewhere)
    others = join(2, cwd=elsewhere)
    while not checkpoint.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    first.kill()
    assert codes(others) == [3, 3]
    records = tmp_path / "out" / "steps.jsonl"
    before = records.stat().st_size
    second = start([*run, "--resume"])
    while records.stat().st_size < before + 1000:  # steps, each of which needs all three
        assert second.poll() is None
        assert time.monotonic() < due + LIMIT
        time.sleep(0.02)
    until_told.tell()
    assert codes([second, *patient]) == [0, 0, 0, 0], told(second)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0
    header, _ = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["mpi_library"] == "none"
    assert len(list((tmp_path / "out" / "logs").glob("machine-*.log"))) >= 3


def test_a_run_that_is_stopped_lets_its_machines_go(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    machines = join(2, "--retry", 30)
    assert all(_has_joined(machine) for machine in machines)
    process.terminate()
    assert process.wait(LIMIT) == 6
    machines[0].terminate()
    assert codes(machines[:1]) == [6], told(machines[0])
    assert not conn.exists()
    machines[1].send_signal(signal.SIGUSR1)
    assert codes(machines[1:]) == [6], told(machines[1])


def test_why_no_machine_can_join_is_told_where_the_run_waits(
    start, make_store, join, conn, tmp_path
):
    store = make_store(np.eye(60), 3, 2)
    for n in (1, 2):
        (store.path / f"shard-000{n}.npy").unlink()
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    master = start([*run, "--task", "power", "--wait"])
    for _ in range(2):
        (machine,) = join(1, "--retry", 30)
        assert codes([machine]) == [3], told(machine)
    master.terminate()
    assert master.wait(LIMIT) == 6
    lines = [line for line in master.stdout if "cannot join" in line]
    assert len(lines) == 2  # one was tried on another number
    assert "shard-0001.npy: missing" in lines[0]
    assert "shard-0002.npy: missing" in lines[1]


def test_a_run_that_is_interrupted_says_so_to_its_machines(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    due = time.monotonic() + LIMIT
    while not conn.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    (machine,) = join()
    assert "joined the run of" in machine.stdout.readline()
    assert "this is machine 1" in machine.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert codes([process, machine]) == [130, 3]
    assert told(machine) == "the master has left: stopped by Ctrl-C\n"


def _has_joined(machine):
    """Whether it says so, once it has said that it waits, if it does."""
    return any("joined the run of" in line for line in machine.stdout)


def test_a_run_that_compares_answers_says_that_it_waits_for_one_more(start, store, join, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", tmp_path / "conn"]
    run += ["--vectors", tmp_path / "W.npy", "--check", "parity", "--stragglers", 1]
    process = start(list(map(str, run)))
    assert any("waiting for 4 more machines (0 machines" in line for line in process.stdout)
    machines = join(3, "-q")
    assert any("waiting for 1 more machine (3 machines" in line for line in process.stdout)
    assert codes([process, *machines, *join(1, "-q")]) == [0] * 5


def test_a_machine_says_what_it_waits_for(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    (machine,) = join(1, "--retry", 30)
    assert machine.stdout.readline() == f"{conn}: missing; waiting 30 s at most\n"
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    others = join(2, "--retry", 30, "-q")
    assert machine.stdout.readline().startswith("joined the run of")
    assert codes([process, machine, *others]) == [0] * 4
