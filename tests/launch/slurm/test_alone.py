"""One process that srun starts, a shell for example, is as one that was started by hand."""

from __future__ import annotations

import sys

import pytest

from cec_mpi.runtime.records.recorder import read_steps

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]


@pytest.mark.parametrize(
    "words",
    [
        ("srun", "-n", 1),
        ("srun", "-n", 1, "--pty", "bash", "-c", '"$@"', "bash"),
        ("salloc", "-n", 4, "srun", "-n", 1),
    ],
    ids=str,
)
def test_a_run_starts_its_machines_itself(run, cluster, symmetric, tmp_path, words):
    out = tmp_path / "out"
    command = ["cec-mpi", "run", symmetric.path, "--out", out, "power"]
    done = run([*words, *command, "--inject", "kill:1@2"], variables=cluster)
    assert done.returncode == 0, done.stderr
    _, steps = read_steps(out / "steps.jsonl")
    lost = [event["lost"] for step in steps for event in step["events"]]
    assert lost == [1]


def test_a_run_and_a_program_in_one_process(run, cluster, symmetric, tmp_path):
    command = ["cec-mpi", "run", symmetric.path, "--out", tmp_path / "out", "power"]
    done = run(["srun", "-n", 1, *command, "--serial"], variables=cluster)
    assert done.returncode == 0, done.stderr
    program = tmp_path / "program.py"
    program.write_text(
        f"import cec_mpi\nwith cec_mpi.open_operator({str(symmetric.path)!r}) as X:\n"
        "    print(X.shape)\n"
    )
    done = run(["srun", "-n", 1, sys.executable, program], variables=cluster)
    assert done.stdout == f"{symmetric.X.shape}\n", done.stderr
