"""A disk that is full for logs, records or results: one message, the right code, nothing lost."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

pytestmark = [pytest.mark.needs("mounts"), pytest.mark.any_mpi]

TASKS = """
import os
import signal
import numpy as np

def large_state(X, *, checkpoint):
    checkpoint.save(state=X @ np.ones(X.shape[1]))
    checkpoint.save(state=np.zeros(20_000))
    os.kill(os.getpid(), signal.SIGTERM)
    X @ np.ones(X.shape[1])

def large_result(X, *, checkpoint):
    checkpoint.save(state=X @ np.ones(X.shape[1]))
    return {"result": np.zeros(20_000)}

def many_files(X, *, checkpoint):
    "Leave room for one more file."
    y = X @ np.ones(X.shape[1])
    for n in range(os.statvfs("small").f_ffree - 1):
        open(f"small/{n}", "x").close()
    return {"result": y}
"""
FEW_FILES = "mount -o remount,nr_inodes=40 small"


@pytest.fixture
def directory(small_store, tmp_path):
    """A directory with vectors, tasks, and a mount point for the disk."""
    for name, steps in (("few", 3), ("many", 120)):
        np.save(tmp_path / f"{name}.npy", np.ones((steps, small_store.columns)))
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "small").mkdir()
    return tmp_path


@pytest.fixture
def run_on_small_disk(run, directory, small_store):
    """Run shell commands with a disk of this size at ``small`` and a run on it as ``cec``."""

    def run_on_small_disk(size, *lines, ranks=0):
        launcher, serial = (f"mpirun -n {ranks}", "") if ranks else ("", "--serial")
        text = f"""
            mount -t tmpfs -o size={size} none small
            fill() {{ head -c "$1" /dev/zero > "$2"; }}
            cec() {{ {launcher} cec-mpi run {small_store.path} --out small/out {serial} "$@"; }}
            {"; ".join(lines)}
            code=$?
            cp -a small kept
            exit $code"""
        return run(["unshare", "--mount", "bash", "-c", text], cwd=directory)

    return run_on_small_disk


NO_SPACE = "cannot be written: No space left on device"
# Size of the disk, commands, exit code, message, output.
CASES = {
    "records": (
        "60k",
        ["cec vectors=many.npy"],
        3,
        f"small/out/steps.jsonl {NO_SPACE}",
        "matvec ended early: ",
    ),
    "records of a run that replaces an earlier one": (
        "88k",
        ["cec vectors=few.npy", "fill 16k small/fill", "cec vectors=many.npy --overwrite"],
        3,
        f"small/out/steps.jsonl {NO_SPACE}",
        "small/out: unchanged",
    ),
    "products": ("24k", ["cec vectors=many.npy"], 2, f"small/out/result.npy {NO_SPACE}", ""),
    "a checkpoint at a signal": (
        "80k",
        ["cec tasks:large_state"],
        3,
        f"stopped by the signal SIGTERM, after 1 step, but small/out/checkpoint.npz {NO_SPACE}",
        "small/out: no checkpoint was written: --resume starts from the beginning",
    ),
    "a result after a checkpoint": (
        "80k",
        ["cec tasks:large_result"],
        3,
        "small/out/result.npy cannot be written: .*",
        "small/out: a checkpoint was written: to continue, run the same command with --resume",
    ),
    "the summary": (
        "1m",
        [FEW_FILES, "cec tasks:many_files"],
        3,
        f"small/out/summary.json {NO_SPACE}",
        "small/out: result.npy is saved, but not summary.json; ",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_gives_one_message_and_loses_no_result(run_on_small_disk, directory, case):
    size, lines, code, message, printed = CASES[case]
    done = run_on_small_disk(size, *lines)
    assert done.returncode == code
    assert re.fullmatch(f"cec-mpi: error: {message}", done.errors)
    assert printed in done.stdout
    out = directory / "kept" / "out"
    assert out.exists() == bool(printed)
    assert (out / "result.npy").exists() == case.startswith(("records", "the summary"))
    if "unchanged" in printed:
        assert json.loads((out / "summary.json").read_text())["steps"] == 3


def test_earlier_results_are_removed_to_make_space_for_the_summary(run_on_small_disk, directory):
    lines = ["cec vectors=few.npy", FEW_FILES, "cec tasks:many_files --overwrite"]
    done = run_on_small_disk("1m", *lines)
    assert done.returncode == 0, done.stderr
    summary = json.loads((directory / "kept" / "out" / "summary.json").read_text())
    assert summary["task"] == "tasks:many_files"


def test_a_rank_without_space_for_its_log_ends_the_run(run_on_small_disk):
    lines = ["mkdir -p small/out/logs", "mount -t tmpfs -o size=4k none small/out/logs"]
    lines += ["fill 4096 small/out/logs/fill", "cec vectors=few.npy"]
    done = run_on_small_disk("1m", *lines, ranks=4)
    assert (done.returncode, done.stdout) == (3, "")
    message = r"cec-mpi: error: small/out/logs/machine-0001.log cannot be written: .*"
    assert re.fullmatch(message, done.errors)


def test_a_read_only_directory_is_refused(run_on_small_disk):
    done = run_on_small_disk("1m", "mount -o remount,ro small", "cec vectors=few.npy")
    assert done.returncode == 2
    problem = "cannot be used for results: Read-only file system"
    assert done.errors == f"cec-mpi: error: small/out {problem}"
