"""Launchers, MPI libraries and Slurm, from environments and outputs of several versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cec_mpi.runtime.processes.launcher import (
    Launcher,
    detect_launcher,
    job_id,
    loss_policy,
    parse_slurm_settings,
    parse_srun_problem,
    parse_srun_types,
)
from cec_mpi.runtime.processes.start import can_start_mpi, find_library_file, parse_library
from cec_mpi.runtime.processes.start import launcher_mismatch_message as mismatch_message

# From Open MPI 5.0 and 4.1, MPICH 5.0 and 4.0, Intel MPI 2021 and Slurm 22.05.
BATCH = {"SLURM_NTASKS": "3", "SLURM_PROCID": "2"}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "25"}
SHELL = {"SLURM_PTY_PORT": "37481", "SLURM_TASK_PID": "1"}  # of srun --pty
PMI = {"PMI_SIZE": "3", "PMI_RANK": "2"}
HYDRA = {**PMI, "PMI_FD": "9", "MPI_LOCALNRANKS": "3"}
RANK_2_OF_3 = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}
OPEN_MPI_4 = {**RANK_2_OF_3, "PMIX_NAMESPACE": "900071425"}
OPEN_MPI_5 = {**RANK_2_OF_3, "PMIX_NAMESPACE": "prterun-vm-11492@1", "PRTE_LAUNCHED": "1"}
INTEL = {**HYDRA, "I_MPI_HYDRA_UUID": "91100000-e5ef"}
PMIX = {"PMIX_NAMESPACE": "slurm.pmix.25.0"}
ENVIRONMENTS = {
    "mpirun of Open MPI 4": OPEN_MPI_4,
    "mpirun of Open MPI 5": OPEN_MPI_5,
    "mpiexec of MPICH": HYDRA,
    "mpirun of Intel MPI": INTEL,
    "srun --mpi=none": STEP,
    "srun --mpi=pmi2": {**STEP, **PMI, "PMI_FD": "11", "SLURM_MPI_TYPE": "pmi2"},
    "srun --mpi=pmix": {**STEP, **PMIX, "SLURM_MPI_TYPE": "pmix"},
}
LIBRARIES = {
    "Open MPI 5": "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11",
    "Open MPI 4": "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
    "MPICH": "MPICH Version:      5.0.2\nMPICH configure:    --with-device=ch4:ucx,ofi\n",
    "MPICH with PMIx": "MPICH Version:\t4.2.0\nMPICH configure:\t--with-pmix=/usr --with-pm=no\n",
    "Intel MPI": "Intel(R) MPI Library 2021.18.1 for Linux* OS\n\0",
    "another": "CRAY MPICH version 8.1.25",
}


def library(name, path=None):
    return parse_library(LIBRARIES[name], path)


# --- launchers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "name", "is_srun"),
    [
        (OPEN_MPI_5, "Open MPI's mpirun", False),
        (HYDRA, "MPICH's mpiexec", False),
        (INTEL, "Intel MPI's mpirun", False),
        (PMI, "a launcher", False),
        (ENVIRONMENTS["srun --mpi=none"], "srun without --mpi", True),
        (ENVIRONMENTS["srun --mpi=pmi2"], "srun --mpi=pmi2", True),
        # A launcher that starts its daemons by srun:
        ({**STEP, "SLURM_NTASKS": "2", "SLURM_PROCID": "1", **HYDRA}, "MPICH's mpiexec", False),
        # A step with a terminal, and one of fewer tasks than the job:
        ({**STEP, **SHELL, "SLURM_TASK_PID": str(os.getpid())}, "srun without --mpi", True),
        ({**STEP, "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "3"}, "srun without --mpi", True),
    ],
)
def test_a_launcher_is_detected(environ, name, is_srun):
    launcher = detect_launcher(environ)
    assert launcher.name.startswith(name)
    assert (launcher.size, launcher.rank, launcher.is_srun) == (3, 2, is_srun)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        BATCH,  # a batch script of old versions
        {**STEP, "SLURM_STEP_ID": "4294967291"},  # a batch script
        {**STEP, "SLURM_STEP_ID": "4294967290"},  # the shell of salloc
        {**STEP, **SHELL},
        {**ENVIRONMENTS["srun --mpi=pmi2"], **SHELL},
        {**STEP, "SLURM_PROCID": ""},
        {**STEP, "SLURM_STEP_ID": "batch"},
    ],
)
def test_no_launcher_is_detected_in_scripts_and_shells(environ):
    assert detect_launcher(environ) is None


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, ""),
        (OPEN_MPI_5, "prterun-vm-11492@1"),
        ({**STEP, **OPEN_MPI_5}, "prterun-vm-11492@1"),  # mpirun in a job of Slurm
        (RANK_2_OF_3, ""),
        ({**HYDRA, **PMIX}, ""),  # in an interactive step
        (INTEL, "91100000-e5ef"),
        ({**STEP, **PMIX}, "25.0"),
        ({**STEP, **PMIX, "SLURM_RESTART_COUNT": "1"}, "25.0.1"),
        ({**STEP, "SLURM_STEP_ID": "4294967291"}, ""),
    ],
)
def test_the_identifier_of_a_job_is_that_of_its_launcher(environ, job):
    assert job_id(environ) == job


# --- loss policy ---------------------------------------------------------------------------

DEFAULTS = {"KillOnBadExit": "0", "WaitTime": "0 sec"}
KILL, WAIT = "SLURM_KILL_BAD_EXIT", "SLURM_WAIT"
EXPORT = "export SLURM_KILL_BAD_EXIT=0 SLURM_WAIT=0 before srun"
RECOVERY = "mpirun --enable-recovery"


@pytest.mark.parametrize(
    ("environ", "settings", "others_continue", "remedy"),
    [
        ({}, None, True, ""),
        (OPEN_MPI_5, None, None, "mpirun --with-ft ulfm"),
        ({**OPEN_MPI_5, "OMPI_MCA_mpi_ft_enable": "1"}, None, True, ""),
        (OPEN_MPI_4, None, None, RECOVERY),
        ({**OPEN_MPI_4, "OMPI_MCA_orte_enable_recovery": "1"}, None, True, ""),
        ({**OPEN_MPI_4, "OMPI_MCA_mpi_ft_enable": "1"}, None, None, RECOVERY),
        (HYDRA, None, False, "use srun, or run without a launcher"),
        (INTEL, None, True, ""),
        (PMI, None, None, "run without a launcher"),
        (STEP, DEFAULTS, True, ""),
        (STEP, {**DEFAULTS, "KillOnBadExit": "1"}, False, EXPORT),
        (STEP, {**DEFAULTS, "WaitTime": "30 sec"}, False, EXPORT),
        (STEP, None, None, EXPORT),
        ({**STEP, KILL: "0"}, {}, None, EXPORT),
        ({**STEP, KILL: ""}, DEFAULTS, False, EXPORT),
        ({**STEP, WAIT: ""}, DEFAULTS, True, ""),
        ({**STEP, KILL: "0", WAIT: "0"}, {"KillOnBadExit": "1", "WaitTime": "30 sec"}, True, ""),
    ],
)
def test_the_loss_policy_depends_on_the_launcher_and_its_settings(
    environ, settings, others_continue, remedy
):
    result = loss_policy(detect_launcher(environ), environ, settings)
    assert result.others_continue is others_continue
    assert remedy in result.remedy
    assert bool(result.remedy) == bool(remedy)
    sentences = {
        True: "if a process is killed, the others continue",
        False: "if a process is killed, the launcher ends all processes: ",
        None: "the others may not continue if a process is killed: ",
    }
    assert str(result).startswith(sentences[others_continue])


# --- libraries ----------------------------------------------------------------------------

CAN_START = {  # from experiments; the size of COMM_WORLD is decisive
    "Open MPI 5": "mpirun of Open MPI 4, mpirun of Open MPI 5, srun --mpi=pmix",
    "Open MPI 4": "mpirun of Open MPI 4, srun --mpi=pmix",
    "MPICH": "mpiexec of MPICH, mpirun of Intel MPI, srun --mpi=pmi2, srun --mpi=none",
    "Intel MPI": "mpirun of Intel MPI, srun --mpi=none, srun --mpi=pmi2, srun --mpi=pmix",
    "MPICH with PMIx": ", ".join(ENVIRONMENTS),
    "another": ", ".join(ENVIRONMENTS),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_mpi_is_started_only_if_the_launcher_fits_the_library(name):
    usable_environments = [
        environment
        for environment, environ in ENVIRONMENTS.items()
        if can_start_mpi(detect_launcher(environ), library(name), environ)
    ]
    assert sorted(usable_environments) == sorted(CAN_START[name].split(", "))


def test_an_open_mpi_with_pmi2_can_be_started_by_srun(tmp_path):
    (tmp_path / "openmpi").mkdir()
    (tmp_path / "openmpi" / "mca_pmix_s2.so").touch()
    environ = ENVIRONMENTS["srun --mpi=pmi2"]
    mpi = library("Open MPI 4", tmp_path / "libmpi.so.40")
    assert can_start_mpi(detect_launcher(environ), mpi, environ)


@pytest.mark.parametrize(
    ("name", "installed", "expected"),
    [
        ("Open MPI 5", ["mpirun", "mpiexec"], "mpirun"),
        ("Open MPI 4", ["mpirun", "mpirun.openmpi", "mpiexec.mpich"], "mpirun.openmpi"),
        ("MPICH", ["mpiexec", "mpirun"], "mpiexec"),
        ("Intel MPI", ["mpirun", "mpiexec.hydra"], "mpiexec.hydra"),
    ],
)
def test_the_message_names_the_launcher_of_the_library(tmp_path, name, installed, expected):
    (tmp_path / "lib" / "deeper").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for program in installed:
        (tmp_path / "bin" / program).touch(0o755)
    mpi = library(name, tmp_path / "lib" / "deeper" / "libmpi.so")
    text = mismatch_message(Launcher("MPICH", "MPICH's mpiexec", 7, 0), mpi)
    assert text.startswith(f"MPICH's mpiexec started 7 processes, but {mpi.name}, the MPI of ")
    assert text.endswith(f"start them with {tmp_path}/bin/{expected}")


@pytest.mark.parametrize("directory", ["home/opt/mpi/lib", "home/libexec", "home"])
def test_a_launcher_elsewhere_does_not_belong_to_the_library(tmp_path, directory):
    (tmp_path / directory).mkdir(parents=True)
    for bin in (tmp_path / "bin", tmp_path / "home" / "bin"):
        bin.mkdir()
        (bin / "mpirun").touch(0o755)
    mpi = library("Open MPI 5", tmp_path / directory / "libmpi.so.40")
    assert mpi.launcher_path is None
    text = mismatch_message(Launcher("MPICH", "MPICH's mpiexec", 7, 0), mpi)
    assert text.endswith("start them with Open MPI's own mpirun")


@pytest.mark.parametrize("path", ["/lib/libmpi.so.40", "/no/such/libmpi.so.40", "/libmpi.so.40"])
def test_the_root_directory_has_no_launcher_of_a_library(path):
    assert library("Open MPI 5", Path(path)).launcher_path is None


@pytest.mark.parametrize("path", ["/opt/my mpi/lib/libmpi.so.40", "/usr/lib/libmpich.so.12.2.2"])
def test_the_file_of_the_library_is_found(path):
    maps = (
        "55d0c0a0000-55d0c0a1000 r--p 00000000 fe:00 1049 /opt/libmpi.so/bin/python3.12\n"
        "7f57c600000-7f57c659000 rw-p 00000000 00:00 0 \n"
        f"7f57c659000-7f57c8be000 r-xp 00059000 fe:00 2148623                    {path}\n"
    )
    assert find_library_file(maps) == Path(path)
    assert find_library_file(maps.replace("libmpi", "libother")) is None


# --- Slurm --------------------------------------------------------------------------------

NO_LIBRARY = """\
srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library
srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed
srun: error: MPI: Cannot create context for mpi/pmix
srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types
"""
NO_JOB = "srun: error: Unable to confirm allocation for job 67108862: Invalid job id specified\n"
NO_CONTROLLER = "srun: error: Unable to contact slurm controller\n"
TYPES_22 = (
    "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
    "specific pmix plugin versions available: pmix_v4\n"
)
TYPES_20 = "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n"


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("Open MPI 5", "", "use srun --mpi=pmix ("),
        ("MPICH", "", "use srun --mpi=pmi2 ("),
        ("MPICH with PMIx", "", "use srun --mpi=pmix ("),
        ("Open MPI 5", "no library", "or srun --mpi=pmix once Slurm can load it: no library"),
    ],
)
def test_the_message_names_the_option_of_srun(name, problem, remedy):
    assert remedy in mismatch_message(detect_launcher(STEP), library(name), problem)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (TYPES_22, ("none", "pmi2", "pmix")),
        (TYPES_20, ("none", "openmpi", "pmi2")),
        (NO_CONTROLLER, ()),
    ],
)
def test_types_that_srun_lists_are_parsed(text, types):
    assert parse_srun_types(text) == types


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (NO_LIBRARY, "libpmix.so is missing (on Debian: apt install libpmix-dev, on each node)"),
        (
            NO_LIBRARY.partition("\n")[2],
            "Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed",
        ),
        (NO_JOB, ""),
        (NO_LIBRARY.replace("'pmix'", "'pmix_v3'"), ""),
    ],
)
def test_the_reason_why_srun_cannot_load_a_type_is_extracted(text, problem):
    assert parse_srun_problem("pmix", text) == problem


def test_settings_of_slurm_are_parsed():
    text = (
        "Configuration data as of 2026-11-24T11:00:13\n"
        "KillOnBadExit           = 0\n"
        "WaitTime                = 30 sec\n\n"
        "Slurmctld(primary) at vm is UP\n"
    )
    assert parse_slurm_settings(text) == {"KillOnBadExit": "0", "WaitTime": "30 sec"}
    assert parse_slurm_settings("slurm_load_ctl_conf error: Unable to contact controller\n") == {}
