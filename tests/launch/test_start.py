"""Ranks that die, are stopped or never come while MPI starts: the others leave in time."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

LIMIT = 3  # seconds for a start that takes a half
ULFM = pytest.param(("mpirun", "--with-ft", "ulfm"), marks=pytest.mark.needs("ulfm"), id="ulfm")
PLAIN = pytest.param(("mpirun",), id="plain")

# What one rank does at a point of its start, in a file that Python runs first.
STRIKE = """
import os, signal
def strike(*_, **__):
    os.kill(os.getpid(), signal.SIG{signal})
ranks = [os.environ.get(name) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")]
if "{rank}" in ranks:
    {point}
"""
POINTS = {
    "before MPI": "strike()",
    "after MPI_Init": "from cec_mpi.processes import start; start.check_world = strike",
    "before it has met the others": (
        "from mpi4py import rc; rc.initialize = False;"
        "from cec_mpi.session import gathering; gathering.place_of_ranks = strike"
    ),
}


@pytest.fixture
def struck(tmp_path):
    """Variables with which one rank gets a signal at a point of its start."""

    def struck(rank, signal, point="before MPI"):
        text = STRIKE.format(rank=rank, signal=signal, point=POINTS[point])
        (tmp_path / "sitecustomize.py").write_text(text)
        return {"PYTHONPATH": str(tmp_path)}

    return struck


@pytest.fixture
def command(small_store, tmp_path):
    """The words of a command of four ranks."""
    np.save(tmp_path / "W.npy", np.ones((3, 12)))
    store = small_store.path
    words = {
        "run": ["run", store, "--out", tmp_path / "out", "--vectors", tmp_path / "W.npy"],
        "doctor": ["doctor", store],
        "verify": ["verify", store],
        "stage": ["stage", store, tmp_path / "staged"],
    }

    def command(name, *options):
        return ["cec-mpi", *words[name], "--start-timeout", LIMIT, *options]

    return command


def assert_said_once(done, *words):
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("cec-mpi: error:") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("launcher", [PLAIN, ULFM])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_stopped_before_mpi(run, command, struck, launcher, rank):
    done = run([*launcher, "-n", 4, *command("run")], variables=struck(rank, "STOP"))
    assert_said_once(done, f"4 ranks have not met within {LIMIT} s", "--start-timeout")


@pytest.mark.needs("ulfm")
@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_dies_before_mpi(run, command, struck, rank):
    words = command("run", "--on-loss", "continue")
    done = run(["mpirun", "--with-ft", "ulfm", "-n", 4, *words], variables=struck(rank, "KILL"))
    assert_said_once(done, f"4 ranks have not met within {LIMIT} s")


@pytest.mark.needs("ulfm")
@pytest.mark.parametrize("point", list(POINTS)[1:])
@pytest.mark.parametrize(("rank", "loss"), [(0, "end"), (2, "end"), (2, "continue")])
def test_a_rank_that_dies_before_all_have_met(run, command, struck, rank, point, loss):
    words = command("run", "--on-loss", loss)
    variables = struck(rank, "KILL", point)
    assert_said_once(run(["mpirun", "--with-ft", "ulfm", "-n", 4, *words], variables=variables))


@pytest.mark.parametrize("point", list(POINTS)[1:])
def test_a_rank_that_is_stopped_before_all_have_met(run, command, struck, point):
    done = run(["mpirun", "-n", 4, *command("run")], variables=struck(1, "STOP", point))
    assert_said_once(done, f"4 ranks have not met within {LIMIT} s")


@pytest.mark.parametrize("name", ["doctor", "verify", "stage"])
def test_every_command_of_several_ranks_has_the_limit(run, command, struck, name):
    done = run(["mpirun", "-n", 4, *command(name)], variables=struck(3, "STOP", "after MPI_Init"))
    assert_said_once(done, f"4 ranks have not met within {LIMIT} s")


@pytest.mark.any_mpi
def test_a_limit_that_is_no_number_of_seconds(cec, small_store):
    done = cec("verify", small_store.path, "--start-timeout", "0")
    assert done.returncode == 2
    assert done.told.count("cec-mpi: error:") == 1
    assert "--start-timeout" in done.told


PROGRAM = """
import sys, time
from mpi4py import MPI
import cec_mpi
if str(MPI.COMM_WORLD.rank) in sys.argv[2]:
    with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, start_timeout=2) as X:
        print("opened")
elif sys.argv[3] == "sleep":
    time.sleep(100)
"""


@pytest.mark.parametrize("launcher", [PLAIN, ULFM])
@pytest.mark.parametrize(
    ("come", "others", "told"),
    [
        ("12", "sleep", "not all of 4 ranks have come within 2 s"),
        ("01", "leave", "of 4 ranks (are known to )?have come within 2 s"),  # 0 or 1, who is first
    ],
)
def test_ranks_that_never_open_the_operator(
    run, small_store, tmp_path, launcher, come, others, told
):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["python", tmp_path / "program.py", small_store.path, come, others]
    done = run([*launcher, "-n", 4, *words])
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("MachineError: ") == 1, done.stderr
    assert re.search(told, done.stderr)
    assert "opened" not in done.stdout


STARTED_LATER = """
import sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import cec_mpi
with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, start_timeout=float(sys.argv[2])) as X:
    if X is not None:
        print(X.shape)
"""


def test_open_operator_starts_mpi_where_nobody_has(run, small_store, struck, tmp_path):
    (tmp_path / "program.py").write_text(STARTED_LATER)
    words = ["mpirun", "-n", 4, "python", tmp_path / "program.py", small_store.path]
    done = run([*words, 30])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(31, 12)\n"
    done = run([*words, LIMIT], variables=struck(0, "STOP"))
    assert_said_once(done, f"4 ranks have not met within {LIMIT} s")


ALONE = """
import resource
from cec_mpi.processes.start import start_mpi

start_mpi()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_process_alone_that_starts_mpi_writes_to_no_memory_that_it_does_not_use(run):
    done = run([sys.executable, "-c", ALONE])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500_000  # kilobytes, for Python and an MPI library
