"""Runs that end early and are resumed: killed, out of time, out of machines."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from contextlib import suppress

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.commands import count_steps, job_exit_code
from helpers.processes import ranks_of
from helpers.waiting import LIMIT, wait_for_file, wait_until


@pytest.fixture(scope="module")
def slow_store(make_store):
    """Symmetric, and power iteration takes some 150 steps."""
    rng = np.random.default_rng(6)
    basis, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    values = np.append(np.linspace(0, 9, 59), 10)
    return make_store(basis * values @ basis.T, 3, 2)


SLOWLY = ("--emulate-speeds", "2,3,4", "--emulate-base", 40)  # 0.2 s a step, 150 steps


@pytest.fixture
def only(tmp_path):
    """Options that end a run after some steps, with a checkpoint: too few machines remain."""

    def only(steps):
        (tmp_path / "only.json").write_text(json.dumps({"available": [[1, 2, 3]] * steps + [[1]]}))
        return "--availability", tmp_path / "only.json"

    return only


def wait_for_steps(process, out, steps):
    wait_until(lambda: count_steps(out) >= steps, process)


def test_a_killed_run_is_resumed_with_other_machines(start, cec, slow_store, tmp_path):
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power", "tol=1e-9"]
    words += ["--checkpoint-every", 5]
    command = ["mpirun", "-n", 4, "cec-mpi", *words, *SLOWLY]
    process = start(command)
    wait_for_steps(process, out, 8)
    process.terminate()
    process.wait(timeout=LIMIT)
    assert (out / "checkpoint.npz").exists()
    assert not (out / "summary.json").exists()
    before = count_steps(out)

    refused = cec(*words, "--serial")
    assert refused.returncode == 2
    assert "--resume" in refused.errors

    done = cec(*words, "--resume", "--machines", "2,3", ranks=3)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["converged"]
    assert summary["eigenvalue"] == pytest.approx(10, rel=1e-12)
    assert not (out / "checkpoint.npz").exists()
    _, steps = read_steps(out / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert summary["steps"] == len(steps) > before
    # Steps before the last checkpoint are not repeated.
    alone = cec(*words[:3], tmp_path / "alone", *words[4:], "--serial")
    assert alone.returncode == 0
    expected = json.loads((tmp_path / "alone" / "summary.json").read_text())
    assert summary["iterations"] == expected["iterations"]
    assert len(steps) <= expected["steps"] + 5 + 1
    np.testing.assert_allclose(
        np.load(out / "result.npy"), np.load(tmp_path / "alone" / "result.npy"), atol=1e-9
    )


@pytest.mark.needs("openmpi")  # its mpirun drops the output of ranks while it ends
@pytest.mark.parametrize("end", ["ctrl-c", "a lost machine"])
def test_the_terminal_shows_how_to_continue(start, slow_store, tmp_path, end):
    out = tmp_path / "out"
    words = ["cec-mpi", "run", slow_store.path, "power", "--out", out, "--checkpoint-every", 5]
    line = shlex.join(map(str, ["exec", "mpirun", "-n", 4, *words, *SLOWLY]))
    process = start(["script", "-qec", line, "/dev/null"], stdin=subprocess.PIPE)
    wait_for_steps(process, out, 8)
    if end == "ctrl-c":
        process.stdin.write("\x03")
        process.stdin.flush()
    else:
        ranks_of(process)[3].kill()
    text = process.communicate(timeout=LIMIT)[0]
    assert f"has a checkpoint in {out}: the same command with --resume continues" in text
    assert "mpirun --with-ft ulfm with --elastic" in text


@pytest.mark.any_mpi
def test_a_killed_run_is_not_resumed_from_the_run_that_it_overwrote(
    start, cec, slow_store, tmp_path, only
):
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power"]
    stopped = cec(*words, *only(20), "--serial")
    assert stopped.returncode == 4
    process = start(["cec-mpi", *words, *SLOWLY, "--serial", "--overwrite"])
    wait_for_file(out / ".earlier" / "steps.jsonl", process=process)
    wait_for_steps(process, out, 1)
    process.kill()
    process.wait(timeout=LIMIT)
    assert not (out / "checkpoint.npz").exists()
    done = cec(*words, "--resume", "--serial")
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "summary.json").read_text())["steps"] == count_steps(out)
    assert not (out / ".earlier").exists()


@pytest.mark.any_mpi
@pytest.mark.parametrize("by", ["option", "end of a Slurm job"])
def test_a_time_limit_leaves_a_checkpoint_and_code_6(cec, slow_store, tmp_path, by):
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power", "tol=1e-9", "--serial"]
    if by == "option":
        stopped = cec(*words, *SLOWLY, "--time-limit", 2)
        message = "time limit of 2 seconds"
    else:
        end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 3)}
        stopped = cec(*words, *SLOWLY, variables=end)
        message = "time limit of the job is near"
    assert stopped.returncode == 6
    assert stopped.errors.count("cec-mpi: error:") == 1
    assert message in stopped.errors
    assert "--resume continues" in stopped.errors
    steps = count_steps(out)
    assert 0 < steps < 100
    done = cec(*words, "--resume")
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["converged"]
    assert summary["steps"] > steps


def warn_launcher(process):
    process.send_signal(signal.SIGUSR1)  # mpirun passes it on to all ranks


def warn_master_last(process):
    """As a batch system whose signal reaches the first node last."""
    ranks = ranks_of(process)
    master = ranks.pop(0)
    for rank in ranks.values():
        rank.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    master.send_signal(signal.SIGTERM)


def warn_all_twice(process):
    """As a batch system that sends a warning and then ends the job."""
    ranks = ranks_of(process).values()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        for rank in ranks:
            rank.send_signal(number)


@pytest.mark.parametrize(
    ("warn", "name", "how"),
    [
        pytest.param(warn_launcher, "SIGUSR1", (), marks=pytest.mark.needs("code after a signal")),
        (warn_master_last, "SIGTERM", ()),
        # Python may see the second signal first, if it comes while the first one is handled.
        (warn_all_twice, "SIGUSR1|SIGTERM", ()),
        (warn_all_twice, "SIGUSR1|SIGTERM", ["--elastic"]),
    ],
)
def test_a_signal_leaves_a_checkpoint_and_code_6(start, cec, slow_store, tmp_path, warn, name, how):
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power", "tol=1e-9"]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words, *SLOWLY, *how])
    wait_for_steps(process, out, 3)
    warn(process)
    _, stderr = process.communicate(timeout=LIMIT)
    assert job_exit_code(process.returncode, stderr) == 6, stderr
    assert stderr.count("cec-mpi: error: ") == 1
    assert re.search(f"stopped by the signal ({name}), after ", stderr)
    assert "--resume continues" in stderr
    assert "Traceback" not in stderr
    before = count_steps(out)
    done = cec(*words, "--resume", "--serial")
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["converged"]
    assert summary["steps"] == summary["iterations"] > before  # no step is repeated


def test_a_signal_to_a_machine_does_not_end_the_run(start, small_store, endless_task, tmp_path):
    out = tmp_path / "out"
    words = ["run", small_store.path, "--out", out, *endless_task.words(small_store)]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words])
    wait_for_steps(process, out, 5)
    ranks = ranks_of(process)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
        ranks[2].send_signal(number)
        wait_for_steps(process, out, count_steps(out) + 5)
    endless_task.stop()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    assert json.loads((out / "summary.json").read_text())["wrong"] == 0


@pytest.mark.any_mpi
def test_an_elastic_run_writes_a_checkpoint_every_minute(cec, small_store, tmp_path):
    task = "def shown(X, *, checkpoint):\n    print(checkpoint)\n    return {'result': [1]}\n"
    (tmp_path / "own.py").write_text(task)
    done = cec("run", small_store.path, "own:shown", "--out", "out", "--local", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "written every 60 s>" in done.stdout


@pytest.mark.any_mpi
def test_a_second_sigterm_is_not_an_error_of_the_task(run, slow_store, tmp_path):
    task = "import signal\n\ndef mine(X, *, checkpoint):\n"
    (tmp_path / "own.py").write_text(task + 2 * "    signal.raise_signal(signal.SIGTERM)\n")
    words = ["run", slow_store.path, "--out", tmp_path / "out", "own:mine", "--serial"]
    done = run(["cec-mpi", *words], cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == ""


@pytest.mark.any_mpi
def test_a_signal_ends_a_run_that_waits_for_machines(start, slow_store, tmp_path):
    ticks = [[1, 2, 3], *([[1]] * 1000), [1, 2, 3]]
    (tmp_path / "a.json").write_text(json.dumps({"available": ticks}))
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power", "--serial", *SLOWLY]
    words += ["--availability", tmp_path / "a.json", "--wait", "--tick", 1]
    process = start(["cec-mpi", *words])
    wait_for_steps(process, out, 1)
    time.sleep(1.5)
    before = count_steps(out)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=LIMIT) == 6
    assert count_steps(out) == before
    assert (out / "checkpoint.npz").exists()


def test_a_second_sigterm_ends_a_run_at_once(start, slow_store, tmp_path):
    """The first step does not end: machine 3 suspends itself."""
    out = tmp_path / "out"
    words = ["run", slow_store.path, "--out", out, "power", "--inject", "stop:3@0"]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words])
    wait_for_file(out / "logs" / "machine-0003.log", "stop, injected", process)
    master = ranks_of(process)[0]
    master.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None

    def has_ended():  # signals that arrive together count as one
        with suppress(psutil.NoSuchProcess):
            master.send_signal(signal.SIGTERM)
        return process.poll() is not None

    wait_until(has_ended)
    assert process.returncode not in (0, 6)


@pytest.mark.any_mpi
def test_a_run_with_a_damaged_checkpoint_resumes_from_the_previous_one(cec, large_store, tmp_path):
    W = np.random.default_rng(7).standard_normal((60, 12))
    np.save(tmp_path / "W.npy", W)
    ticks = [[1, 2, 3, 4, 5, 6]] * 25 + [[1]]
    (tmp_path / "a.json").write_text(json.dumps({"available": ticks}))
    out = tmp_path / "out"
    words = ["run", large_store.path, "--out", out, f"vectors={tmp_path / 'W.npy'}", "--serial"]
    words += ["--checkpoint-every", 10]
    assert cec(*words, "--availability", tmp_path / "a.json").returncode == 4
    content = bytearray((out / "checkpoint.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (out / "checkpoint.npz").write_bytes(content)
    done = cec(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert done.errors.count("cec-mpi: warning: ") == 1
    for shown in done.errors, (out / "logs" / "master.log").read_text():
        assert f"{out / 'checkpoint.npz'} cannot be read as a checkpoint" in shown
        assert "continues from checkpoint.previous.npz" in shown
    assert not list(out.glob("checkpoint*"))
    np.testing.assert_allclose(np.load(out / "result.npy"), W @ large_store.X.T, atol=1e-11)
    _, steps = read_steps(out / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(25 + 60 - 20))
    assert json.loads((out / "summary.json").read_text())["steps"] == len(steps)
