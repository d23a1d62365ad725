"""Batch scripts of scripts/slurm and of ``cec-mpi slurm`` as jobs."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest

from cec_mpi.runtime.availability.nodelist import expand_nodelist
from cec_mpi.runtime.records.recorder import read_steps
from helpers import ROOT

EXAMPLES = ROOT / "scripts" / "slurm"
pytestmark = pytest.mark.needs("slurm")
# About 150 slow steps.
SLOW = ("power", "tol=1e-9")
SLOW += ("--speeds", "2,3,4", "--emulate-speeds", "2,3,4", "--emulate-base", "400")
RUN = ("run", "store", "power", "--out", "out")
ALL_NODES = "--nodes=4 --ntasks-per-node=1"
# Launchers of lockstep runs, each with the MPIs with which it works reliably.
LAUNCHERS = [
    pytest.param("mpirun", marks=pytest.mark.needs("native-mpirun")),
    pytest.param("hydra", marks=pytest.mark.needs("hydra")),
    pytest.param("pmix", marks=pytest.mark.needs("pmix", "slurm-pmix")),
    pytest.param("pmi2", marks=pytest.mark.needs("reliable-pmi2")),
]


def read_summary(out):
    return json.loads((out / "summary.json").read_text())


def check_power(out):
    """Check the eigenvalue, and that each step is recorded once."""
    summary = read_summary(out)
    assert summary["converged"]
    assert summary["eigenvalue"] == pytest.approx(10, rel=1e-12)
    _, steps = read_steps(out / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(len(steps)))


# --- runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_starts_a_run(slurm, symmetric, launcher):
    W = np.random.default_rng(8).standard_normal((9, 60))
    np.save(slurm.directory / "W.npy", W)
    run = f"run {symmetric.path} --out 'o u t' vectors=W.npy"
    job = slurm.submit(slurm.write_script(f"--launcher {launcher} --ntasks 4 --time 5 {run}"))
    assert job.wait() == "COMPLETED", job.output()
    result = np.load(slurm.directory / "o u t" / "result.npy")
    np.testing.assert_allclose(result, W @ symmetric.X.T, atol=1e-11)


@pytest.mark.any_mpi
@pytest.mark.parametrize("name", ["lockstep", "elastic"])
def test_an_example_runs_unchanged(slurm, symmetric, name):
    (slurm.directory / "store").symlink_to(symmetric.path)
    job = slurm.submit(EXAMPLES / f"{name}.sbatch")
    assert job.wait() == "COMPLETED", job.output()
    check_power(slurm.directory / "results")


@pytest.mark.needs("native-mpirun")
def test_bad_input_fails_the_job_with_its_exit_code(slurm, symmetric):
    run = f"run {symmetric.path} --out out vectors=none.npy"
    job = slurm.submit(slurm.write_script(f"--ntasks 4 --time 5 {run}"))
    assert job.wait() == "FAILED"
    assert job.field("ExitCode") == "2:0"
    assert job.output().count("cec-mpi: error: ") == 1


# --- warned jobs --------------------------------------------------------------------------


def slow_script(slurm, symmetric, options="", more=""):
    """Write the batch script of a slow run."""
    run = shlex.join(["run", str(symmetric.path), "--out", "out", *SLOW])
    return slurm.write_script(f"{options} --ntasks 4 --time 5 {run} {more}")


def check_resumed(job, out, signal):
    assert f"stopped by the signal {signal}" in job.output()
    before = int(re.search(r"after (\d+) steps: to continue, .* --resume", job.output())[1])
    job.resume()
    assert job.wait() == "COMPLETED", job.output()
    assert job.field("Restarts") == "1"
    check_power(out)
    assert read_summary(out)["steps"] == read_summary(out)["iterations"] > before >= 10


def elastic_script(slurm, symmetric, faults=""):
    return slow_script(slurm, symmetric, more=f"--elastic --inject '{faults}'")


@pytest.mark.any_mpi
def test_a_preempted_elastic_job_continues_where_it_stopped(slurm, symmetric):
    out = slurm.directory / "out"
    job = slurm.submit(elastic_script(slurm, symmetric, "kill:2@5"), options="--partition=low")
    job.wait_for_steps(out, 10)
    urgent = slurm.directory / "urgent.sbatch"
    urgent.write_text("#!/bin/bash\nexit 0\n")
    urgent_job = slurm.submit(urgent, options=f"--partition=high --exclusive {ALL_NODES}")
    assert urgent_job.wait() == "COMPLETED"
    check_resumed(job, out, "SIGTERM")


@pytest.mark.needs("signal-exit-code")
# Intel MPI under pmi2 loses a rank: see the page.
@pytest.mark.parametrize("launcher", LAUNCHERS[:-1])
def test_a_warned_job_continues_where_it_stopped(slurm, symmetric, launcher):
    """Send the signal of a time limit, because a real limit is at least a minute."""
    out = slurm.directory / "out"
    job = slurm.submit(slow_script(slurm, symmetric, f"--launcher {launcher}"))
    job.wait_for_steps(out, 10)
    slurm.run("scancel", "--signal=USR1", "--batch", job.number)
    job.wait("PENDING")
    check_resumed(job, out, "SIGUSR1")


@pytest.mark.any_mpi
@pytest.mark.needs("pmix", "slurm-pmix")
def test_a_cancelled_job_is_not_requeued(slurm, symmetric):
    job = slurm.submit(slow_script(slurm, symmetric, "--launcher pmix"))
    job.wait_for_steps(slurm.directory / "out", 5)
    slurm.run("scancel", job.number)
    assert job.wait() == "CANCELLED"
    assert job.field("Restarts") == "0"
    assert (slurm.directory / "out" / "checkpoint.npz").exists()


# --- lost machines and nodes --------------------------------------------------------------


@pytest.mark.any_mpi
def test_a_job_that_has_lost_a_machine_completes_once(slurm, symmetric):
    out = slurm.directory / "out"
    job = slurm.submit(elastic_script(slurm, symmetric, "kill:2@5"))
    assert job.wait() == "COMPLETED", job.output()
    assert job.field("Restarts") == "0"
    check_power(out)
    assert '"lost":2' in (out / "steps.jsonl").read_text()
    summary = read_summary(out)
    slurm.run("scontrol", "requeue", job.number)
    job.resume()
    assert job.wait() == "COMPLETED", job.output()
    assert "nothing to resume" in job.output()
    assert read_summary(out) == summary


@pytest.mark.any_mpi
def test_a_job_continues_without_a_node_that_goes_down(slurm, symmetric):
    out = slurm.directory / "out"
    job = slurm.submit(elastic_script(slurm, symmetric), options=ALL_NODES)
    job.wait_for_steps(out, 10)
    last_node = expand_nodelist(job.field("NodeList"))[-1]
    with slurm.node_down(last_node):
        assert job.wait() == "COMPLETED", job.output()
    assert f"Node failure on {last_node}" in job.output()
    check_power(out)
    assert '"lost":3' in (out / "steps.jsonl").read_text()


# --- texts --------------------------------------------------------------------------------


@pytest.mark.any_mpi
def test_sbatch_reads_special_characters_literally(slurm):
    name = """it's "5" * $HOME # \\ `x`"""
    script = slurm.directory / "job.sbatch"
    script.write_text(slurm.run("cec-mpi", "slurm", "--ntasks", "7", "--job-name", name, *RUN))
    job = slurm.submit(script, options="--hold")
    assert slurm.query("squeue", "--noheader", "--format=%j", f"--jobs={job.number}") == f"{name}\n"


@pytest.mark.any_mpi
@pytest.mark.parametrize("names", ["a,b[08-11,3]", "r[1-2]n[1-2]"])
def test_node_lists_are_expanded_as_by_slurm(slurm, names):
    assert expand_nodelist(names) == slurm.run("scontrol", "show", "hostnames", names).split()
