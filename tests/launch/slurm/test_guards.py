"""An srun that starts processes and connects none: one message, with what it needs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from cec_mpi.runtime.processes.start import parse_library
from helpers.mpi_at_hand import library

SRUN = ("srun", "--quiet", "--mpi=none", "-n", 2, "-N", 2)
TOLD = "srun without --mpi started 2 processes, but "


@pytest.mark.parametrize("command", ["run", pytest.param("doctor", marks=pytest.mark.any_mpi)])
def test_a_command(run, cluster, small_store, tmp_path, command):
    words = [command, *(() if command == "doctor" else (small_store.path,))]
    if command == "run":
        words += ["--out", tmp_path / "out", "power"]
    done = run([*SRUN, "cec-mpi", *words], variables=cluster)
    assert done.returncode == 2
    messages = [line for line in done.stderr.splitlines() if "cec-mpi: " in line]
    assert len(messages) == 1
    assert messages[0].startswith(f"cec-mpi: error: {TOLD}")
    assert "srun --mpi=pm" in messages[0]  # now, or once Slurm can load its plugin
    assert "in the batch script" in messages[0]
    assert "Traceback" not in done.stderr


@pytest.mark.needs("import-anywhere")
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


@pytest.mark.any_mpi
def test_doctor_says_what_srun_has(run, cluster):
    done = run(["cec-mpi", "doctor"], variables=cluster)
    assert done.returncode == 0
    assert "srun --mpi  " in done.stdout
    assert "pmi2" in done.stdout


@pytest.mark.needs("slurm-pmix", "hosts")
@pytest.mark.parametrize("launcher", [(), SRUN], ids=["by hand", "in a step"])
def test_a_library_that_slurm_lists_and_cannot_load(run, cluster, launcher):
    """In a namespace in which the library is an empty file: an error where the MPI needs it."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    (file,) = re.findall(r"libpmix\.so .*=> (.*)", known.stdout)
    hide = 'mount --bind /dev/null "$0" && exec "$@"'
    words = [*launcher, "unshare", "--mount", "sh", "-c", hide, file, "cec-mpi", "doctor"]
    done = run(words, variables=cluster)
    printed = done.stdout + done.stderr
    is_needed = parse_library(library(), None).srun_type == "pmix"
    assert printed.count("libpmix.so is missing (on Debian: apt install libpmix-dev") == is_needed
    assert "Traceback" not in printed
