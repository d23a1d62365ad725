"""Which launcher it was, and which library fits it, from environments as launchers make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cec_mpi.runtime.processes.launcher import Launcher, detect_launcher
from cec_mpi.runtime.processes.start import (
    can_start_mpi,
    find_library_file,
    parse_library,
)
from cec_mpi.runtime.processes.start import launcher_mismatch_message as message

# As seen with Open MPI 5.0 and 4.1, MPICH 5.0 and 4.0, Intel MPI 2021 and Slurm 22.05.
RANK_2_OF_3 = {"SLURM_NTASKS": "3", "SLURM_PROCID": "2"}
STEP = {**RANK_2_OF_3, "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7"}
HYDRA = {"PMI_SIZE": "3", "PMI_RANK": "2", "PMI_FD": "9", "MPI_LOCALNRANKS": "3"}
OLD_OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_RANK": "2",
    "PMIX_NAMESPACE": "1",
}
ENVIRONMENTS = {
    "mpirun of Open MPI 4": OLD_OPEN_MPI,
    "mpirun of Open MPI 5": {**OLD_OPEN_MPI, "PRTE_LAUNCHED": "1"},
    "mpiexec of MPICH": HYDRA,
    "mpirun of Intel MPI": {**HYDRA, "I_MPI_HYDRA_UUID": "91100000-e5ef"},
    "srun --mpi=none": STEP,
    "srun --mpi=pmi2": {
        **STEP,
        "PMI_SIZE": "3",
        "PMI_RANK": "2",
        "PMI_FD": "11",
        "SLURM_MPI_TYPE": "pmi2",
    },
    "srun --mpi=pmix": {**STEP, "PMIX_NAMESPACE": "slurm.pmix.3.0", "SLURM_MPI_TYPE": "pmix"},
}
LIBRARIES = {
    "Open MPI 5": "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11",
    "Open MPI 4": "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
    "MPICH": "MPICH Version:      5.0.2\nMPICH configure:    --with-device=ch4:ucx,ofi\n",
    "MPICH with PMIx": "MPICH Version:\t4.2.0\nMPICH configure:\t--with-pmix=/usr --with-pm=no\n",
    "Intel MPI": "Intel(R) MPI Library 2021.18.1 for Linux* OS\n\0",
    "another": "CRAY MPICH version 8.1.25",
}


def library(name):
    return parse_library(LIBRARIES[name], None)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("mpirun of Open MPI 4", "Open MPI's mpirun"),
        ("mpirun of Open MPI 5", "Open MPI's mpirun"),
        ("mpiexec of MPICH", "MPICH's mpiexec"),
        ("mpirun of Intel MPI", "Intel MPI's mpirun"),
        ("srun --mpi=none", "srun without --mpi"),
        ("srun --mpi=pmi2", "srun --mpi=pmi2"),
        ("srun --mpi=pmix", "srun --mpi=pmix"),
    ],
)
def test_each_launcher_is_known(environment, name):
    found = detect_launcher(ENVIRONMENTS[environment])
    assert (found.name, found.size, found.rank) == (name, 3, 2)
    assert found.is_srun == name.startswith("srun")


@pytest.mark.parametrize("name", ["mpirun of Open MPI 5", "mpiexec of MPICH"])
def test_what_srun_starts_on_other_nodes_for_a_launcher_is_that_launchers(name):
    daemon = {**STEP, "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}
    assert detect_launcher({**daemon, **ENVIRONMENTS[name]}).size == 3


def test_a_task_that_srun_has_started_with_a_terminal():
    own = {"SLURM_PTY_PORT": "37481", "SLURM_TASK_PID": str(os.getpid())}
    assert detect_launcher({**STEP, **own}).size == 3


def test_a_step_of_fewer_tasks_than_the_job():
    environment = {**STEP, "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "3"}
    assert detect_launcher(environment).size == 3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        RANK_2_OF_3,  # a batch script of old
        {**STEP, "SLURM_STEP_ID": "4294967291"},  # a batch script
        {**STEP, "SLURM_STEP_ID": "4294967290"},  # the shell of salloc
        {**STEP, "SLURM_PTY_PORT": "37481", "SLURM_TASK_PID": "1"},  # a shell of srun -n 3 --pty
        {**ENVIRONMENTS["srun --mpi=pmi2"], "SLURM_PTY_PORT": "37481", "SLURM_TASK_PID": "1"},
        {**STEP, "SLURM_PROCID": ""},
        {**STEP, "SLURM_STEP_ID": "batch"},
    ],
)
def test_a_process_that_was_started_by_hand(environment):
    assert detect_launcher(environment) is None


def test_a_launcher_of_which_nothing_else_is_known():
    assert detect_launcher({"PMI_SIZE": "4", "PMI_RANK": "1"}).size == 4


MAY_JOIN = {  # as tried; where this says yes, the size of the world has the last word
    "Open MPI 5": "mpirun of Open MPI 4, mpirun of Open MPI 5, srun --mpi=pmix",
    "Open MPI 4": "mpirun of Open MPI 4, srun --mpi=pmix",
    "MPICH": "mpiexec of MPICH, mpirun of Intel MPI, srun --mpi=pmi2, srun --mpi=none",
    "Intel MPI": "mpirun of Intel MPI, srun --mpi=none, srun --mpi=pmi2, srun --mpi=pmix",
    "MPICH with PMIx": ", ".join(ENVIRONMENTS),
    "another": ", ".join(ENVIRONMENTS),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_library_is_kept_from_aborting_where_it_does_not_fit(name, environment):
    launcher = detect_launcher(ENVIRONMENTS[environment])
    found = can_start_mpi(launcher, library(name), ENVIRONMENTS[environment])
    assert found == (environment in MAY_JOIN[name].split(", "))


def test_an_open_mpi_that_was_built_for_pmi2(tmp_path):
    (tmp_path / "openmpi").mkdir()
    (tmp_path / "openmpi" / "mca_pmix_s2.so").touch()
    built = parse_library(LIBRARIES["Open MPI 4"], tmp_path / "libmpi.so.40")
    environment = ENVIRONMENTS["srun --mpi=pmi2"]
    assert can_start_mpi(detect_launcher(environment), built, environment)


def test_names_of_libraries():
    names = {library(name).name for name in LIBRARIES}
    assert {"Open MPI v5.0.11", "MPICH 5.0.2", "Intel(R) MPI Library 2021.18.1"} < names


@pytest.mark.parametrize(
    ("name", "there", "expected"),
    [
        ("Open MPI 5", ["mpirun", "mpiexec"], "mpirun"),
        ("Open MPI 4", ["mpirun", "mpirun.openmpi", "mpiexec.mpich"], "mpirun.openmpi"),
        ("MPICH", ["mpiexec", "mpirun"], "mpiexec"),
        ("Intel MPI", ["mpirun", "mpiexec.hydra"], "mpiexec.hydra"),
    ],
)
def test_the_message_names_the_launcher_beside_the_library(tmp_path, name, there, expected):
    (tmp_path / "lib" / "deeper").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for program in there:
        (tmp_path / "bin" / program).touch(0o755)
    found = parse_library(LIBRARIES[name], tmp_path / "lib" / "deeper" / "libmpi.so")
    text = message(Launcher("MPICH", "MPICH's mpiexec", 7, 0), found)
    assert text.startswith(f"MPICH's mpiexec started 7 processes, but {found.name}, the MPI of ")
    assert text.endswith(f"start them with {tmp_path}/bin/{expected}")


@pytest.mark.parametrize("where", ["home/opt/mpi/lib", "home/libexec", "home"])
def test_a_launcher_that_lies_elsewhere_is_not_the_librarys_own(tmp_path, where):
    """As that of /usr/bin is not, for a library in /usr/local/mpi/lib."""
    (tmp_path / where).mkdir(parents=True)
    for bin in (tmp_path / "bin", tmp_path / "home" / "bin"):
        bin.mkdir()
        (bin / "mpirun").touch(0o755)
    found = parse_library(LIBRARIES["Open MPI 5"], tmp_path / where / "libmpi.so.40")
    assert found.program is None
    text = message(Launcher("MPICH", "MPICH's mpiexec", 7, 0), found)
    assert text.endswith("start them with Open MPI's own mpirun")


def test_a_library_without_launcher_is_not_given_that_of_the_root():
    """Which every Linux with an MPI has: /bin is /usr/bin there."""
    for path in ("/lib/libmpi.so.40", "/no/such/libmpi.so.40", "/libmpi.so.40"):
        assert parse_library(LIBRARIES["Open MPI 5"], Path(path)).program is None


@pytest.mark.parametrize("path", ["/opt/my mpi/lib/libmpi.so.40", "/usr/lib/libmpich.so.12.2.2"])
def test_the_file_of_the_library(path):
    maps = (
        "55d0c0a0000-55d0c0a1000 r--p 00000000 fe:00 1049 /opt/libmpi.so/bin/python3.12\n"
        "7f57c600000-7f57c659000 rw-p 00000000 00:00 0 \n"
        f"7f57c659000-7f57c8be000 r-xp 00059000 fe:00 2148623                    {path}\n"
        "7ffd2e5f000-7ffd2e680000 rw-p 00000000 00:00 0                          [stack]\n"
    )
    assert find_library_file(maps) == Path(path)
    assert find_library_file(maps.replace("libmpi", "libother")) is None


@pytest.mark.parametrize(
    ("name", "kind"), [("Open MPI 5", "pmix"), ("MPICH", "pmi2"), ("MPICH with PMIx", "pmix")]
)
def test_the_message_says_what_srun_needs(name, kind):
    launcher = detect_launcher(ENVIRONMENTS["srun --mpi=none"])
    assert f"use srun --mpi={kind} (" in message(launcher, library(name))


def test_the_message_says_what_this_slurm_cannot_load():
    launcher = detect_launcher(ENVIRONMENTS["srun --mpi=none"])
    text = message(launcher, library("Open MPI 5"), "libpmix.so is missing")
    assert "or srun --mpi=pmix once Slurm can load it: libpmix.so is missing" in text
