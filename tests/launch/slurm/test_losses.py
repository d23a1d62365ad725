"""An elastic run under srun, without any MPI, whose master is killed."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from helpers.commands import count_steps
from helpers.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]

SRUN = ("srun", "--mpi=none", "-N", 3, "-n", 6, "--no-kill", "--kill-on-bad-exit=0", "--wait=0")
SLOW = ("--emulate-speeds", "1,1,1", "--emulate-base", 500)


def test_the_first_ranks_print_that_the_master_was_killed(start, slurm, symmetric, tmp_path):
    out = tmp_path / "out"
    words = ("cec-mpi", "run", symmetric.path, "--out", out, "power", *SLOW, "--elastic")
    process = start([*SRUN, *words], variables=slurm.variables)
    wait_until(lambda: count_steps(out) >= 5, process)
    find_master(out).kill()
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 137
    assert 1 <= stderr.count("cec-mpi: error: the connection to the master has ended\n") <= 2
    assert stderr.count("cec-mpi: error: ") <= 2


def find_master(out):
    """The process of rank 0, which is no child of srun."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_first = process.environ().get("SLURM_PROCID") == "0"
            if is_first and str(out) in process.cmdline():
                return process
    raise AssertionError
