"""The predicted and the observed reaction of srun to a killed process."""

from __future__ import annotations

import pytest

from helpers.kill_one_process import PROCESSES, program_command, read_results

SRUN = ("srun", "--quiet", "--mpi=none", "-N", 2, "-n", PROCESSES)
pytestmark = pytest.mark.any_mpi
SURVIVAL, SLOW_END = 2, 60  # seconds until a process has survived, or all have ended


@pytest.mark.parametrize(
    ("options", "variables", "continues", "expected"),
    [
        ((), {}, True, True),
        (("--kill-on-bad-exit=1",), {}, False, True),  # processes cannot detect it
        ((), {"SLURM_KILL_BAD_EXIT": "1"}, False, False),
        ((), {"SLURM_KILL_BAD_EXIT": ""}, False, False),
        ((), {"SLURM_WAIT": "1"}, False, False),
    ],
    ids=str,
)
def test_the_reaction_of_srun_is_predicted(
    run, cluster, tmp_path, options, variables, continues, expected
):
    command = [*SRUN, *options, *program_command(tmp_path, SURVIVAL if continues else SLOW_END)]
    done = run(command, variables=cluster | variables)
    detected, survivors = read_results(tmp_path)
    assert survivors == (PROCESSES - 1 if continues else 0)
    assert done.returncode in (137, 143)  # of the killed process, or of those that srun ended
    assert [detection["others_continue"] for detection in detected] == [expected] * PROCESSES
    (job,) = {detection["job"] for detection in detected}
    assert job.endswith(".0")
