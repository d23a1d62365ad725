"""How progress is shown, and how often."""

import sys

import pytest

from cec_mpi.report.live.display import (
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

pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture
def say(request):
    """Set how much this process says, for one test."""
    yield set_verbosity
    set_verbosity(NORMAL)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_has_lines_that_change():
    assert choose_display(environ={}) == LIVE


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"JPY_PARENT_PID": "12"}])
def test_a_terminal_whose_cursor_cannot_go_up_has_whole_lines(variables):
    assert choose_display(environ=variables) == TERMINAL_LINES


@pytest.mark.usefixtures("terminal")
def test_who_wants_it_otherwise_says_so(say):
    assert choose_display(PLAIN, {}) == TERMINAL_LINES
    assert choose_display(OFF, {}) is None
    say(VERBOSE)
    assert choose_display(OFF, {}) is None
    say(QUIET)
    assert choose_display(PLAIN, {}) is None


def test_a_file_has_a_line_now_and_then():
    assert choose_display(environ={}) == FILE_LINES


def test_srun_passes_on_whole_lines():
    assert choose_display(environ=SRUN) == TERMINAL_LINES
    assert choose_display(environ={**SRUN, "ENVIRONMENT": "BATCH"}) == FILE_LINES


@pytest.mark.usefixtures("terminal")
def test_a_quiet_process_shows_nothing(say):
    say(QUIET)
    assert choose_display(environ={}) is None


def test_a_verbose_process_shows_more(say):
    say(VERBOSE)
    assert (
        choose_display(environ={})
        == choose_display(environ={**SRUN, "ENVIRONMENT": "BATCH"})
        == VERBOSE_LINES
    )
