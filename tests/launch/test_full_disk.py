"""A disk that is full for logs, records or results: one message, the right code, nothing lost."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = [pytest.mark.needs("mounts"), pytest.mark.any_mpi]

SMALL = "small"  # where the small disk is
FILLS = """
import os, numpy as np
def fills(X, *, checkpoint):
    y = X @ np.ones(X.shape[1])
    for n in range(os.statvfs("small").f_ffree - 1):
        open(f"small/{n}", "x").close()
    return {"result": y}
"""  # a task that leaves room for one more file, its result


@pytest.fixture
def files(small_store, tmp_path):
    """Vectors, and a place for the disk."""
    for name, steps in (("few", 3), ("many", 120)):
        np.save(tmp_path / f"{name}.npy", np.ones((steps, small_store.columns)))
    (tmp_path / SMALL).mkdir()
    return tmp_path


@pytest.fixture
def on_small_disk(run, files, small_store):
    """Run lines of shell where ``small`` is a disk of so many bytes; CEC is a run on it."""

    def on_small_disk(size, *lines, ranks=4):
        launcher = f"mpirun -n {ranks} " if ranks else ""
        serial = "" if ranks else "--serial"
        text = f"""
            mount -t tmpfs -o size={size} none {SMALL}
            fill() {{ head -c "$1" /dev/zero > {SMALL}/fill; }}
            cec() {{ {launcher}cec-mpi run {small_store.path} --out {SMALL}/out {serial} "$@"; }}
            code=0
            {"; ".join(lines)}
            cp -a {SMALL} kept
            exit $code"""
        return run(["unshare", "--mount", "bash", "-c", text], cwd=files)

    return on_small_disk


def out_of(files):
    return files / "kept" / "out"


def test_no_space_for_records_in_mid_run(on_small_disk, files):
    done = on_small_disk("60k", "cec vectors=many.npy || code=$?", ranks=0)
    assert done.returncode == 3
    assert done.errors == (
        f"cec-mpi: error: {SMALL}/out/steps.jsonl cannot be written: No space left on device"
    )
    assert "matvec ended early: " in done.stdout
    assert (out_of(files) / "steps.jsonl").stat().st_size > 1000


def test_no_space_for_the_result(on_small_disk, files):
    done = on_small_disk("24k", "cec vectors=many.npy || code=$?", ranks=0)
    assert done.returncode == 2
    assert done.errors == (
        f"cec-mpi: error: {SMALL}/out/result.npy cannot be written: No space left on device"
    )
    assert done.stdout == ""
    assert not out_of(files).exists()


def test_no_space_for_logs(on_small_disk, files):
    lines = ["mkdir -p small/out/logs", "mount -t tmpfs -o size=4k none small/out/logs"]
    lines += ["head -c 4096 /dev/zero > small/out/logs/fill", "cec vectors=few.npy || code=$?"]
    done = on_small_disk("1m", *lines)
    assert done.returncode == 3
    assert done.errors.startswith(f"cec-mpi: error: {SMALL}/out/logs/machine-0001.log cannot be ")
    assert done.errors.count("\n") == 0
    assert done.stdout == ""
    assert not (out_of(files) / "result.npy").exists()


def test_results_of_an_earlier_run_stay_in_mid_run_too(on_small_disk, files):
    lines = ["cec vectors=few.npy", "fill 16k", "cec vectors=many.npy --overwrite || code=$?"]
    done = on_small_disk("88k", *lines, ranks=0)
    assert done.returncode == 3
    assert f"{SMALL}/out/steps.jsonl cannot be written" in done.errors
    assert f"{SMALL}/out: unchanged" in done.stdout
    assert json.loads((out_of(files) / "summary.json").read_text())["steps"] == 3


def test_no_space_for_a_checkpoint_at_a_time_limit(on_small_disk, files):
    (files / "tasks.py").write_text(
        "import numpy as np\n"
        "def big(X, *, checkpoint):\n"
        "    checkpoint.save(state=np.zeros(20_000))\n"
        "    while True:\n"
        "        y = X @ np.ones(X.shape[1])\n"
        "        checkpoint.save(state=np.zeros(20_000))\n"
    )
    slowly = "--emulate-speeds 1,1,1 --emulate-base 105 --time-limit 1"
    line = f"cec tasks:big {slowly} || code=$?"
    done = on_small_disk("80k", line, ranks=0)
    assert done.returncode == 3
    assert done.errors.startswith("cec-mpi: error: stopped after the time limit of 1 second, ")
    assert done.errors.endswith(
        f" but {SMALL}/out/checkpoint.npz cannot be written: No space left on device"
    )
    assert (
        f"{SMALL}/out: no checkpoint was written: --resume starts from the beginning" in done.stdout
    )


def test_no_space_for_an_array_leaves_a_checkpoint_and_no_part_of_the_array(on_small_disk, files):
    (files / "tasks.py").write_text(
        "import numpy as np\n"
        "def big(X, *, checkpoint):\n"
        "    checkpoint.save(state=X @ np.ones(X.shape[1]))\n"
        "    return {'result': np.zeros(20_000)}\n"
    )
    done = on_small_disk("80k", "cec tasks:big || code=$?", ranks=0)
    assert done.returncode == 3
    assert done.errors.startswith(f"cec-mpi: error: {SMALL}/out/result.npy cannot be written: ")
    assert done.errors.count("cec-mpi: error: ") == 1
    assert f"{SMALL}/out: a checkpoint was written: the same command with --resume" in done.stdout
    assert not (out_of(files) / "result.npy").exists()


def test_arrays_stay_where_only_the_summary_has_no_space(on_small_disk, files):
    (files / "tasks.py").write_text(FILLS)
    few = "mount -o remount,nr_inodes=40 small"
    done = on_small_disk("1m", few, "cec tasks:fills || code=$?", ranks=0)
    assert done.returncode == 3
    assert done.errors == (
        f"cec-mpi: error: {SMALL}/out/summary.json cannot be written: No space left on device"
    )
    assert f"{SMALL}/out: result.npy is saved, but not summary.json; " in done.stdout
    assert np.load(out_of(files) / "result.npy").shape == (31,)


def test_results_of_an_earlier_run_give_way_to_the_summary(on_small_disk, files):
    (files / "tasks.py").write_text(FILLS)
    lines = ["cec vectors=few.npy", "mount -o remount,nr_inodes=40 small"]
    lines += ["cec tasks:fills --overwrite || code=$?"]
    done = on_small_disk("1m", *lines, ranks=0)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out_of(files) / "summary.json").read_text())
    assert summary["task"] == "tasks:fills"


@pytest.mark.parametrize("files_more", [1, 16])
def test_encode_names_the_store_that_has_no_space(run, files, files_more):
    text = f"""
        mount -t tmpfs -o nr_inodes={1 + files_more} none {SMALL}
        cec-mpi encode few.npy {SMALL}/store --machines 3 --recovery 2"""
    done = run(["unshare", "--mount", "bash", "-c", text], cwd=files)
    assert done.returncode == 2
    assert done.errors.startswith(f"cec-mpi: error: {SMALL}/store cannot be written: No space ")
    assert done.errors.count("cec-mpi: error: ") == 1


def test_a_directory_that_cannot_be_written(on_small_disk):
    lines = ["mkdir -p small/out/logs", "mount -o remount,ro small"]
    done = on_small_disk("1m", *lines, "cec vectors=few.npy || code=$?", ranks=0)
    assert done.returncode == 2
    problem = "cannot be used for results: it cannot be written"
    assert done.errors == f"cec-mpi: error: {SMALL}/out {problem}"
