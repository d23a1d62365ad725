"""Ranks that were not started as they should: one message at the start, with the remedy."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.processes.start import detect_implementation
from helpers.mpi_at_hand import library, mpirun

SHOWN = {"PYTHONWARNINGS": ""}  # these tests run on any machine, and hide warnings of it elsewhere
ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))


@pytest.fixture
def words(small_store, tmp_path):
    """Of a short run on the store of three machines."""
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


def the_error(done, code=2):
    """The one message of a command that failed in order."""
    assert done.returncode == code, done.stderr
    lines = [line for line in done.errors.splitlines() if line.startswith("cec-mpi: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0].removeprefix("cec-mpi: error: ")


def raised(done):
    """The message of an exception that a program has shown once."""
    assert done.returncode != 0
    assert done.errors.count("Traceback") == 1, done.stderr
    assert "shape" not in done.stdout
    return done.errors


# --- launchers that do not fit ----------------------------------------------------------------


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


def test_the_mpirun_of_another_mpi(run, words, foreign):
    printed = the_error(run([foreign, "-n", 4, *words]))
    assert "started 4 processes, but " in printed
    assert "runs each of them as a separate job of one rank: start them with /" in printed
    own = Path(printed.rpartition(" with ")[2])
    assert own.samefile(mpirun()) or own.parent == Path(mpirun()).parent


def test_the_mpirun_of_another_mpi_for_a_program(run, program, foreign):
    done = run([foreign, "-n", 4, *program])
    if not library().startswith("Open MPI") and "Traceback" not in done.stderr:
        assert done.returncode != 0  # MPICH and Intel MPI may abort when a program imports them
        return
    assert "started 4 processes, but " in raised(done)


# --- ranks, cores, threads --------------------------------------------------------------------


def warnings_of(done):
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("cec-mpi: warning: ") for line in done.errors.splitlines()]


@pytest.mark.any_mpi
def test_more_ranks_and_threads_than_cores_are_warnings(run, words, tmp_path):
    threads = ["--threads", os.cpu_count() + 1]
    shown = warnings_of(run([mpirun(), "-n", 4, *ONE_CORE, *words, *threads], variables=SHOWN))
    (ranks,) = (text for text in shown if "more machines than cores on " in text)
    assert "(3 machines on 1 core); " in ranks
    (threads,) = (text for text in shown if "more threads than cores on " in text)
    assert f"3 machines of {os.cpu_count() + 1} threads on 1 core" in threads
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["warnings"] == shown


@pytest.mark.any_mpi
def test_doctor_looks_at_threads_that_a_run_would_be_given(cec):
    done = cec("doctor", "--threads", os.cpu_count() + 1, ranks=2)
    assert done.returncode == 0, done.stderr
    assert f"warning: oversubscribed: more threads than cores on {socket.gethostname()} (" in (
        done.stdout
    )


@pytest.mark.any_mpi
def test_a_program_warns_once(run, program):
    """Other tests hide this, with PYTHONWARNINGS."""
    shown = run([mpirun(), "-n", 4, *ONE_CORE, *program], variables=SHOWN)
    assert shown.returncode == 0
    assert shown.errors.count("SlowWarning: oversubscribed: more machines than cores") == 1


def test_too_few_ranks(run, words):
    printed = the_error(run([mpirun(), "-n", 2, *words]))
    assert printed.startswith("2 ranks were started: the store needs 4")


# --- nodes that are not alike -----------------------------------------------------------------


def elsewhere(small_store, tmp_path, command):
    """Ranks 0 and 1 where a relative path leads to the store, 2 and 3 where it leads nowhere."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "store").symlink_to(small_store.path)
    places = [["env", "-C", tmp_path / name, *command] for name in ("here", "there")]
    return [mpirun(), "-n", 2, *places[0], ":", "-n", 2, *places[1]]


@pytest.mark.any_mpi
def test_shards_that_a_node_does_not_see(run, small_store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((3, small_store.columns)))
    command = ["cec-mpi", "run", "store", "--out", tmp_path / "o", f"vectors={tmp_path / 'W.npy'}"]
    printed = the_error(run(elsewhere(small_store, tmp_path, command)))
    assert printed.startswith("machines 2 and 3 on ")
    assert f"sees {tmp_path}/here/store/shard-0002.npy" in printed


@pytest.mark.any_mpi
def test_doctor_finds_shards_that_a_node_does_not_see(run, small_store, tmp_path):
    command = ["cec-mpi", "doctor", "store", "--json"]
    done = run(elsewhere(small_store, tmp_path, command))
    assert done.returncode == 2
    found = json.loads(done.stdout)
    (error,) = (f["text"] for f in found["findings"] if f["kind"] == "error")
    assert error.startswith("machines 2 and 3 on ")
    seen = [shard["only_on_master"] for shard in found["store"]["shards"]]
    assert seen == [False, True, True]


def changed_copy(directory, name, old, new):
    """Start a command with a copy of this package in which one file is another."""
    copy = shutil.copytree(Path(cec_mpi.__file__).parent, directory / "other" / "cec_mpi")
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new))
    return ["env", f"PYTHONPATH={copy.parent}"]


@pytest.mark.any_mpi
def test_different_versions_of_the_package(run, program, tmp_path):
    later = changed_copy(tmp_path, "_version.py", cec_mpi.__version__, "9.0.0")
    shown = raised(run([mpirun(), "-n", 1, *program, ":", "-n", 1, *later, *program]))
    assert f"the ranks run different versions of cec_mpi: {cec_mpi.__version__} in " in shown
    assert "; 9.0.0 in " in shown


@pytest.mark.any_mpi
def test_a_file_that_was_changed_in_one_place(run, tmp_path):
    """Also where neither the version nor the size of a file tells."""
    changed = changed_copy(tmp_path, "errors.py", "exit_code = 6", "exit_code = 7")
    command = ["cec-mpi", "doctor"]
    printed = the_error(run([mpirun(), "-n", 1, *command, ":", "-n", 1, *changed, *command]))
    assert printed.count(f"{cec_mpi.__version__} (files ") == 2


# --- doctor -----------------------------------------------------------------------------------


def test_doctor_has_values_of_each_rank(cec, small_store):
    done = cec("doctor", small_store.path, "--json", ranks=4)
    assert done.returncode == 0, done.stderr
    assert done.errors == ""
    found = json.loads(done.stdout)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert all(rank["threads"] > 0 for rank in found["ranks"])
    assert [shard["machine"] for shard in found["store"]["shards"]] == [1, 2, 3]


def test_doctor_alone(cec, run, small_store):
    done = run(["cec-mpi", "doctor", small_store.path])
    assert (done.returncode, done.errors) == (0, "")
    assert "No problems were found." in done.stdout
    printed = r"To check several, run mpirun( --oversubscribe)? -n 4 cec-mpi doctor"
    assert re.search(printed, done.stdout)
    single = cec("doctor", ranks=1)
    assert (single.returncode, single.errors) == (0, "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: none is left idle")
def test_doctor_finds_cores_that_binding_leaves_idle(run):
    done = run([mpirun(), "-n", 2, *ONE_CORE, "cec-mpi", "doctor", "--json"])
    found = json.loads(done.stdout)
    assert [rank["cores"] for rank in found["ranks"]] == [1, 1]
    printed = [f["text"] for f in found["findings"] if f["kind"] == "advice"]
    assert len(printed) == 1
    assert printed[0].startswith("ranks are bound to one core, and other cores are idle on ")
    # Open MPI 4 binds one or two ranks to a core each; other MPIs take no notice. A run sets the
    # threads of its machines, whatever the environment says.
    unbound = {"OMPI_MCA_hwloc_base_binding_policy": "none"}
    unbound["OMP_NUM_THREADS"] = str(os.cpu_count() + 1)
    free = run([mpirun(), "-n", 2, "cec-mpi", "doctor", "--json"], variables=unbound)
    assert "other cores are idle" not in free.stdout
    assert "more threads than cores" not in free.stdout


@pytest.mark.any_mpi
def test_doctor_looks_at_stores_of_nodes(cec, small_store, tmp_path):
    own = shutil.copytree(small_store.path, tmp_path / socket.gethostname() / "S")
    (own / "shard-0002.npy").unlink()
    done = cec("doctor", tmp_path / "{host}" / "S", "--json", ranks=4)
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    (error,) = (f["text"] for f in found["findings"] if f["kind"] == "error")
    assert error.startswith("machine 2 on ")
    assert "shard-0002.npy: missing; cec-mpi repair " in error
    shards = found["store"]["shards"]
    assert [shard["path"] for shard in shards] == [f"{own}/shard-000{n}.npy" for n in (1, 2, 3)]
    assert [shard["problem"] for shard in shards] == ["", "missing", ""]
    assert not any(shard["only_on_master"] for shard in shards)
