"""Machines end with a master that is killed; each directory has one run."""

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
from helpers.processes import local_machines
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
SLOW = ["--emulate-speeds", "1,1,1", "--emulate-base"]  # rows in a second


@pytest.mark.parametrize("moment", MOMENTS)
def test_machines_end_with_a_master_that_is_killed(words, start, tmp_path, moment):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch)}
    is_long = moment == "the first step takes an hour"
    run = start([*words, "--out", out, *SLOW, 0.01 if is_long else 2000], variables=variables)
    wait_until(lambda: MOMENTS[moment](out, local_machines(run.pid)), run, pause=0.002)
    if is_long:
        time.sleep(0.5)  # the machines have probably begun
    machines = local_machines(run.pid)
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
if not os.fork(): time.sleep(600)
os.kill(os.getpid(), 9)
"""


def test_machines_end_with_a_killed_program_whose_fork_continues(small_store, start, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = start(
        [sys.executable, "program.py", small_store.path], variables={"TMPDIR": str(scratch)}
    )
    assert process.wait(LIMIT) == -signal.SIGKILL
    due = time.monotonic() + END_LIMIT
    while found := processes_with(scratch, "cec_mpi.runtime.session.host"):
        assert time.monotonic() < due, found
        time.sleep(0.1)
    remaining = processes_with(scratch)
    for child in remaining:
        child.kill()
    assert len(remaining) == 1
    assert list(scratch.iterdir()) == []


def processes_with(scratch, *words):
    found = []
    for process in psutil.process_iter():
        try:
            is_of_it = process.environ().get("TMPDIR") == str(scratch)
            if is_of_it and {*words} <= {*process.cmdline()}:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("accept", [False, True], ids=["directory", "connection file"])
def test_one_of_several_simultaneous_runs_completes(words, start, tmp_path, accept):
    commands = [[*words, "--out", f"out{n}" if accept else "out"] for n in range(3)]
    if accept:
        commands = [[*command, "--accept", "run.json"] for command in commands]
    runs = [start(command) for command in commands]
    ended = [(run.communicate(timeout=LIMIT)[1], run.returncode) for run in runs]
    done = [n for n, (_, code) in enumerate(ended) if code == 0]
    assert done, ended
    for error, code in ended:
        assert code in (0, 2)
        assert error.count("cec-mpi: error: ") == (code == 2)
        if code == 2:
            assert any(text in error for text in ("another run", "holds results")), error
    for n in done:
        out = tmp_path / (f"out{n}" if accept else "out")
        assert json.loads((out / "summary.json").read_text())["steps"] == 200
    assert not (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob(".*lock"))
