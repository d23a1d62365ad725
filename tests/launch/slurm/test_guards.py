"""An srun that starts processes and connects none: one message, with what it needs."""

from __future__ import annotations

import sys

import pytest

SRUN = ("srun", "--quiet", "--mpi=none", "-n", 4, "-N", 2)
TOLD = "srun without --mpi started 4 processes, but "


@pytest.mark.parametrize("command", ["run", "doctor", "verify"])
def test_a_command(run, cluster, small_store, tmp_path, command):
    words = [command, *(() if command == "doctor" else (small_store.path,))]
    if command == "run":
        words += ["--out", tmp_path / "out", "--task", "power"]
    done = run([*SRUN, "cec-mpi", *words], variables=cluster)
    assert done.returncode == 2
    messages = [line for line in done.stderr.splitlines() if "cec-mpi: " in line]
    assert len(messages) == 1
    assert messages[0].startswith(f"cec-mpi: error: {TOLD}")
    assert "use srun --mpi=pm" in messages[0]
    assert "Traceback" not in done.stderr


def test_a_program(run, cluster, small_store, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"""
from mpi4py import MPI
import cec_mpi
with cec_mpi.open_operator({str(small_store.path)!r}, MPI.COMM_WORLD) as X:
    print("inside")
""")
    done = run([*SRUN, sys.executable, path], variables=cluster)
    assert done.returncode != 0
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.count(TOLD) == 1
    assert "inside" not in done.stdout


def test_doctor_says_what_srun_has(run, cluster):
    done = run(["cec-mpi", "doctor"], variables=cluster)
    assert done.returncode == 0
    assert "srun --mpi   " in done.stdout
    assert "pmi2" in done.stdout
