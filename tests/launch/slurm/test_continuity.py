"""The reaction of srun to a killed process: predicted and observed."""

from __future__ import annotations

import pytest

from helpers.killed import PROCESSES, seen, words

SRUN = ("srun", "--quiet", "--mpi=none", "-N", 2, "-n", PROCESSES)
pytestmark = pytest.mark.any_mpi
ENDS = 60  # seconds to live on where all end, so that a slow end is seen too


@pytest.mark.parametrize(
    ("options", "variables", "continues", "expected"),
    [
        ((), {}, True, True),
        (("--kill-on-bad-exit=1",), {}, False, True),  # which processes cannot see
        ((), {"SLURM_KILL_BAD_EXIT": "1"}, False, False),
        ((), {"SLURM_KILL_BAD_EXIT": ""}, False, False),
        ((), {"SLURM_WAIT": "1"}, False, False),
    ],
    ids=str,
)
def test_srun(run, cluster, tmp_path, options, variables, continues, expected):
    command = [*SRUN, *options, *words(tmp_path, 2 if continues else ENDS)]
    done = run(command, variables=cluster | variables)
    found, lived = seen(tmp_path)
    assert lived == (PROCESSES - 1 if continues else 0)
    assert done.returncode in (137, 143)  # of the killed process, or of those that srun ended
    assert [each["continues"] for each in found] == [expected] * PROCESSES
    (job,) = {each["job"] for each in found}
    assert job.endswith(".0")
