"""How the tests and scripts start ranks of the MPI at hand."""

from __future__ import annotations

import subprocess

import pytest

from helpers import ROOT, mpi_at_hand


def put(directory, name, content):
    (directory / name).write_bytes(content)
    (directory / name).chmod(0o755)
    return str(directory / name)


def test_a_script_gives_way_to_the_program_that_it_starts(tmp_path):
    assert mpi_at_hand.mpirun(str(tmp_path)) is None
    script = put(tmp_path, "mpirun", b"#!/bin/sh\n")
    assert mpi_at_hand.mpirun(str(tmp_path)) == script  # somebody's own
    hydra = put(tmp_path, "mpiexec.hydra", b"\x7fELF")
    assert mpi_at_hand.mpirun(str(tmp_path)) == hydra
    program = put(tmp_path, "mpirun", b"\x7fELF")
    assert mpi_at_hand.mpirun(str(tmp_path)) == program


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", "impi"])
def test_tests_started_by_hand_get_the_variables_of_the_script(mpi):
    """What a shell has after sourcing a file is what is read out of openmpi.env."""
    words = f"root={ROOT}; source $root/.ci/{mpi}.env; echo $venv; env"
    done = subprocess.run(
        ["env", "-i", "bash", "-c", words], capture_output=True, text=True, check=True
    )
    venv, *lines = done.stdout.splitlines()
    assert venv.startswith(".venv")
    exported = {line for line in lines if not line.startswith(("PWD=", "SHLVL=", "_="))}
    read = {f"{name}={value}" for name, value in mpi_at_hand.one_box().items()}
    assert exported == (read if mpi == "openmpi" else set())
