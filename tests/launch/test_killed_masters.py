"""Machines end when their master is killed; one of several runs gets the directory."""

from __future__ import annotations

import json
import signal
import sys
import time

import numpy as np
import psutil
import pytest

from helpers.commands import count_steps
from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill
from helpers.processes import find_local_machines
from helpers.waiting import END_LIMIT, LIMIT, wait_until

pytestmark = pytest.mark.any_mpi


@pytest.fixture
def words(small_store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((200, small_store.columns)))
    return ["cec-mpi", "run", small_store.path, "vectors=W.npy", "-q", "--local", "3"]


MOMENTS = {
    "machines start": lambda out, machines: len(machines) == 3,
    "the first step takes an hour": lambda out, machines: (out / "steps.jsonl").exists(),
    "steps are computed": lambda out, machines: count_steps(out) > 5,
}
SLOW = ["--emulate-speeds", "1,1,1", "--emulate-base"]  # rows per second


@pytest.mark.parametrize("moment", MOMENTS)
def test_machines_end_when_their_master_is_killed(words, start, tmp_path, moment):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch)}
    is_long = moment == "the first step takes an hour"
    run = start([*words, "--out", out, *SLOW, 0.01 if is_long else 2000], variables=variables)
    wait_until(lambda: MOMENTS[moment](out, find_local_machines(run.pid)), run, pause=0.002)
    if is_long:
        time.sleep(0.5)  # the machines have probably begun
    machines = find_local_machines(run.pid)
    run.kill()
    run.wait()
    assert psutil.wait_procs(machines, END_LIMIT)[1] == []
    if moment == "steps are computed":
        # Machines that load modules or compute are killed before they can remove files.
        assert list(scratch.iterdir()) == []
        assert not (out / "connection.json").exists()


KILLED_AT_THE_END = """
import os, signal, sys
if "run" in sys.orig_argv:
    from cec_mpi.runtime.wire.sockets.listener import Listener
    Listener.close = lambda _: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("launched", [False, pytest.param(True, marks=pytest.mark.needs("ulfm"))])
def test_a_master_that_is_killed_after_its_machines_have_left_leaves_no_files(
    words, start, tmp_path, launched
):
    (tmp_path / "sitecustomize.py").write_text(KILLED_AT_THE_END)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch), "PYTHONPATH": str(tmp_path)}
    if launched:
        words = [*continuing_mpirun(), "-n", 4, *words[:-2], "--elastic"]
    run = start([*words, "--out", tmp_path / "out"], variables=variables)
    code = run.wait(LIMIT)
    assert code == (exit_code_after_kill(0) if launched else -signal.SIGKILL)
    wait_until(lambda: list(scratch.iterdir()) == [], describe=lambda: list(scratch.iterdir()))
    assert not (tmp_path / "out" / "connection.json").exists()


PROGRAM = """
import os, sys, time
import numpy as np
import cec_mpi
X = cec_mpi.open_operator(sys.argv[1], local=2)
X @ np.ones(12)
print(*X.pids.values(), flush=True)
fork = os.fork()
if not fork: time.sleep(600)
print(fork, flush=True)
os.kill(os.getpid(), 9)
"""


def test_machines_end_when_a_program_is_killed_whose_fork_continues(small_store, start, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    process = start([sys.executable, "program.py", small_store.path])
    pids = process.stdout.readline().split()
    fork = psutil.Process(int(process.stdout.readline()))
    wait_until(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids))
    fork.kill()
    assert process.wait(LIMIT) == -signal.SIGKILL


def test_one_of_several_simultaneous_runs_completes(words, start, tmp_path):
    runs = [start([*words, "--out", "out"]) for _ in range(3)]
    errors = [run.communicate(timeout=LIMIT)[1] for run in runs]
    assert {run.returncode for run in runs} <= {0, 2}
    assert any(run.returncode == 0 for run in runs)
    for run, error in zip(runs, errors, strict=True):
        assert error.count("cec-mpi: error: ") == (run.returncode == 2)
        if error:
            assert "another run" in error or "holds results" in error
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == 200
    assert not list(tmp_path.glob(".*lock"))
