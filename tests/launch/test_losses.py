"""Processes that die, hang or get a signal, as on a real cluster: elastic runs continue."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import sys
import time

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers import ROOT
from helpers.commands import steps_of
from helpers.killing import CONTINUING, code_with_kills
from helpers.ranks import machines_here, processes_of, ranks_of
from helpers.waiting import LIMIT, wait_for_file, wait_until

SLOWLY = ("--emulate-speeds", "1,1,1,1", "--emulate-base", 3000)  # who joins has the time
JOINED = {"joined": 3, "rank": 5, "host": socket.gethostname()}  # and its process

ulfm = pytest.mark.needs("ulfm")
anyhow = pytest.mark.parametrize(
    "launched",
    [pytest.param(False, marks=pytest.mark.any_mpi), pytest.param(True, marks=ulfm)],
    ids=["local", "launched"],
)


def started(launched, machines):
    """What comes before cec-mpi, and the option of a run, for so many machines."""
    if launched:
        return [*CONTINUING, "-n", machines + 1], ["--elastic"]
    return [], ["--local", machines]


@pytest.fixture(scope="module")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def multiply(run, store, tmp_path):
    """Thirty products; the results are looked at, and that nothing else is left."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, machines=4, launched=False, code=0, **variables):
        out, (before, how) = tmp_path / "out", started(launched, machines)
        words = ["cec-mpi", "run", store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        words += ["--speeds", "1,1,1,1"]  # with learned ones a machine may have no rows
        done = run([*before, *words, *how, *options], variables=variables)
        killed = launched and ("kill:" in f"{options}" or "stop:" in f"{options}")
        assert done.returncode == (code_with_kills(code) if killed else code), done.stderr
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


@anyhow
def test_killed_machines_are_left_out_from_the_very_step(multiply, tmp_path, launched):
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


@pytest.mark.any_mpi
def test_a_spare_takes_the_number_of_a_lost_machine(multiply, tmp_path):
    multiply("--inject", "kill:3@5", *SLOWLY, machines=5)
    found = [event for _, event in events(tmp_path / "out")]
    assert [set(event) for event in found] == [
        {"lost", "reason"},
        {"joined", "rank", "host", "pid"},
    ]
    assert found[1].items() >= JOINED.items()
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[-1]["available"] == [1, 2, 3, 4]
    assert "machine 3 on" in (tmp_path / "out" / "logs" / "machine-0003.log").read_text()


@anyhow
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
def test_random_signals(run):
    """A short run of the campaign in scripts."""
    script = ROOT / "scripts" / "campaigns" / "chaos.py"
    words = ["--seed", 5, "--runs", 1, "--ways", "local", "--most", 1]
    done = run([sys.executable, script, *words])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"1 runs: 0 problems\n", done.stdout)


@pytest.mark.any_mpi
@pytest.mark.parametrize(("launched", "seed"), [(False, 0), pytest.param(True, 2, marks=ulfm)])
def test_a_process_that_is_killed_at_any_moment(start, store, tmp_path, launched, seed):
    """From its first line on: a run that loses a machine is right; that of the master ends."""
    random_ = random.Random(seed)
    rank = random_.choice([0, 1, 2, 3])
    W = np.random.default_rng(5).standard_normal((10, 60))
    np.save(tmp_path / "W.npy", W)
    before, how = started(launched, 4)
    words = ["run", store.path, "--out", "out", "vectors=W.npy", "--start-timeout", 20]
    process = start([*before, "cec-mpi", *words, *how])
    processes = wait_until(lambda: rank in (found := processes_of(process)) and found)
    time.sleep(random_.uniform(0.0, 3.0))
    was_there = processes[rank].is_running()
    try:
        processes[rank].kill()
    except psutil.NoSuchProcess:
        was_there = False
    _, stderr = process.communicate(timeout=LIMIT)
    assert stderr.count("Traceback") == 0
    assert stderr.count("cec-mpi: error: ") <= 2  # two ranks say that the master is gone
    if rank or not was_there:
        killed = launched and was_there
        assert process.returncode in {0, code_with_kills(0) if killed else 0}, stderr
        assert np.allclose(np.load(tmp_path / "out" / "result.npy"), W @ store.X.T, atol=1e-10)
        assert not (tmp_path / "out" / "connection.json").exists()
    elif not (tmp_path / "out" / "summary.json").exists():
        assert process.returncode != 0


@anyhow
def test_machines_leave_when_the_master_is_killed(start, run, store, tmp_path, launched):
    np.save(tmp_path / "W.npy", np.ones((200, 60)))
    out, (before, how) = tmp_path / "out", started(launched, 4)
    words = ["cec-mpi", "run", store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
    words += ["--checkpoint-every", 5, *how]
    process = start([*before, *words, *SLOWLY])
    wait_for_file(out / "checkpoint.npz", process=process)
    processes = processes_of(process)
    processes[0].kill()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    message = "cec-mpi: error: the connection to the master has ended\n"
    assert launched <= stderr.count(message) <= 2 * launched, stderr  # the first two ranks say so
    assert stderr.count(message) == stderr.count("cec-mpi: error: ")
    assert not psutil.wait_procs(list(processes.values()), timeout=LIMIT)[1]
    if not launched:
        resumed = run([*words, "--resume"])
        assert resumed.returncode == 0, resumed.stderr
        assert np.allclose(np.load(out / "result.npy"), np.ones((200, 60)) @ store.X.T)
        assert not (out / "connection.json").exists()


# --- stopped, continued, ended by a signal ----------------------------------------------------


@ulfm
def test_a_stopped_machine_is_given_up_and_ended_with_the_run(multiply, tmp_path):
    multiply("--deadline", 3, "--inject", "stop:4@10", launched=True)
    found = [found for found in events(tmp_path / "out") if 4 in found[1].values()]
    assert found[-1] == (10, {"late": 4})


@pytest.fixture
def begun(start, store, endless_task, tmp_path):
    """Start a run of the endless task; its process, and what waits for its steps."""

    def begun(*options, before=(), how=("--local", 4), variables=None):
        words = ["cec-mpi", "run", store.path, "--out", "out", *endless_task.words(store)]
        process = start([*before, *words, *how, *SLOWLY, *options], variables=variables)

        def await_steps(condition):
            out = tmp_path / "out"
            wait_until(
                lambda: steps_of(out) and condition(read_steps(out / "steps.jsonl")[1]), process
            )

        return process, await_steps

    return begun


def assert_right(out):
    assert json.loads((out / "summary.json").read_text())["wrong"] == 0
    assert not (out / "connection.json").exists()


@pytest.mark.any_mpi
def test_a_machine_is_killed_one_wakes_up_and_comes_back_and_one_does_not_and_is_given_up(
    begun, start, endless_task, tmp_path
):
    process, await_steps = begun("--deadline", 0.5)
    await_steps(lambda steps: {1, 2, 3, 4} == set(steps[-1]["available"]))
    killed, _, sleeper, dead = machines_here(process.pid)
    killed.kill()
    await_steps(lambda steps: 1 not in steps[-1]["available"])
    joined = start(["cec-mpi", "join", "out/connection.json"])
    await_steps(lambda steps: 1 in steps[-1]["available"])
    sleeper.suspend()
    await_steps(lambda steps: 3 not in steps[-1]["available"])
    sleeper.resume()
    await_steps(lambda steps: 3 in steps[-1]["available"])
    dead.suspend()
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
def test_a_machine_and_the_master_are_stopped_for_longer_than_heartbeats(
    begun, start, endless_task, tmp_path
):
    """Over TCP, with machines that know an address and a key and no file."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    key = {"CEC_MPI_KEY": "0123456789abcdef"}
    process, await_steps = begun("--listen", place, how=("--local", 3), variables=key)
    joined = start(["cec-mpi", "join", place, "--retry", LIMIT], variables=key)
    await_steps(lambda steps: len(steps[-1]["available"]) == 4)
    master, machine = psutil.Process(process.pid), machines_here(process.pid)[1]
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


def test_a_launched_machine_that_a_signal_ends_is_no_failure(begun, endless_task, tmp_path):
    process, await_steps = begun(before=["mpirun", "-n", 6], how=["--elastic"])
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
    """Also if its launcher has not read its exit code yet: Intel's does so at the end."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.any_mpi
def test_late_machines_without_a_substitute_are_waited_for(run, store, tmp_path):
    """In products with X and, as ridge regression makes them, with its adjoint."""
    y = store.X @ np.ones(60)
    np.save(tmp_path / "y.npy", y)
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "ridge", "alpha=1"]
    words += [f"y={tmp_path / 'y.npy'}", "--local", 2, "--machines", "1,2", "--deadline", 0.02]
    done = run([*words, "--emulate-speeds", "1,1,1,1", "--emulate-base", 5000])
    assert done.returncode == 0, done.stderr
    centred = store.X - store.X.mean(axis=0)
    expected = np.linalg.solve(centred.T @ centred + np.eye(60), centred.T @ (y - y.mean()))
    assert np.allclose(np.load(tmp_path / "out" / "result.npy"), expected, atol=1e-6)


# --- programs ---------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
import cec_mpi

store, given = sys.argv[1], dict(accept=sys.argv[2], inject="kill:2@3,kill:4@6")
with cec_mpi.open_operator(store, **given) as X:
    if X is not None:
        w, v = np.ones(60), np.ones(600)
        for _ in range(4):
            X @ w
        u, y = X.H @ v, X @ w
        for _ in range(5):
            error = np.abs(X.H @ v - u).max() + np.abs(X @ w - y).max()
            assert error < 1e-10, error
        np.save("y.npy", X @ w)
print("right" if X is None else "first", flush=True)
sys.exit(0 if X is None else 5)
"""


@ulfm
def test_a_program_goes_on_after_losses_and_ends_as_it_says(run, store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["python", "program.py", store.path, "conn"]
    done = run([*CONTINUING, "-n", 6, *words], cwd=tmp_path)
    assert done.returncode == code_with_kills(5), done.stderr
    assert done.stdout.split().count("right") == 5 - 2
    assert np.allclose(np.load(tmp_path / "y.npy"), store.X @ np.ones(60))
    assert not (tmp_path / "conn").exists()
