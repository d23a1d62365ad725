"""How progress is shown, and how often."""

import sys

import pytest

from cec_mpi.report.live.shown import KEPT, LIVE, OFF, PLAIN, VERBOSELY, WATCHED, way_to_show
from cec_mpi.terminal import NORMAL, QUIET, VERBOSE, set_verbosity

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
    assert way_to_show(environ={}) == LIVE


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"JPY_PARENT_PID": "12"}])
def test_a_terminal_whose_cursor_cannot_go_up_has_whole_lines(variables):
    assert way_to_show(environ=variables) == WATCHED


@pytest.mark.usefixtures("terminal")
def test_who_wants_it_otherwise_says_so(say):
    assert way_to_show(PLAIN, {}) == WATCHED
    assert way_to_show(OFF, {}) is None
    say(VERBOSE)
    assert way_to_show(OFF, {}) is None
    say(QUIET)
    assert way_to_show(PLAIN, {}) is None


def test_a_file_has_a_line_now_and_then():
    assert way_to_show(environ={}) == KEPT


def test_srun_passes_on_whole_lines():
    assert way_to_show(environ=SRUN) == WATCHED
    assert way_to_show(environ={**SRUN, "ENVIRONMENT": "BATCH"}) == KEPT


@pytest.mark.usefixtures("terminal")
def test_a_quiet_process_shows_nothing(say):
    say(QUIET)
    assert way_to_show(environ={}) is None


def test_a_verbose_process_shows_more(say):
    say(VERBOSE)
    assert (
        way_to_show(environ={})
        == way_to_show(environ={**SRUN, "ENVIRONMENT": "BATCH"})
        == VERBOSELY
    )
