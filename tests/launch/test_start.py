"""Processes that die, are suspended or never arrive while a run starts.

In lockstep the other processes leave in time; an elastic run begins with enough machines.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from helpers.mpi_at_hand import continuing_mpirun, exit_code_after_kill

START_TIMEOUT = 3  # seconds; a start takes half a second

# Code that Python runs first: it sends a signal to some ranks at a point of their start.
SIGNAL_AT_START = """
import os, signal
def raise_signal(*_, **__):
    os.kill(os.getpid(), signal.SIG{signal})
ranks = {{os.environ.get(name) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")}}
if ranks & set("{ranks}"):
    {point}
"""
POINTS = {
    "before MPI": "raise_signal()",
    "after MPI_Init": (
        "from cec_mpi.runtime.processes import start;start.pause_after_init = raise_signal"
    ),
    "before the ranks exchange their resources": (
        "from mpi4py import rc; rc.initialize = False;"
        "from cec_mpi.runtime.session import static; static.gather_processes = raise_signal"
    ),
}


@pytest.fixture
def signal_at_start(tmp_path):
    """Return a function that sets up a signal to ranks at their start, and returns variables."""

    def signal_at_start(ranks, signal, point="before MPI"):
        text = SIGNAL_AT_START.format(ranks=ranks, signal=signal, point=POINTS[point])
        (tmp_path / "sitecustomize.py").write_text(text)
        return {"PYTHONPATH": str(tmp_path)}

    return signal_at_start


@pytest.fixture
def command(small_store, tmp_path):
    """Return a function that returns the words of a command with a time limit for its start."""
    np.save(tmp_path / "W.npy", np.ones((3, 12)))
    store = small_store.path
    words = {
        "run": ["run", store, "--out", tmp_path / "out", f"vectors={tmp_path / 'W.npy'}"],
        "verify": ["verify", store],
    }

    def command(name, *options):
        return ["cec-mpi", *words[name], "--start-timeout", START_TIMEOUT, *options]

    return command


def assert_failed_with(done, *words):
    """Check that one rank prints the error, or a second one before the job has ended."""
    assert done.returncode == 3, done.stderr
    assert 1 <= done.stderr.count("cec-mpi: error:") <= 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_master_that_is_suspended_before_mpi_ends_the_job(run, command, signal_at_start):
    done = run(["mpirun", "-n", 3, *command("run")], variables=signal_at_start(0, "STOP"))
    assert_failed_with(
        done, f"3 ranks have not connected within {START_TIMEOUT} s", "--start-timeout"
    )


@pytest.mark.parametrize(
    ("name", "point"), [*zip(("verify", "run"), list(POINTS)[1:], strict=True)]
)
def test_a_rank_that_is_suspended_at_its_start_ends_the_job(
    run, command, signal_at_start, name, point
):
    done = run(["mpirun", "-n", 3, *command(name)], variables=signal_at_start(1, "STOP", point))
    assert_failed_with(done, f"3 ranks have not connected within {START_TIMEOUT} s")


@pytest.mark.needs("openmpi")
def test_a_rank_that_is_killed_at_its_start_ends_the_job(run, command, signal_at_start):
    variables = signal_at_start(2, "KILL", "before the ranks exchange their resources")
    words = ["mpirun", "--with-ft", "ulfm", "-n", 3, *command("run")]
    assert_failed_with(run(words, variables=variables))


PROGRAM = """
import sys
from mpi4py import MPI
import cec_mpi
if MPI.COMM_WORLD.rank < 2:
    with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, start_timeout=2) as X:
        print("opened")
"""


def test_a_rank_that_exits_without_opening_the_operator_ends_the_job(run, small_store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(["mpirun", "-n", 3, "python", tmp_path / "program.py", small_store.path])
    assert_failed_with(done, "3 ranks have not connected within 2 s", "start_timeout")
    assert "opened" not in done.stdout


PROGRAM_WITHOUT_MPI_INIT = """
import sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import cec_mpi
with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD) as X:
    if X is not None:
        print(X.shape)
"""


def test_open_operator_initialises_mpi_if_the_program_has_not(run, small_store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM_WITHOUT_MPI_INIT)
    done = run(["mpirun", "-n", 4, "python", tmp_path / "program.py", small_store.path])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(31, 12)\n"


SINGLE_PROCESS = """
import resource
from cec_mpi.runtime.processes.start import start_mpi

start_mpi()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_mpi_in_a_single_process_needs_little_memory(run):
    done = run([sys.executable, "-c", SINGLE_PROCESS])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500_000  # kilobytes, for Python and an MPI library


# --- elastic ----------------------------------------------------------------------------------


@pytest.mark.needs("ulfm")
def test_a_run_begins_without_a_launched_machine_that_never_joins(
    run, small_store, command, signal_at_start, tmp_path
):
    words = [*continuing_mpirun(), "-n", 4, *command("run", "--elastic", "--start-timeout", 1000)]
    done = run(words, variables=signal_at_start(3, "STOP"))
    assert done.returncode == exit_code_after_kill(0), done.stderr
    assert "1 of 3 machines have not joined yet, but can still join" in done.stdout
    assert "cec-mpi: error: " not in done.stderr
    assert "Traceback" not in done.stderr
    out = tmp_path / "out"
    assert np.allclose(np.load(out / "result.npy"), np.ones((3, 12)) @ small_store.X.T)
    assert not [*out.glob("connection*"), *out.glob(".cec_mpi*")]


SHADOW = "from pathlib import Path\nPath(__file__).with_name('imported').write_text(__name__)\n"
TASK = "import helper\ndef product(X, *, checkpoint): return {'y': X @ helper.ones(X.shape[1])}\n"


@pytest.mark.any_mpi
@pytest.mark.parametrize("start", ["cec-mpi", "python -m cec_mpi"])
def test_files_of_the_working_directory_replace_no_modules_of_python(
    run, small_store, tmp_path, start
):
    """Nor does a folder replace the package, but a task and its imports are found there."""
    directory = tmp_path / "here"
    directory.mkdir()
    for name in ("copy", "numbers", "queue", "random", "selectors", "socket", "subprocess"):
        (directory / f"{name}.py").write_text(SHADOW)
    (directory / "mine.py").write_text(TASK)
    (directory / "helper.py").write_text("from numpy import ones\n")
    if start == "cec-mpi":  # Python would run the folder
        (directory / "cec_mpi").mkdir()
        (directory / "cec_mpi" / "__init__.py").write_text("1 / 0\n")
    words = ["run", small_store.path, "mine:product", "--out", "out", "--local", 3]
    command = [*start.replace("python", sys.executable).split(), *words]
    done = run(command, cwd=directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (directory / "imported").exists()
    assert np.allclose(np.load(directory / "out" / "y.npy"), small_store.X.sum(1))


SLOW_STDERR = """
import sys, time

class Slow:
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)

    def write(self, text):
        time.sleep(1)
        return sys.__stderr__.write(text)

sys.stderr = Slow()
"""


@pytest.mark.needs("ulfm")
def test_machines_leave_when_rank_0_never_arrives(run, command, signal_at_start, tmp_path):
    """The first ranks print the error slowly, and other ranks do not end the job before that."""
    words = [*continuing_mpirun(), "-n", 3, *command("run", "--elastic")]
    variables = signal_at_start(0, "STOP")
    with (tmp_path / "sitecustomize.py").open("a") as file:
        file.write(SLOW_STDERR)
    done = run(words, variables=variables)
    assert done.returncode not in (0, None)
    message = f"the master has not begun to listen within {START_TIMEOUT} s"
    assert 1 <= done.stderr.count(message) <= 2, done.stderr
    assert done.stderr.count("cec-mpi: error: ") == done.stderr.count(message)


@pytest.mark.any_mpi
@pytest.mark.needs("ulfm")
def test_a_run_that_too_few_machines_join_ends_with_one_message(run, command, signal_at_start):
    words = [*continuing_mpirun(), "-n", 3, *command("run", "--elastic", "--start-timeout", 10)]
    done = run(words, variables=signal_at_start("2", "KILL"))
    assert done.returncode == exit_code_after_kill(4), done.stderr
    message = "cec-mpi: error: 1 machine is available at tick 0 (1): a step needs 2; "
    assert done.stderr.count("cec-mpi: ") == done.stderr.count(message) == 1, done.stderr


@pytest.mark.needs("ulfm")
def test_an_input_error_of_the_master_ends_an_elastic_run_with_one_message(run, tmp_path):
    """The machines do not wait until the master listens."""
    words = ["cec-mpi", "run", "no/such", "--out", "out", "power", "--elastic"]
    done = run([*continuing_mpirun(), "-n", 3, *words], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.errors.count("\n") == 0
    assert done.errors.startswith("cec-mpi: error: no/such does not exist")
    assert not list(tmp_path.iterdir())
