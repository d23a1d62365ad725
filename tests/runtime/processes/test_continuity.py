"""What environments say of the others when a process is killed, and which job they are of."""

from __future__ import annotations

import pytest

from cec_mpi.runtime.processes.launcher import continuity, detect_launcher, job_id

# As seen with Open MPI 5.0.11 and 4.1.4, MPICH 5.0.2, Intel MPI 2021.18 and Slurm 22.05.
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
OPEN_MPI_5 = {**OPEN_MPI, "PRTE_LAUNCHED": "1", "PMIX_NAMESPACE": "prterun-vm-11492@1"}
OPEN_MPI_4 = {**OPEN_MPI, "PMIX_NAMESPACE": "900071425"}
HYDRA = {"PMI_SIZE": "3", "PMI_RANK": "2", "PMI_FD": "9", "MPI_LOCALNRANKS": "3"}
INTEL = {**HYDRA, "I_MPI_HYDRA_UUID": "a82d0000-ddb7-bf8c-0361-060045061662"}
STEP = {
    "SLURM_JOB_ID": "25",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
}
DEFAULTS = {"KillOnBadExit": "0", "WaitTime": "0 sec"}
ULFM, RECOVERY = "mpirun --with-ft ulfm", "mpirun --enable-recovery"
EXPORT = "export SLURM_KILL_BAD_EXIT=0 SLURM_WAIT=0 before srun"


def of(environ, settings=None):
    return continuity(detect_launcher(environ), environ, settings)


@pytest.mark.parametrize(
    ("environ", "continues", "remedy"),
    [
        ({}, True, ""),
        (OPEN_MPI_5, None, ULFM),  # with --continuous, too
        ({**OPEN_MPI_5, "OMPI_MCA_mpi_ft_enable": "1"}, True, ""),  # --with-ft ulfm
        (OPEN_MPI_4, None, RECOVERY),
        ({**OPEN_MPI_4, "OMPI_MCA_orte_enable_recovery": "1"}, True, ""),
        ({**OPEN_MPI_4, "OMPI_MCA_mpi_ft_enable": "1"}, None, RECOVERY),  # 4 knows no ULFM
        (HYDRA, False, "use srun, or run without a launcher"),
        (INTEL, True, ""),
        ({"PMI_SIZE": "3", "PMI_RANK": "2"}, None, "run without a launcher"),
    ],
)
def test_what_mpirun_shows(environ, continues, remedy):
    found = of(environ)
    assert found.continues is continues
    assert remedy in found.remedy
    assert bool(found.remedy) == bool(remedy)


@pytest.mark.parametrize(
    ("variables", "settings", "continues"),
    [
        ({}, DEFAULTS, True),
        ({}, {**DEFAULTS, "KillOnBadExit": "1"}, False),
        ({}, {**DEFAULTS, "WaitTime": "30 sec"}, False),
        ({}, None, None),
        ({"SLURM_KILL_BAD_EXIT": "0"}, {}, None),
        ({"SLURM_KILL_BAD_EXIT": "1"}, None, False),
        ({"SLURM_KILL_BAD_EXIT": "1"}, DEFAULTS, False),
        ({"SLURM_KILL_BAD_EXIT": ""}, DEFAULTS, False),
        ({"SLURM_WAIT": "3"}, DEFAULTS, False),
        ({"SLURM_WAIT": ""}, DEFAULTS, True),
        (
            {"SLURM_KILL_BAD_EXIT": "0", "SLURM_WAIT": "0"},
            {"KillOnBadExit": "1", "WaitTime": "30 sec"},
            True,
        ),
        ({"SLURM_KILL_BAD_EXIT": "0", "SLURM_WAIT": "0"}, None, True),
    ],
)
def test_what_srun_shows(variables, settings, continues):
    found = of({**STEP, **variables}, settings)
    assert found.continues is continues
    assert found.remedy == ("" if continues else EXPORT)


def test_it_is_one_sentence():
    assert str(of(INTEL)) == "if a process is killed, the others continue"
    assert str(of(HYDRA)).startswith(
        "if a process is killed, the launcher ends all processes: MPICH's mpiexec has "
    )
    text = str(of(OPEN_MPI_5))
    assert text.startswith("the others may not continue if a process is killed: start ")


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, ""),
        (OPEN_MPI_5, "prterun-vm-11492@1"),
        ({**STEP, **OPEN_MPI_5}, "prterun-vm-11492@1"),  # mpirun in a job of Slurm
        (OPEN_MPI, ""),
        (HYDRA, ""),
        ({**HYDRA, "PMIX_NAMESPACE": "slurm.pmix.25.0"}, ""),  # of an interactive step
        (INTEL, INTEL["I_MPI_HYDRA_UUID"]),
        (STEP, "25.0"),
        ({**STEP, "PMIX_NAMESPACE": "slurm.pmix.25.0"}, "25.0"),
        ({**STEP, "PMIX_NAMESPACE": "slurm.pmix.25.0", "SLURM_RESTART_COUNT": "1"}, "25.0.1"),
        ({**STEP, "SLURM_STEP_ID": "4294967291"}, ""),  # a batch script
    ],
)
def test_the_job(environ, job):
    assert job_id(environ) == job
