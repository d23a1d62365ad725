"""Processes that end other ranks of their job, and only these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cec_mpi.runtime.processes.ending import kill_ranks
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers.waiting import LIMIT


def open_mpi(rank, job="prterun-node1-7@1"):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": job}


def srun(rank, step="0"):
    job = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
    return {**job, "SLURM_PROCID": str(rank), "SLURM_STEP_ID": step}


@pytest.fixture
def start():
    """Start a process with these variables of a launcher."""
    processes = []

    def start(variables):
        environment = remove_launcher_variables(os.environ) | variables
        processes.append(subprocess.Popen(["sleep", "1000"], env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(LIMIT)


@pytest.fixture
def set_launcher(monkeypatch, no_launcher):
    """Make this process one that a launcher has started."""

    def set_launcher(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_launcher


@pytest.mark.parametrize("launcher", [open_mpi, srun])
def test_only_these_ranks_of_this_job_are_killed(launcher, start, set_launcher):
    others = [launcher(1, "9"), open_mpi(1, "prterun-node1-8@1"), srun(1, "3"), {}]
    set_launcher(launcher(0))
    ranks = [start(launcher(rank)) for rank in (1, 2, 3)]
    others = [start(variables) for variables in others]
    kill_ranks([])
    assert kill_ranks([1, 3, 10]) == {1, 3}
    assert [ranks[n].wait(LIMIT) for n in (0, 2)] == [-signal.SIGKILL] * 2
    assert [process.poll() for process in (ranks[1], *others)] == [None] * 5


@pytest.mark.parametrize("variables", [{}, {"PMI_RANK": "0", "PMI_SIZE": "4"}])
def test_a_process_without_a_known_job_kills_no_rank(variables, start, set_launcher):
    set_launcher(variables)
    processes = [start(each) for each in (variables | {"PMI_RANK": "1"}, open_mpi(1), {})]
    assert kill_ranks([0, 1]) == set()
    assert [process.poll() for process in processes] == [None] * 3


FORKING = """
import os, sys
from cec_mpi.runtime.processes.ending import abort_job_at_exit
abort_job_at_exit()
child = os.fork()
if not child:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_does_not_abort_the_job_at_exit(run):
    done = run([sys.executable, "-c", FORKING])
    assert (done.stdout, done.returncode) == ("0\n", 3)
