"""Failures end a run within seconds, with one message and without surviving processes.

When Python starts, it imports ``sitecustomize``, which patches the machines.
"""

from __future__ import annotations

import json
import signal
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.records.recorder import read_steps
from helpers.mpi_at_hand import library
from helpers.processes import find_ranks
from helpers.waiting import LIMIT, wait_for_file

FAULT = """
import os, signal
from cec_mpi.runtime.machine.machine import Machine

compute = Machine.compute

def faulty(self, *arguments):
    if self.number == 3 and arguments[2] == 2:
        {fault}
    return compute(self, *arguments)

Machine.compute = faulty
"""


@pytest.fixture
def multiply(run, small_store, tmp_path):
    """Return a function that runs ``matvec`` for four steps with a fault on machine 3."""
    np.save(tmp_path / "W.npy", np.ones((4, small_store.columns)))

    def multiply(fault, *options):
        (tmp_path / "sitecustomize.py").write_text(FAULT.format(fault=fault))
        words = ["run", small_store.path, "--out", "out", "vectors=W.npy", "--speeds", "1,1,1"]
        command = ["mpirun", *options, "-n", 4, "cec-mpi", *words]
        return run(command, cwd=tmp_path, variables={"PYTHONPATH": str(tmp_path)})

    return multiply


@pytest.mark.any_mpi
def test_an_unknown_option_gives_one_message_for_all_ranks(cec, small_store):
    done = cec("run", small_store.path, "--speed-up", 3, ranks=2)
    assert done.returncode == 2
    assert done.errors.startswith("cec-mpi: error: ")
    assert "--speed-up" in done.errors
    assert done.errors.count("\n") == 0


@pytest.mark.any_mpi
def test_an_exception_in_a_step_gives_one_message_that_names_the_machine(multiply, tmp_path):
    done = multiply("raise ArithmeticError('no luck')")
    assert done.returncode == 3
    assert done.errors == "cec-mpi: error: step 2 failed on machine 3: ArithmeticError: no luck"
    logs = tmp_path / "out" / "logs"
    log = (logs / "machine-0003.log").read_text()
    assert log.count("Traceback") == 1
    assert "in faulty" in log
    assert "Traceback" not in (logs / "machine-0001.log").read_text()
    assert len(read_steps(tmp_path / "out" / "steps.jsonl")[1]) == 2


@pytest.mark.needs("openmpi")
def test_a_killed_rank_gives_one_message_if_mpi_reports_it(multiply):
    done = multiply("os.kill(os.getpid(), signal.SIGKILL)", "--with-ft", "ulfm")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cec-mpi: error:")]
    assert "one of 4 ranks was lost" in line
    assert "with --elastic a run continues" in line


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    "error", [MemoryError("no 1.00 EiB"), RuntimeError("can't start new thread")], ids=str
)
def test_too_little_memory_gives_one_message_and_code_2(cec, small_store, monkeypatch, error):
    monkeypatch.setattr(Machine, "assign", Mock(side_effect=error))
    done = cec("run", small_store.path, "--out", "out", "svd", "--serial")
    assert (done.returncode, done.errors.count("\n")) == (2, 0)
    assert f"too little memory: {error}" in done.errors


def test_a_machine_that_exits_with_0_ends_the_job(multiply, tmp_path):
    done = multiply("os._exit(0)")
    assert not (tmp_path / "out" / "summary.json").exists()
    if library().startswith("Open MPI"):  # Hydra may return the machine's exit code for the job
        assert done.returncode != 0


@pytest.fixture
def long_run(start, small_store, tmp_path):
    """A process of a run with many more steps to compute."""
    np.save(tmp_path / "W.npy", np.ones((10_000, small_store.columns)))
    words = ["run", small_store.path, "--out", "out", "vectors=W.npy"]
    words += ["--emulate-speeds", "1,1,1", "--emulate-base", 500]
    process = start(["mpirun", "-n", 4, "cec-mpi", *words])
    steps = tmp_path / "out" / "steps.jsonl"
    wait_for_file(steps, '"step":2', process)
    return process


@pytest.mark.needs("signal-exit-code")
def test_ctrl_c_to_mpirun_ends_the_job(long_run, tmp_path):
    long_run.send_signal(signal.SIGINT)
    _, stderr = long_run.communicate(timeout=LIMIT)
    assert long_run.returncode != 0
    assert "Traceback" not in stderr
    lines = (tmp_path / "out" / "steps.jsonl").read_text().splitlines()
    assert all(json.loads(line)["kind"] == "step" for line in lines[1:-1])


def test_all_ranks_end_when_mpirun_is_killed(long_run):
    ranks = list(find_ranks(long_run).values())
    assert len(ranks) == 4
    long_run.kill()
    _, alive = psutil.wait_procs(ranks, timeout=LIMIT)
    assert not alive


@pytest.mark.any_mpi
def test_processes_of_another_launcher_print_one_message(start, small_store):
    words = ["cec-mpi", "run", small_store.path, "--out", "out", "vectors=W.npy"]
    variables = [
        {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": str(rank)} for rank in range(3)
    ]
    processes = [start(words, variables=rank) for rank in variables]
    first_error, *other_errors = [process.communicate(timeout=LIMIT)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2, 2]
    assert first_error.count("cec-mpi: error: ") == len(first_error.splitlines()) == 1
    assert "3 processes" in first_error
    assert other_errors == ["", ""]
