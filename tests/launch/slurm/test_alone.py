"""A single process of srun, such as a shell, behaves like one without a launcher."""

from __future__ import annotations

import pytest

from cec_mpi.runtime.records.recorder import read_steps

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]


@pytest.mark.parametrize(
    "words",
    [
        ("srun", "-n", 1),
        ("srun", "-n", 1, "--pty", "bash", "-c", '"$@"', "bash"),
    ],
    ids=str,
)
def test_a_run_starts_its_machines_itself(run, cluster, symmetric, tmp_path, words):
    out = tmp_path / "out"
    command = ["cec-mpi", "run", symmetric.path, "--out", out, "power", "--speeds", "1,1,1"]
    done = run([*words, *command, "--inject", "kill:1@2"], variables=cluster)
    assert done.returncode == 0, done.stderr
    _, steps = read_steps(out / "steps.jsonl")
    lost = [event["lost"] for step in steps for event in step["events"]]
    assert lost == [1]
