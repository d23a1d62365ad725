"""Programs and tasks under a launcher end all ranks, with one exit code and one message."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from helpers.ending_tasks import OUTCOMES, TASKS
from helpers.mpi_at_hand import library

PROGRAM = """
import os, sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
import cec_mpi
{before}
from mpi4py import MPI
comm = MPI.COMM_WORLD
{after}
import numpy as np
with cec_mpi.open_operator(sys.argv[1], comm) as X:
    if X is not None:
        X @ np.ones(12)
        {block}
    {machine}
print("end of program", flush=True)
"""
ON_RANK_2, ON_RANK_0 = "if rank == 2: {}", "if rank == 0: {}"
RAISE_KEY_ERROR = "raise KeyError('mine')"
RAISE_INPUT_ERROR = "raise cec_mpi.errors.InputError('mine')"

CASES = {
    "before MPI, on rank 2": ({"before": ON_RANK_2.format(RAISE_KEY_ERROR)}, 1),
    "before opening, on rank 0": ({"after": ON_RANK_0.format(RAISE_INPUT_ERROR)}, 2),
    "before opening, on all": ({"after": RAISE_INPUT_ERROR}, 2),
    "on a machine after the block": ({"machine": ON_RANK_2.format(RAISE_KEY_ERROR)}, 1),
    "in the block": ({"block": "raise KeyboardInterrupt('mine')"}, 130),
}


@pytest.fixture
def program(run, small_store, tmp_path):
    """Return a function that runs a program on four ranks, with statements at these points."""

    def program(**statements):
        text = dict.fromkeys(("before", "after", "block", "machine"), "pass") | statements
        (tmp_path / "program.py").write_text(PROGRAM.format(**text))
        command = ["mpirun", "-n", 4, sys.executable, "program.py", small_store.path]
        return run(command, cwd=tmp_path)

    return program


@pytest.mark.parametrize("case", CASES)
def test_an_exception_ends_all_ranks_with_its_exit_code(program, case):
    statements, code = CASES[case]
    done = program(**statements)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("Traceback") >= 1
    assert "block" not in statements or done.stderr.count("Traceback") == 1
    assert "mine" in done.stderr
    assert "end of program" not in done.stdout or "machine" in case  # on the other ranks


def test_sys_exit_in_the_block_ends_all_ranks_with_its_code(program):
    done = program(block="sys.exit(3)")
    assert (done.returncode, done.errors) == (3, "")


def test_a_rank_that_exits_before_opening_is_named_and_ends_the_job(program):
    done = program(after=ON_RANK_2.format("sys.exit(5)"))
    expected = "cec-mpi: error: rank 2 exited with exit code 5 while other ranks wait for it"
    assert (done.returncode, done.errors) == (5, expected)


ELASTIC = [
    pytest.param(task, 0, marks=pytest.mark.any_mpi, id=f"{task}, elastic")
    for task in ("calls_os_exit", "forks")
]


@pytest.mark.parametrize(("task", "ranks"), [*((task, 4) for task in OUTCOMES), *ELASTIC])
def test_the_end_of_a_task_decides_the_exit_code_of_its_run(
    run, small_store, tmp_path, task, ranks
):
    code, message = OUTCOMES[task]
    (tmp_path / "my_tasks.py").write_text(TASKS)
    words = ["cec-mpi", "run", small_store.path, f"my_tasks:{task}", "--out", "out"]
    command = ["mpirun", "-n", ranks, *words] if ranks else [*words, "--local", "3"]
    done = run(command, cwd=tmp_path)
    if task != "calls_os_exit":
        assert done.returncode == code, done.stderr
    elif library().startswith("Open MPI") or not ranks:
        assert done.returncode == code
    else:  # launchers that kill the other ranks may return their own code
        assert done.returncode not in (0, None)
    assert message in done.stderr
    assert done.stderr.count("Traceback") == (task in ("raises", "forks"))
    assert done.stderr.count("cec-mpi: error: ") == (code in (1, 2))
    summary = tmp_path / "out" / "summary.json"
    assert summary.exists() == (code == 0)
    if code == 0:
        found = json.loads(summary.read_text())["sum"]
        assert found == pytest.approx(float((small_store.X @ np.ones(12)).sum()))
