"""Who ends other ranks ends those of its own job alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cec_mpi.runtime.processes.ending import kill_ranks
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers.waiting import LIMIT

KILLED = -signal.SIGKILL


def open_mpi(rank, job="prterun-node1-7@1"):
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_NAMESPACE": job,
    }


def srun(rank, step="0"):
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": step,
    }


@pytest.fixture
def start():
    """Start a process with these variables of a launcher."""
    started = []

    def start(variables):
        environment = remove_launcher_variables(os.environ) | variables
        started.append(subprocess.Popen(["sleep", "1000"], env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(LIMIT)


@pytest.fixture
def launched(monkeypatch, no_launcher):
    """This process is one that a launcher has started."""

    def launched(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launched


@pytest.mark.parametrize("implementation", [open_mpi, srun])
def test_ranks_of_this_job_are_ended_and_no_others(implementation, start, launched):
    others = [implementation(1, "9"), open_mpi(1, "prterun-node1-8@1"), srun(1, "3"), {}]
    launched(implementation(0))
    mine = [start(implementation(rank)) for rank in (1, 2, 3)]
    bystanders = [start(variables) for variables in others]
    kill_ranks([1, 3])
    assert [mine[n].wait(LIMIT) for n in (0, 2)] == [KILLED, KILLED]
    assert [process.poll() for process in (mine[1], *bystanders)] == [None] * 5


def test_ranks_of_other_numbers_live(start, launched):
    launched(open_mpi(0))
    process = start(open_mpi(1))
    kill_ranks([])
    kill_ranks([2, 10, 11])
    assert process.poll() is None


@pytest.mark.parametrize("variables", [{}, {"PMI_RANK": "0", "PMI_SIZE": "4"}])
def test_who_does_not_know_its_job_ends_nobody(variables, start, launched):
    launched(variables)
    processes = [start(each) for each in (variables | {"PMI_RANK": "1"}, open_mpi(1), {})]
    kill_ranks([0, 1])
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


def test_a_forked_process_does_not_end_the_job_that_its_parent_will_end(run):
    done = run([sys.executable, "-c", FORKING])
    assert (done.stdout, done.returncode) == ("0\n", 3)
