"""A run in one job, and machines that join it in another."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.needs("slurm")


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [pytest.param("srun -n 1", 1, marks=pytest.mark.any_mpi), ("mpirun -n 2", 2)],
)
def test_machines_of_another_job_serve_a_run(slurm, symmetric, launcher, ranks):
    W = np.random.default_rng(8).standard_normal((9, 60))
    np.save(slurm.directory / "W.npy", W)
    run = f"cec-mpi run {symmetric.path} --out out vectors=W.npy --accept conn"
    jobs = []
    for name, command in (
        ("run", f"{launcher} {run}"),
        ("join", f"srun -n {3 - ranks} cec-mpi join conn --retry 100"),  # as many as are missing
    ):
        script = slurm.directory / f"{name}.sbatch"
        script.write_text(f"#!/bin/bash\n{command}\n")
        jobs.append(slurm.submit(script, options="--nodes=1 --ntasks=2"))
    for job in jobs:
        assert job.wait() == "COMPLETED", job.output()
    # A step needs two machines, so machines of both jobs have served the run.
    result = np.load(slurm.directory / "out" / "result.npy")
    np.testing.assert_allclose(result, W @ symmetric.X.T, atol=1e-11)
