"""Lost workers and tasks are replaced, within a limit."""

from __future__ import annotations

import pytest

from cec_mpi.engines.replacement import replace_lost
from helpers.waiting import wait_until

pytestmark = pytest.mark.any_mpi


def test_missing_tasks_are_started_until_the_block_ends():
    missing, started = [2, 0, 1], []
    with replace_lost("tasks", 3, lambda: missing.pop(0) if missing else 0, started.append):
        wait_until(lambda: not missing and len(started) == 2)
    assert started == [2, 1]


def test_tasks_that_keep_ending_are_not_started_forever(capsys):
    started = []
    with replace_lost("tasks", 2, lambda: 2, started.append):
        note = "10 tasks were started within 600 s to keep 2: no more are started"
        wait_until(lambda: note in capsys.readouterr().out)
    assert sum(started) == 10
