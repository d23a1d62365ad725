"""A Slurm cluster of four nodes on this computer, for all tests in this folder."""

from __future__ import annotations

import os
import random
import subprocess

import pytest

from helpers import ROOT
from helpers.jobs import SlurmClient
from helpers.mpi_at_hand import library
from helpers.needs import reason_to_skip
from helpers.waiting import LIMIT, wait_until

SCRIPT = ROOT / "scripts" / "slurm" / "cluster"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Environment variables by which Slurm's commands find the cluster."""
    if reason := reason_to_skip("slurm"):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("cluster")
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    for _ in range(20):  # until its ports are free; each worker has its own range
        port = 20_000 + 2_500 * worker + random.randrange(0, 2_500, 10)
        settings = {"NODES": "4", "CPUS": "4", "PORT": str(port)}
        started = subprocess.run(
            [SCRIPT, "up", directory],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        if started.returncode == 0 or "is in use" not in started.stderr:
            break
    assert started.returncode == 0, started.stderr
    variables = {"SLURM_CONF": str(directory / "slurm.conf")}
    if library().startswith("Open MPI v4"):
        # This MPI names shared memory by host and node-local rank, and these nodes are one host.
        variables["OMPI_MCA_btl"] = "self,tcp"
    yield variables
    subprocess.run([SCRIPT, "down", directory], check=True, timeout=LIMIT)


@pytest.fixture
def slurm(cluster, tmp_path):
    """A client of the cluster, whose jobs end with the test."""
    variables = cluster | {"OMPI_MCA_mpi_yield_when_idle": "1"}  # because cores are shared
    slurm = SlurmClient(variables, tmp_path)
    yield slurm
    slurm.cancel_jobs()
    wait_until(lambda: not slurm.jobs(), describe=slurm.jobs, pause=0.1)
