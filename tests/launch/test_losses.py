"""Elastic runs continue when processes die, hang or get a signal."""

from __future__ import annotations

import json
import re
import signal
import sys

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers import ROOT
from helpers.commands import count_steps
from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill
from helpers.processes import find_local_machines, find_ranks
from helpers.waiting import LIMIT, wait_until

SLOW = ("--emulate-speeds", "1,1,1,1", "--emulate-base", 3000)  # a machine can join in time
ulfm = pytest.mark.needs("ulfm")


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def multiply(run, store, tmp_path):
    """Return a function that multiplies thirty vectors, and checks the products and files."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, launched, code=0):
        launcher = [*continuing_mpirun(), "-n", 5] if launched else []
        mode = ["--elastic"] if launched else ["--local", 4]
        out = tmp_path / "out"
        words = ["cec-mpi", "run", store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        words += ["--speeds", "1,1,1,1"]  # with learned speeds a machine may have no rows
        done = run([*launcher, *words, *mode, *options])
        assert done.returncode == (exit_code_after_kill(code) if launched else code), done.stderr
        if not code:
            assert np.allclose(np.load(out / "result.npy"), W @ store.X.T, atol=1e-10)
            assert {file.name for file in out.iterdir()} == {
                *("logs", "result.npy", "steps.jsonl", "summary.json")
            }
        assert not (out / "connection.json").exists()
        return done

    return multiply


def read_events(out):
    _, steps = read_steps(out / "steps.jsonl")
    return [(step["step"], event) for step in steps for event in step["events"]]


# --- killed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "launched",
    [pytest.param(False, marks=pytest.mark.any_mpi), pytest.param(True, marks=ulfm)],
    ids=["local", "launched"],
)
def test_killed_machines_have_no_rows_from_the_step_in_which_they_die(multiply, tmp_path, launched):
    done = multiply("--inject", "kill:1@10,kill:3@20", launched=launched)
    assert done.errors.splitlines() == [
        "cec-mpi: warning: machines 1 and 3 were lost. The results are complete. The reason is in "
        f"{tmp_path}/out/logs/master.log"
    ]
    found = read_events(tmp_path / "out")
    assert sorted((step, event["lost"]) for step, event in found) == [(10, 1), (20, 3)]
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[10]["available"] == [1, 2, 3, 4]
    assert steps[10]["rows"][0] == 0
    assert sum(steps[10]["rows"]) == 2 * 300
    assert steps[-1]["available"] == [2, 4]


@ulfm
def test_too_few_machines_leave_a_checkpoint_and_code_4(multiply, tmp_path):
    kills = "kill:1@5,kill:2@10,kill:3@12"
    done = multiply("--checkpoint-every", 4, "--inject", kills, launched=True, code=4)
    assert done.errors.count("cec-mpi: error: ") == 1
    assert "cec-mpi: error: step 12 cannot be completed: 1 machine remains (4)" in done.errors
    assert (tmp_path / "out" / "checkpoint.npz").exists()


@pytest.mark.any_mpi
def test_a_run_survives_a_signal_at_a_random_moment(run):
    """A short run of the campaign in scripts."""
    script = ROOT / "scripts" / "campaigns" / "chaos.py"
    words = ["--seed", 5, "--runs", 1, "--modes", "local", "--max-signals", 1]
    done = run([sys.executable, script, *words])
    assert done.returncode == 0, done.stdout + done.stderr
    # A run that the signal ends is resumed by another one.
    assert re.search(r"^1 tasks, [1-9]\d* runs: 0 problems$", done.stdout, re.MULTILINE)


@pytest.fixture
def start_endless(start, store, endless_task, tmp_path):
    """Return a function that starts the endless task and returns process and `await_steps`."""

    def start_endless(launcher, *options):
        words = ["cec-mpi", "run", store.path, "--out", "out", *endless_task.prepare(store)]
        process = start([*launcher, *words, *SLOW, *options])

        def await_steps(condition):
            out = tmp_path / "out"
            wait_until(
                lambda: count_steps(out) and condition(read_steps(out / "steps.jsonl")[1]), process
            )

        return process, await_steps

    return start_endless


@ulfm
def test_machines_leave_when_the_master_is_killed(start_endless):
    process, await_steps = start_endless([*continuing_mpirun(), "-n", 5], "--elastic")
    await_steps(lambda steps: len(steps) > 5)
    ranks = find_ranks(process)
    ranks[0].kill()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    message = "cec-mpi: error: the connection to the master has ended\n"
    assert 1 <= stderr.count(message) <= 2, stderr  # of the first two ranks
    assert stderr.count(message) == stderr.count("cec-mpi: error: ")
    assert not psutil.wait_procs(list(ranks.values()), timeout=LIMIT)[1]


# --- stopped, continued, ended by a signal ----------------------------------------------------


def check_results(out):
    assert json.loads((out / "summary.json").read_text())["wrong"] == 0
    assert not (out / "connection.json").exists()


@pytest.mark.any_mpi
def test_lost_and_suspended_machines_come_back_or_are_unresponsive(
    start_endless, start, endless_task, tmp_path
):
    process, await_steps = start_endless((), "--local", 4, "--deadline", 0.5)
    await_steps(lambda steps: {1, 2, 3, 4} == set(steps[-1]["available"]))
    killed, _, suspended, silent = find_local_machines(process.pid)
    killed.kill()
    await_steps(lambda steps: 1 not in steps[-1]["available"])
    joined = start(["cec-mpi", "join", "out/connection.json"])
    await_steps(lambda steps: 1 in steps[-1]["available"])
    suspended.suspend()
    await_steps(lambda steps: 3 not in steps[-1]["available"])
    suspended.resume()
    await_steps(lambda steps: 3 in steps[-1]["available"])
    silent.suspend()
    await_steps(lambda steps: any("unresponsive" in event for s in steps for event in s["events"]))
    endless_task.stop()
    assert process.wait(LIMIT) == joined.wait(LIMIT) == 0
    found = [event for _, event in read_events(tmp_path / "out")]
    assert {"late": 3} in found
    assert [set(event) for event in found if 4 in event.values()][-2:] == [
        {"late"},
        {"unresponsive", "reason"},
    ]
    check_results(tmp_path / "out")


def test_signals_to_launched_machines_make_them_leave_without_an_error(
    start_endless, endless_task, tmp_path
):
    process, await_steps = start_endless(["mpirun", "-n", 6], "--elastic")
    await_steps(lambda steps: 4 in steps[-1]["available"])
    ranks = find_ranks(process)
    ranks[4].send_signal(signal.SIGTERM)
    await_steps(lambda steps: any("joined" in event for s in steps for event in s["events"]))
    wait_until(lambda: has_exited(ranks[4]))
    ranks[2].send_signal(signal.SIGUSR1)
    await_steps(lambda steps: 2 not in steps[-1]["available"])
    endless_task.stop()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    assert "cec-mpi: error: " not in stderr
    left = [event["left"] for _, event in read_events(tmp_path / "out") if "left" in event]
    assert left == [4, 2]
    check_results(tmp_path / "out")


def has_exited(process):
    """Return whether a process has exited; Intel's launcher reads exit codes only at the end."""
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
