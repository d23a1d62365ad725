"""Where and how often progress is shown; the progress of transfers in bytes."""

import re
import sys
import time

import pytest

from cec_mpi.report.live.display import (
    AUTO,
    FILE_LINES,
    LIVE,
    OFF,
    PLAIN,
    TERMINAL_LINES,
    VERBOSE_LINES,
    Display,
    choose_display,
    show,
)
from cec_mpi.report.live.transfer import TransferView, show_transfer
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


# --- transfers ------------------------------------------------------------------------------


def make_view(done, total):
    transfer = TransferView("encoding")
    transfer.update(0, total)
    transfer.update(done, total)
    return transfer


@pytest.mark.parametrize("before", [0, 500_000_000])
def test_a_rate_counts_bytes_since_the_start(monkeypatch, before):
    now = [100.0]
    monkeypatch.setattr("cec_mpi.report.live.transfer.time.monotonic", lambda: now[0])
    view = TransferView("encoding")
    view.update(before, 2 * 10**9)
    assert "MB/s" not in view.line()
    now[0] += 0.1
    view.update(before + 200_000_000, 2 * 10**9)
    assert "MB/s" not in view.line()  # too short for an estimate
    now[0] += 1.9
    assert view.line().endswith("% of 2.00 GB, 100 MB/s, 0:18 left") is (before == 0)
    assert view.line().endswith("% of 2.00 GB, 100 MB/s, 0:13 left") is (before > 0)


def test_a_terminal_shows_a_bar(open_terminal):
    terminal = open_terminal()
    with show_transfer("verifying", "auto") as on_progress:
        done = 0
        while "verifying" not in terminal.text:
            on_progress(done % 10**6, 2 * 10**6)
            done += 1
        assert re.match(r"verifying  [━╸╺]+ +\d+% of 0\.00 GB", terminal.text)
    print("end")
    terminal.await_text("end")
    assert terminal.text == "end"


def test_lines_are_printed_at_intervals(monkeypatch, capsys, no_launcher):
    monkeypatch.setattr("cec_mpi.report.live.display.FILE_LINES", Display(False, 0.1))
    output = ""
    with show(make_view(1, 4), "auto"):
        while not output:
            time.sleep(0.01)
            output = capsys.readouterr().err
    assert re.fullmatch(r"cec-mpi: encoding 25% of .*, \d:\d\d so far\n", output)
