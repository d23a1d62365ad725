"""What srun lists, and what of that it can load, from what several versions print."""

from __future__ import annotations

import pytest

from cec_mpi.runtime.processes.launcher import (
    parse_slurm_settings,
    parse_srun_problem,
    parse_srun_types,
)

NO_LIBRARY = """\
srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library
srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed
srun: error: MPI: Cannot create context for mpi/pmix
srun: error: MPI: Unable to load any plugin
srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types
"""
NO_JOB = "srun: error: Unable to confirm allocation for job 67108862: Invalid job id specified\n"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (
            "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
            "specific pmix plugin versions available: pmix_v4\n",
            ("none", "pmi2", "pmix"),
        ),
        (
            "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n",
            ("none", "openmpi", "pmi2"),
        ),
        ("srun: error: Unable to contact slurm controller\n", ()),
        ("", ()),
    ],
)
def test_what_srun_says_that_it_has(text, kinds):
    """Slurm 22.05, and 20.11."""
    assert parse_srun_types(text) == kinds


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
        ("srun: error: Unable to contact slurm controller\n", ""),
        ("", ""),
    ],
)
def test_why_srun_cannot_load_what_it_lists(text, problem):
    assert parse_srun_problem("pmix", text) == problem


def test_settings_of_slurm():
    text = (
        "Configuration data as of 2026-11-24T11:00:13\n"
        "KillOnBadExit           = 0\n"
        "PropagateResourceLimitsExcept = (null)\n"
        "WaitTime                = 30 sec\n\n"
        "Slurmctld(primary) at vm is UP\n"
    )
    settings = parse_slurm_settings(text)
    assert (settings["KillOnBadExit"], settings["WaitTime"]) == ("0", "30 sec")
    assert parse_slurm_settings("slurm_load_ctl_conf error: Unable to contact controller\n") == {}
