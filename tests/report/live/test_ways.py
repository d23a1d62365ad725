"""How progress is shown, and how often."""

import sys

import pytest

from cec_mpi.report.live.display import (
    AUTO,
    FILE_LINES,
    LIVE,
    OFF,
    PLAIN,
    TERMINAL_LINES,
    VERBOSE_LINES,
    choose_display,
)
from cec_mpi.text.terminal import NORMAL, QUIET, VERBOSE, set_verbosity

SRUN = {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
MPIRUN = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
BATCH = {**SRUN, "ENVIRONMENT": "BATCH"}


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize(
    ("is_terminal", "choice", "variables", "verbosity", "display"),
    [
        (True, AUTO, {}, NORMAL, LIVE),
        (True, AUTO, {"TERM": "dumb"}, NORMAL, TERMINAL_LINES),
        (True, AUTO, MPIRUN, NORMAL, TERMINAL_LINES),
        (True, AUTO, {"JPY_PARENT_PID": "12"}, NORMAL, TERMINAL_LINES),
        (True, PLAIN, {}, NORMAL, TERMINAL_LINES),
        (True, OFF, {}, VERBOSE, None),
        (True, PLAIN, {}, QUIET, None),
        (True, AUTO, {}, QUIET, None),
        (False, AUTO, {}, NORMAL, FILE_LINES),
        (False, AUTO, {}, VERBOSE, VERBOSE_LINES),
        (False, AUTO, SRUN, NORMAL, TERMINAL_LINES),
        (False, AUTO, BATCH, NORMAL, FILE_LINES),
        (False, AUTO, BATCH, VERBOSE, VERBOSE_LINES),
    ],
)
def test_the_display_fits_its_reader(
    monkeypatch, is_terminal, choice, variables, verbosity, display
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    set_verbosity(verbosity)
    try:
        assert choose_display(choice, variables) == display
    finally:
        set_verbosity(NORMAL)
