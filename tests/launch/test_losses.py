"""Elastic runs continue when processes die, hang or get a signal."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers import ROOT
from helpers.commands import count_steps
from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill
from helpers.processes import local_machines, processes_of, ranks_of
from helpers.waiting import LIMIT, wait_for_file, wait_until

SLOWLY = ("--emulate-speeds", "1,1,1,1", "--emulate-base", 3000)  # a machine can join in time
ulfm = pytest.mark.needs("ulfm")
local_and_launched = pytest.mark.parametrize(
    "launched",
    [pytest.param(False, marks=pytest.mark.any_mpi), pytest.param(True, marks=ulfm)],
    ids=["local", "launched"],
)


def starting(launched, machines):
    """Return the launcher and the options of a run on this number of machines."""
    if launched:
        return [*continuing_mpirun(), "-n", machines + 1], ["--elastic"]
    return [], ["--local", machines]


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def multiply(run, store, tmp_path):
    """Multiply thirty vectors; check the products and the files in the directory of the run."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, machines=4, launched=False, code=0):
        out, (launcher, how) = tmp_path / "out", starting(launched, machines)
        words = ["cec-mpi", "run", store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        words += ["--speeds", "1,1,1,1"]  # with learned ones a machine may have no rows
        done = run([*launcher, *words, *how, *options])
        assert done.returncode == (exit_code_after_kill(code) if launched else code), done.stderr
        if not code:
            assert np.allclose(np.load(out / "result.npy"), W @ store.X.T, atol=1e-10)
            assert {file.name for file in out.iterdir()} == {
                *("logs", "result.npy", "steps.jsonl", "summary.json")
            }
        assert not (out / "connection.json").exists()
        return done

    return multiply


def events(out):
    _, steps = read_steps(out / "steps.jsonl")
    return [(step["step"], event) for step in steps for event in step["events"]]


# --- killed -----------------------------------------------------------------------------------


@local_and_launched
def test_killed_machines_have_no_rows_from_the_step_in_which_they_die(multiply, tmp_path, launched):
    done = multiply("--inject", "kill:1@10,kill:3@20", launched=launched)
    assert done.errors.splitlines() == [
        "cec-mpi: warning: machines 1 and 3 were lost. The results are complete. The reason is in "
        f"{tmp_path}/out/logs/master.log"
    ]
    found = events(tmp_path / "out")
    assert sorted((step, event["lost"]) for step, event in found) == [(10, 1), (20, 3)]
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[10]["available"] == [1, 2, 3, 4]
    assert steps[10]["rows"][0] == 0
    assert sum(steps[10]["rows"]) == 2 * 300
    assert steps[-1]["available"] == [2, 4]


@local_and_launched
def test_too_few_machines_leave_a_checkpoint_and_code_4(multiply, tmp_path, launched):
    kills = "kill:1@5,kill:2@10,kill:3@12"
    options = ("--checkpoint-every", 4, "--inject", kills)
    done = multiply(*options, launched=launched, code=4)
    assert done.errors.count("cec-mpi: error: ") == 1
    assert "cec-mpi: error: step 12 cannot be completed: 1 machine remains (4)" in done.errors
    assert (tmp_path / "out" / "checkpoint.npz").exists()
    if not launched:
        multiply("--checkpoint-every", 4, "--resume", "--machines", "2,3", machines=2)


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    "way", ["local", pytest.param("mpirun", marks=pytest.mark.needs("openmpi"))]
)
def test_a_run_survives_a_signal_at_a_random_moment(run, way):
    """A short run of the campaign in scripts."""
    script = ROOT / "scripts" / "campaigns" / "chaos.py"
    words = ["--seed", 5, "--runs", 1, "--ways", way, "--most", 1]
    done = run([sys.executable, script, *words])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " runs: 0 problems\n" in done.stdout


@local_and_launched
def test_machines_leave_when_the_master_is_killed(start, run, store, tmp_path, launched):
    np.save(tmp_path / "W.npy", np.ones((200, 60)))
    out, (launcher, how) = tmp_path / "out", starting(launched, 4)
    words = ["cec-mpi", "run", store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
    words += ["--checkpoint-every", 5, *how]
    process = start([*launcher, *words, *SLOWLY])
    wait_for_file(out / "checkpoint.npz", process=process)
    processes = processes_of(process)
    processes[0].kill()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    message = "cec-mpi: error: the connection to the master has ended\n"
    assert launched <= stderr.count(message) <= 2 * launched, stderr  # of the first two ranks
    assert stderr.count(message) == stderr.count("cec-mpi: error: ")
    assert not psutil.wait_procs(list(processes.values()), timeout=LIMIT)[1]
    if not launched:
        resumed = run([*words, "--resume"])
        assert resumed.returncode == 0, resumed.stderr
        assert np.allclose(np.load(out / "result.npy"), np.ones((200, 60)) @ store.X.T)
        assert not (out / "connection.json").exists()


# --- stopped, continued, ended by a signal ----------------------------------------------------


@pytest.fixture
def start_endless(start, store, endless_task, tmp_path):
    """Start a run of the endless task: its process, and a function that waits for its steps."""

    def start_endless(*options, launcher=(), how=("--local", 4), variables=None):
        words = ["cec-mpi", "run", store.path, "--out", "out", *endless_task.words(store)]
        process = start([*launcher, *words, *how, *SLOWLY, *options], variables=variables)

        def await_steps(condition):
            out = tmp_path / "out"
            wait_until(
                lambda: count_steps(out) and condition(read_steps(out / "steps.jsonl")[1]), process
            )

        return process, await_steps

    return start_endless


def assert_right(out):
    assert json.loads((out / "summary.json").read_text())["wrong"] == 0
    assert not (out / "connection.json").exists()


@pytest.mark.any_mpi
def test_lost_and_suspended_machines_come_back_or_are_given_up(
    start_endless, start, endless_task, tmp_path
):
    process, await_steps = start_endless("--deadline", 0.5)
    await_steps(lambda steps: {1, 2, 3, 4} == set(steps[-1]["available"]))
    killed, _, suspended, silent = local_machines(process.pid)
    killed.kill()
    await_steps(lambda steps: 1 not in steps[-1]["available"])
    joined = start(["cec-mpi", "join", "out/connection.json"])
    await_steps(lambda steps: 1 in steps[-1]["available"])
    suspended.suspend()
    await_steps(lambda steps: 3 not in steps[-1]["available"])
    suspended.resume()
    await_steps(lambda steps: 3 in steps[-1]["available"])
    silent.suspend()
    await_steps(lambda steps: any("given up" in event for s in steps for event in s["events"]))
    endless_task.stop()
    assert process.wait(LIMIT) == joined.wait(LIMIT) == 0
    found = [event for _, event in events(tmp_path / "out")]
    assert {"late": 3} in found
    assert [set(event) for event in found if 4 in event.values()][-2:] == [
        {"late"},
        {"given up", "reason"},
    ]
    assert_right(tmp_path / "out")


@pytest.mark.any_mpi
def test_a_run_continues_after_suspensions_longer_than_the_heartbeat_timeout(
    start_endless, start, endless_task, tmp_path
):
    """Machines connect over TCP by an address and a key, without a connection file."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    key = {"CEC_MPI_KEY": "0123456789abcdef"}
    process, await_steps = start_endless("--listen", address, how=("--local", 3), variables=key)
    joined = start(["cec-mpi", "join", address, "--retry", LIMIT], variables=key)
    await_steps(lambda steps: len(steps[-1]["available"]) == 4)
    master, machine = psutil.Process(process.pid), local_machines(process.pid)[1]
    machine.suspend()
    master.suspend()
    time.sleep(12)
    master.resume()
    await_steps(lambda steps: 2 not in steps[-1]["available"])
    machine.resume()
    await_steps(lambda steps: len(steps[-1]["available"]) == 4)
    endless_task.stop()
    assert process.wait(LIMIT) == joined.wait(LIMIT) == 0
    assert_right(tmp_path / "out")
    assert not (tmp_path / "conn").exists()


def test_signals_to_launched_machines_make_them_leave_without_an_error(
    start_endless, endless_task, tmp_path
):
    process, await_steps = start_endless(launcher=["mpirun", "-n", 6], how=["--elastic"])
    await_steps(lambda steps: 4 in steps[-1]["available"])
    ranks = ranks_of(process)
    ranks[4].send_signal(signal.SIGTERM)
    await_steps(lambda steps: any("joined" in event for s in steps for event in s["events"]))
    wait_until(lambda: has_exited(ranks[4]))
    ranks[2].send_signal(signal.SIGUSR1)
    await_steps(lambda steps: 2 not in steps[-1]["available"])
    endless_task.stop()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    assert "cec-mpi: error: " not in stderr
    gone = [event["left"] for _, event in events(tmp_path / "out") if "left" in event]
    assert gone == [4, 2]
    assert_right(tmp_path / "out")


def has_exited(process):
    """Return whether it has exited; Intel's launcher reads exit codes only at the end."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- programs ---------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
import cec_mpi

with cec_mpi.open_operator(sys.argv[1], accept="conn", inject="kill:2@3,kill:4@6") as X:
    if X is not None:
        w, v = np.ones(60), np.ones(600)
        for _ in range(4):
            X @ w
        u, y = X.H @ v, X @ w
        for _ in range(5):
            error = np.abs(X.H @ v - u).max() + np.abs(X @ w - y).max()
            assert error < 1e-10, error
        np.save("y.npy", X @ w)
print("machine" if X is None else "master", flush=True)
sys.exit(0 if X is None else 5)
"""


@ulfm
def test_a_program_continues_after_losses_and_exits_with_its_own_code(run, store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["python", "program.py", store.path]
    done = run([*continuing_mpirun(), "-n", 6, *words], cwd=tmp_path)
    assert done.returncode == exit_code_after_kill(5), done.stderr
    assert done.stdout.split().count("machine") == 5 - 2
    assert np.allclose(np.load(tmp_path / "y.npy"), store.X @ np.ones(60))
    assert not (tmp_path / "conn").exists()
