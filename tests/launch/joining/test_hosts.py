"""Hosts of several machines: all of their machines join, die and leave together."""

from __future__ import annotations

import signal
import sys

import numpy as np
import pytest

from helpers.processes import await_error, await_exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


def test_all_machines_of_a_host_are_lost_or_leave_together(open_accepting, store, join):
    with open_accepting(store, wait=True) as checked:
        (first,) = join(1, "--machines", 3)
        (single,) = join(1)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
        W = checked.random.standard_normal((60, 300))  # sent without copies, as are the answers
        V = checked.random.standard_normal((600, 300))
        np.testing.assert_allclose(checked.operator @ W, checked.X @ W, atol=1e-10)
        np.testing.assert_allclose(checked.operator.rmatmat(V), checked.X.T @ V, atol=1e-10)
        first.kill()
        (second,) = join(1, "--machines", 4, "--memory", "0.5")
        checked.run_until(lambda: len(checked.event_machines("joined")) == 7)
        assert len(checked.event_machines("lost")) == 3
        (spare,) = join(1, "--machines", 3)
        assert "joined the run of" in spare.stdout.readline()
        second.send_signal(signal.SIGTERM)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 10)
        assert sorted(checked.event_machines("left")) == sorted(checked.event_machines("lost"))
        checked.run_until(lambda: second.poll() is not None)  # before the run ends
    assert await_exit_codes([first, single, second, spare]) == [-signal.SIGKILL, 0, 6, 0], (
        await_error(second)
    )


HOST_PROGRAM = "import sys, cec_mpi; cec_mpi.join(sys.argv[1], machines=2, retry=60.0)"


def test_a_program_can_host_machines(open_accepting, store, start, conn):
    with open_accepting(store) as checked:
        host = start([sys.executable, "-c", HOST_PROGRAM, conn])
        checked.run_until(lambda: len(checked.event_machines("joined")) == 2)
    assert await_exit_codes([host]) == [0], await_error(host)
