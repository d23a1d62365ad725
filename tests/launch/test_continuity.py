"""The predicted and the observed reaction of launchers to a killed process."""

from __future__ import annotations

import pytest

from helpers.kill_one_process import PROCESSES, detections, program_command
from helpers.mpi_at_hand import library

SURVIVAL, SLOW_END = 2, 60  # seconds after which a process has survived; if all should end


@pytest.fixture
def killed(run, tmp_path):
    """Start the program: the exit code, what its processes detected, how many survived."""

    def killed(*options, seconds=SURVIVAL, name="one"):
        directory = tmp_path / name
        done = run(["mpirun", *options, "-n", PROCESSES, *program_command(directory, seconds)])
        return done.returncode, *detections(directory)

    return killed


def test_a_launcher_without_options_is_predicted_and_jobs_have_different_names(killed):
    continues = library().startswith("Intel")
    code, detected, survivors = killed(seconds=SURVIVAL if continues else SLOW_END)
    assert survivors == (PROCESSES - 1 if continues else 0)
    assert code
    expected = {"Intel": True, "Open ": None, "MPICH": False}[library()[:5]]
    assert [detection["continues"] for detection in detected] == [expected] * PROCESSES
    assert all(bool(detection["remedy"]) == (not continues) for detection in detected)

    (other,) = {detection["job"] for detection in killed(seconds=0, name="two")[1]}
    (job,) = {detection["job"] for detection in detected}
    if library().startswith("MPICH"):
        assert job == other == ""
    else:
        assert "" != job != other != ""


@pytest.mark.needs("openmpi")
@pytest.mark.parametrize(
    ("options", "expected"), [(("--with-ft", "ulfm"), True), (("--continuous",), None)]
)
def test_options_of_open_mpi_let_the_others_continue(killed, options, expected):
    code, detected, survivors = killed(*options)
    assert (code, survivors) == (0, PROCESSES - 1)
    assert [detection["continues"] for detection in detected] == [expected] * PROCESSES
