"""Ranks with a wrong launcher, number, version or directory: one message with the remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.processes.start import detect_implementation
from helpers.mpi_at_hand import library, mpirun

WITH_WARNINGS = {"PYTHONWARNINGS": ""}  # other tests hide those of few cores
ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))


@pytest.fixture
def words(small_store, tmp_path):
    """Words of a short run on a store of three machines."""
    np.save(tmp_path / "W.npy", np.ones((3, small_store.columns)))
    options = ["--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}"]
    return ["cec-mpi", "run", small_store.path, *options]


@pytest.fixture
def program(small_store, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"""
from mpi4py import MPI
import cec_mpi
with cec_mpi.open_operator({str(small_store.path)!r}, MPI.COMM_WORLD) as X:
    if X is not None:
        print("shape", X.shape)
""")
    return [sys.executable, path]


def the_error(done):
    """Return the only message of a command that ended with code 2."""
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.errors.splitlines() if line.startswith("cec-mpi: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0].removeprefix("cec-mpi: error: ")


def raised(done):
    """Return the output of a program with one traceback."""
    assert done.returncode != 0
    assert done.errors.count("Traceback") == 1, done.stderr
    assert "shape" not in done.stdout
    return done.errors


# --- launchers of another MPI -----------------------------------------------------------------


@pytest.fixture(params=["openmpi", "mpich"])
def foreign(request):
    """The mpirun of another MPI that is installed beside this one."""
    path = shutil.which(f"mpirun.{request.param}")
    if path is None:
        pytest.skip(f"no mpirun.{request.param}, as Debian calls it, to start with by mistake")
    makers = {"openmpi": "Open MPI", "mpich": "MPICH"}
    if detect_implementation(library()) == makers[request.param]:
        pytest.skip(f"mpirun.{request.param} starts this MPI")
    return path


def test_the_mpirun_of_another_mpi_is_refused(run, words, foreign):
    printed = the_error(run([foreign, "-n", 4, *words]))
    assert "started 4 processes, but " in printed
    assert "runs each of them as a separate job of one rank: start them with /" in printed
    own = Path(printed.rpartition(" with ")[2])
    assert own.samefile(mpirun()) or own.parent == Path(mpirun()).parent


def test_the_mpirun_of_another_mpi_raises_in_a_program(run, program, foreign):
    done = run([foreign, "-n", 4, *program])
    if not library().startswith("Open MPI") and "Traceback" not in done.stderr:
        assert done.returncode != 0  # MPICH and Intel MPI may abort at their import
        return
    assert "started 4 processes, but " in raised(done)


# --- ranks, cores, threads --------------------------------------------------------------------


def warnings_of(done):
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("cec-mpi: warning: ") for line in done.errors.splitlines()]


@pytest.mark.any_mpi
def test_a_run_warns_of_more_ranks_and_threads_than_cores(run, words, tmp_path):
    threads = ["--threads", os.cpu_count() + 1]
    shown = warnings_of(
        run([mpirun(), "-n", 4, *ONE_CORE, *words, *threads], variables=WITH_WARNINGS)
    )
    (ranks,) = (text for text in shown if "more machines than cores on " in text)
    assert "(3 machines on 1 core); " in ranks
    (threads,) = (text for text in shown if "more threads than cores on " in text)
    assert f"3 machines of {os.cpu_count() + 1} threads on 1 core" in threads
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["warnings"] == shown


@pytest.mark.any_mpi
def test_a_program_warns_once_of_more_ranks_than_cores(run, program):
    shown = run([mpirun(), "-n", 4, *ONE_CORE, *program], variables=WITH_WARNINGS)
    assert shown.returncode == 0
    assert shown.errors.count("SlowWarning: oversubscribed: more machines than cores") == 1


def test_too_few_ranks_are_refused(run, words):
    printed = the_error(run([mpirun(), "-n", 2, *words]))
    assert printed.startswith("2 ranks were started: the store needs 4")


# --- nodes that differ -------------------------------------------------------------------------


@pytest.mark.any_mpi
def test_shards_that_a_node_does_not_see_are_named(run, small_store, words, tmp_path):
    """Ranks 2 and 3 have another working directory, without the store."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "store").symlink_to(small_store.path)
    words[2] = "store"
    first, second = (["env", "-C", tmp_path / name, *words] for name in ("here", "there"))
    printed = the_error(run([mpirun(), "-n", 2, *first, ":", "-n", 2, *second]))
    assert printed.startswith("machines 2 and 3 on ")
    assert f"sees {tmp_path}/here/store/shard-0002.npy" in printed


@pytest.mark.any_mpi
def test_a_file_of_the_package_that_differs_between_nodes_is_refused(run, tmp_path):
    """Neither its version nor the size of the file differs."""
    copy = shutil.copytree(Path(cec_mpi.__file__).parent, tmp_path / "other" / "cec_mpi")
    text = (copy / "errors.py").read_text()
    assert "exit_code = 6" in text
    (copy / "errors.py").write_text(text.replace("exit_code = 6", "exit_code = 7"))
    command, changed = ["cec-mpi", "doctor"], ["env", f"PYTHONPATH={copy.parent}"]
    printed = the_error(run([mpirun(), "-n", 1, *command, ":", "-n", 1, *changed, *command]))
    assert printed.count(f"{cec_mpi.__version__} (files ") == 2


# --- doctor -----------------------------------------------------------------------------------


def test_doctor_lists_ranks_and_a_missing_shard_in_the_store_of_a_node(cec, small_store, tmp_path):
    own = shutil.copytree(small_store.path, tmp_path / socket.gethostname() / "S")
    (own / "shard-0002.npy").unlink()
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
    assert [shard["path"] for shard in shards] == [f"{own}/shard-000{n}.npy" for n in (1, 2, 3)]
    assert [shard["problem"] for shard in shards] == ["", "missing", ""]
    assert not any(shard["only_on_master"] for shard in shards)
