"""An srun that does not connect its processes: one message with the remedy."""

from __future__ import annotations

import re
import subprocess

import pytest

from cec_mpi.runtime.processes.start import parse_library
from helpers.mpi_at_hand import library

SRUN = ("srun", "--quiet", "--mpi=none", "-n", 2, "-N", 2)


def test_a_run_whose_processes_are_not_connected_is_refused(run, cluster, small_store, tmp_path):
    words = ["cec-mpi", "run", small_store.path, "--out", tmp_path / "out", "power"]
    done = run([*SRUN, *words], variables=cluster)
    assert done.returncode == 2
    (message,) = [line for line in done.stderr.splitlines() if "cec-mpi: " in line]
    assert message.startswith("cec-mpi: error: srun without --mpi started 2 processes, but ")
    assert "srun --mpi=pm" in message
    assert "in the batch script" in message
    assert "Traceback" not in done.stderr


@pytest.mark.any_mpi
def test_doctor_lists_the_types_of_srun(run, cluster):
    done = run(["cec-mpi", "doctor"], variables=cluster)
    assert done.returncode == 0
    assert "srun --mpi  " in done.stdout
    assert "pmi2" in done.stdout


@pytest.mark.needs("slurm-pmix", "hosts")
def test_a_library_that_slurm_cannot_load_is_named_if_the_mpi_needs_it(run, cluster):
    """In a namespace the library is an empty file, although Slurm lists it."""
    libraries = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    (file,) = re.findall(r"libpmix\.so .*=> (.*)", libraries.stdout)
    hide = 'mount --bind /dev/null "$0" && exec "$@"'
    words = [*SRUN, "unshare", "--mount", "sh", "-c", hide, file, "cec-mpi", "doctor"]
    done = run(words, variables=cluster)
    printed = done.stdout + done.stderr
    is_needed = parse_library(library(), None).srun_type == "pmix"
    assert printed.count("libpmix.so is missing (on Debian: apt install libpmix-dev") == is_needed
    assert "Traceback" not in printed
