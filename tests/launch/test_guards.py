"""Ranks on nodes that differ or have few cores: one message with the remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

import cec_mpi


@pytest.fixture
def words(small_store, tmp_path):
    """The command of a short run on a store of three machines."""
    np.save(tmp_path / "W.npy", np.ones((3, small_store.columns)))
    options = ["--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}"]
    return ["cec-mpi", "run", small_store.path, *options]


def only_error(done):
    """Return the only message of a command that ended with code 2."""
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.errors.splitlines() if line.startswith("cec-mpi: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0].removeprefix("cec-mpi: error: ")


@pytest.mark.any_mpi
def test_a_run_warns_of_more_ranks_and_threads_than_cores(run, words, tmp_path):
    one_core = ["taskset", "-c", min(os.sched_getaffinity(0))]
    command = ["mpirun", "-n", 4, *one_core, *words, "--threads", os.cpu_count() + 1]
    done = run(command, variables={"PYTHONWARNINGS": ""})  # other tests hide warnings of few cores
    assert done.returncode == 0, done.stderr
    warnings = [line.removeprefix("cec-mpi: warning: ") for line in done.errors.splitlines()]
    (ranks,) = (text for text in warnings if "more machines than cores on " in text)
    assert "(3 machines on 1 core); " in ranks
    (threads,) = (text for text in warnings if "more threads than cores on " in text)
    assert f"3 machines of {os.cpu_count() + 1} threads on 1 core" in threads
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["warnings"] == warnings


@pytest.mark.any_mpi
def test_shards_that_a_node_does_not_see_are_named(run, small_store, words, tmp_path):
    """Ranks 2 and 3 have another working directory, without the store."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "store").symlink_to(small_store.path)
    words[2] = "store"
    first, second = (["env", "-C", tmp_path / name, *words] for name in ("here", "there"))
    error = only_error(run(["mpirun", "-n", 2, *first, ":", "-n", 2, *second]))
    assert error.startswith("machines 2 and 3 on ")
    assert f"sees {tmp_path}/here/store/shard-0002.npy" in error


@pytest.mark.any_mpi
def test_a_file_of_the_package_that_differs_between_nodes_is_refused(run, tmp_path):
    """The version and the size of the file do not differ."""
    copy = shutil.copytree(Path(cec_mpi.__file__).parent, tmp_path / "other" / "cec_mpi")
    text = (copy / "errors.py").read_text()
    assert "exit_code = 6" in text
    (copy / "errors.py").write_text(text.replace("exit_code = 6", "exit_code = 7"))
    command, changed = ["cec-mpi", "doctor"], ["env", f"PYTHONPATH={copy.parent}"]
    error = only_error(run(["mpirun", "-n", 1, *command, ":", "-n", 1, *changed, *command]))
    assert error.count(f"{cec_mpi.__version__} (files ") == 2


def test_doctor_lists_ranks_and_a_missing_shard_in_the_store_of_a_node(cec, small_store, tmp_path):
    store = shutil.copytree(small_store.path, tmp_path / socket.gethostname() / "S")
    (store / "shard-0002.npy").unlink()
    done = cec("doctor", tmp_path / "{host}" / "S", "--json", ranks=4)
    assert done.returncode == 2, done.stderr
    assert done.errors == ""
    found = json.loads(done.stdout)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert all(rank["threads"] > 0 for rank in found["ranks"])
    (error,) = (f["text"] for f in found["findings"] if f["kind"] == "error")
    assert error.startswith("machine 2 on ")
    assert "shard-0002.npy: missing; cec-mpi repair " in error
    shards = found["store"]["shards"]
    assert [shard["path"] for shard in shards] == [f"{store}/shard-000{n}.npy" for n in (1, 2, 3)]
    assert [shard["problem"] for shard in shards] == ["", "missing", ""]
    assert not any(shard["only_on_master"] for shard in shards)
