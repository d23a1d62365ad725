"""A Slurm cluster of four nodes on this machine, which the tests here share."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from needs import reason_to_skip

SCRIPT = Path(__file__).parents[3] / "scripts" / "slurm" / "cluster"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Variables with which Slurm's commands find the cluster."""
    if reason := reason_to_skip("slurm"):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("cluster")
    for _ in range(20):  # until its ports are free
        port = random.randrange(20_000, 30_000, 10)
        size = {"NODES": "4", "CPUS": "4", "PORT": str(port)}
        up = subprocess.run(
            [SCRIPT, "up", directory],
            env={**os.environ, **size},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if up.returncode == 0 or "is taken" not in up.stderr:
            break
    assert up.returncode == 0, up.stderr
    yield {"SLURM_CONF": str(directory / "slurm.conf")}
    subprocess.run([SCRIPT, "down", directory], check=True, timeout=60)
