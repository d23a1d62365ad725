"""A job whose master keeps a fixed number of machines, which are jobs of an array."""

from __future__ import annotations

import json
from contextlib import suppress

import psutil
import pytest

from helpers.jobs import Job
from helpers.waiting import wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]


def machine_processes(conn):
    """Return the processes of machines that join by this connection file."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "join" in process.cmdline() and "srun" not in process.name():
                processes += [process] * (process.cwd() == str(conn.parent.parent))
    return processes


def test_lost_and_cancelled_machines_are_replaced(slurm, symmetric, endless_task):
    out = slurm.directory / "out"
    slow = ["--emulate-speeds", "1,1,1", "--emulate-base", "150"]
    words = ["run", symmetric.path, *endless_task.prepare(symmetric), "--out", "out", *slow]
    command = slurm.run("cec-mpi", "slurm", "--keep", 3, "--time", "10:00", *words)
    assert command == "sbatch cec-mpi-master.sbatch\n"
    job = Job(slurm, slurm.run("sbatch", "--parsable", "cec-mpi-master.sbatch").strip())

    def running_jobs():
        words = ("--noheader", "--array", f"--name=cec-mpi-machines-{job.number}")
        return slurm.query("squeue", *words, "--states=RUNNING", "--format=%i").split()

    wait_until(lambda: len(running_jobs()) == 3, describe=job.output, pause=0.2)
    job.wait_for_steps(out, 3)
    first = running_jobs()
    machine_processes(out / "connection.json")[0].kill()
    wait_until(lambda: len(set(running_jobs()) & set(first)) == 2, describe=slurm.jobs, pause=0.2)
    wait_until(lambda: len(running_jobs()) == 3, describe=slurm.jobs, pause=0.2)
    second = running_jobs()
    slurm.run("scancel", second[0])
    wait_until(lambda: len(set(running_jobs()) - set(second)) == 1, describe=slurm.jobs, pause=0.2)
    slurm.run("scancel", "--signal=USR1", "--batch", job.number)
    assert job.wait("PENDING") == "PENDING"
    assert len(running_jobs()) == 3  # they wait for the master
    job.resume()
    job.wait("RUNNING")
    endless_task.stop()
    assert job.wait() == "COMPLETED", job.output()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["products"] > 0
    assert summary["wrong"] == 0
    wait_until(lambda: not slurm.jobs(), describe=slurm.jobs, pause=0.2)  # machines have left
