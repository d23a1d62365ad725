"""What is lost is started again, and what ends again and again is not."""

from __future__ import annotations

import pytest

from cec_mpi.engines.keeping import keep_started
from helpers.waiting import wait_until

pytestmark = pytest.mark.any_mpi


def test_what_is_lost_is_started_again_until_the_end():
    missing, started = [2, 0, 1], []
    with keep_started("tasks", 3, lambda: missing.pop(0) if missing else 0, started.append):
        wait_until(lambda: not missing and len(started) == 2)
    assert started == [2, 1]


def test_what_never_stays_is_not_started_forever(capsys):
    started = []
    with keep_started("tasks", 2, lambda: 2, started.append):
        note = "10 tasks were started within 600 s to keep 2: no more are started"
        wait_until(lambda: note in capsys.readouterr().out)
    assert sum(started) == 10
