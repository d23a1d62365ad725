"""The reaction of launchers to a killed process: predicted and observed."""

from __future__ import annotations

import pytest

from helpers.killed import PROCESSES, seen, words
from helpers.mpi_at_hand import library

LIVES = 2  # seconds to live on; where all end, they have longer, so that a slow end is seen too
ENDS = 60


@pytest.fixture
def killed(run, tmp_path):
    """Start the program with these options: the exit code, what processes saw, who lived on."""

    def killed(*options, seconds=LIVES, name="one"):
        directory = tmp_path / name
        done = run(["mpirun", *options, "-n", PROCESSES, *words(directory, seconds)])
        return done.returncode, *seen(directory)

    return killed


def test_a_launcher_without_options_and_the_name_of_its_job(killed):
    continues = library().startswith("Intel")
    code, found, lived = killed(seconds=LIVES if continues else ENDS)
    assert lived == (PROCESSES - 1 if continues else 0)
    assert code
    expected = {"Intel": True, "Open ": None, "MPICH": False}[library()[:5]]
    assert [each["continues"] for each in found] == [expected] * PROCESSES
    assert all(bool(each["remedy"]) == (not continues) for each in found)

    (other,) = {each["job"] for each in killed(seconds=0, name="two")[1]}
    (job,) = {each["job"] for each in found}
    if library().startswith("MPICH"):
        assert job == other == ""
    else:
        assert "" != job != other != ""


@pytest.mark.needs("openmpi")
@pytest.mark.parametrize(
    ("options", "expected"), [(("--with-ft", "ulfm"), True), (("--continuous",), None)]
)
def test_options_of_open_mpi(killed, options, expected):
    code, found, lived = killed(*options)
    assert (code, lived) == (0, PROCESSES - 1)
    assert [each["continues"] for each in found] == [expected] * PROCESSES
