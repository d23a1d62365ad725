"""An srun that does not connect its processes: one message with the remedy."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from cec_mpi.runtime.processes.start import parse_library
from helpers.mpi_at_hand import library

SRUN = ("srun", "--quiet", "--mpi=none", "-n", 2, "-N", 2)
MESSAGE = "srun without --mpi started 2 processes, but "


@pytest.mark.parametrize("command", ["run", pytest.param("doctor", marks=pytest.mark.any_mpi)])
def test_a_command_is_refused(run, cluster, small_store, tmp_path, command):
    words = [command, *(() if command == "doctor" else (small_store.path,))]
    if command == "run":
        words += ["--out", tmp_path / "out", "power"]
    done = run([*SRUN, "cec-mpi", *words], variables=cluster)
    assert done.returncode == 2
    messages = [line for line in done.stderr.splitlines() if "cec-mpi: " in line]
    assert len(messages) == 1
    assert messages[0].startswith(f"cec-mpi: error: {MESSAGE}")
    assert "srun --mpi=pm" in messages[0]
    assert "in the batch script" in messages[0]
    assert "Traceback" not in done.stderr


@pytest.mark.needs("import-anywhere")
def test_a_program_raises(run, cluster, small_store, tmp_path):
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
    assert done.stderr.count(MESSAGE) == 1
    assert "inside" not in done.stdout


@pytest.mark.any_mpi
def test_doctor_lists_the_types_of_srun(run, cluster):
    done = run(["cec-mpi", "doctor"], variables=cluster)
    assert done.returncode == 0
    assert "srun --mpi  " in done.stdout
    assert "pmi2" in done.stdout


@pytest.mark.needs("slurm-pmix", "hosts")
@pytest.mark.parametrize("launcher", [(), SRUN], ids=["by hand", "in a step"])
def test_a_library_that_slurm_lists_and_cannot_load(run, cluster, launcher):
    """The library is an empty file in a namespace: an error if the MPI needs it."""
    libraries = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    (file,) = re.findall(r"libpmix\.so .*=> (.*)", libraries.stdout)
    hide = 'mount --bind /dev/null "$0" && exec "$@"'
    words = [*launcher, "unshare", "--mount", "sh", "-c", hide, file, "cec-mpi", "doctor"]
    done = run(words, variables=cluster)
    printed = done.stdout + done.stderr
    is_needed = parse_library(library(), None).srun_type == "pmix"
    assert printed.count("libpmix.so is missing (on Debian: apt install libpmix-dev") == is_needed
    assert "Traceback" not in printed
