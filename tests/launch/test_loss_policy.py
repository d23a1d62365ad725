"""The predicted and the observed reaction of launchers to a killed process."""

from __future__ import annotations

import pytest

from helpers.kill_one_process import PROCESSES, program_command, read_results
from helpers.mpi_at_hand import library

SURVIVAL, SLOW_END = 2, 60  # seconds until a process has survived, or all have ended


@pytest.fixture
def kill_one(run, tmp_path):
    """Return a function that runs the program; it returns exit code, detections and survivors."""

    def kill_one(*options, seconds=SURVIVAL, name="one"):
        directory = tmp_path / name
        done = run(["mpirun", *options, "-n", PROCESSES, *program_command(directory, seconds)])
        return done.returncode, *read_results(directory)

    return kill_one


def test_the_reaction_of_a_launcher_is_predicted_and_job_names_differ(kill_one):
    continues = library().startswith("Intel")
    code, detected, survivors = kill_one(seconds=SURVIVAL if continues else SLOW_END)
    assert survivors == (PROCESSES - 1 if continues else 0)
    assert code
    expected = {"Intel": True, "Open ": None, "MPICH": False}[library()[:5]]
    assert [detection["others_continue"] for detection in detected] == [expected] * PROCESSES
    assert all(bool(detection["remedy"]) == (not continues) for detection in detected)

    (other_job,) = {detection["job"] for detection in kill_one(seconds=0, name="two")[1]}
    (job,) = {detection["job"] for detection in detected}
    if library().startswith("MPICH"):
        assert job == other_job == ""
    else:
        assert "" != job != other_job != ""


@pytest.mark.needs("openmpi")
@pytest.mark.parametrize(
    ("options", "expected"), [(("--with-ft", "ulfm"), True), (("--continuous",), None)]
)
def test_options_of_open_mpi_let_other_ranks_continue(kill_one, options, expected):
    code, detected, survivors = kill_one(*options)
    assert (code, survivors) == (0, PROCESSES - 1)
    assert [detection["others_continue"] for detection in detected] == [expected] * PROCESSES
