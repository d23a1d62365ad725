"""Processes that carry several machines: they come, die, leave and come back with all of them."""

from __future__ import annotations

import signal
import sys

import numpy as np
import pytest

from helpers.joined import error_of, exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


def test_a_host_is_lost_and_leaves_with_all_of_its_machines(accepting, store, join):
    with accepting(store, wait=True) as made:
        (first,) = join(1, "--machines", 3)
        (single,) = join(1)
        made.until(lambda: len(made.happened("joined")) == 4)
        W = made.random.standard_normal((60, 3))
        V = made.random.standard_normal((600, 3))
        np.testing.assert_allclose(made.operator @ W, made.X @ W, atol=1e-10)
        np.testing.assert_allclose(made.operator.rmatmat(V), made.X.T @ V, atol=1e-10)
        first.kill()
        (second,) = join(1, "--machines", 4, "--memory", "0.5")
        made.until(lambda: len(made.happened("joined")) == 7)
        assert len(made.happened("lost")) == 3
        (spare,) = join(1, "--machines", 3)
        assert "joined the run of" in spare.stdout.readline()
        second.send_signal(signal.SIGTERM)
        made.until(lambda: len(made.happened("joined")) == 10)
        assert sorted(made.happened("left")) == sorted(made.happened("lost"))
        made.until(lambda: second.poll() is not None)  # before the run ends
    assert exit_codes([first, single, second, spare]) == [-signal.SIGKILL, 0, 6, 0], error_of(
        second
    )


def test_machines_of_a_host_may_be_preempted_one_by_one(accepting, store, join):
    with accepting(store, availability={1, 2, 3}) as made:
        hosts = join(2, "--machines", 2)
        made.until(lambda: len(made.happened("joined")) == 4)
        for available in ({1, 2}, {2, 4}, {1, 3, 4}, {1, 2, 3, 4}):
            made.operator.available = available
            made.step()
    assert exit_codes(hosts) == [0, 0]


HOST = "import sys, cec_mpi; cec_mpi.join(sys.argv[1], machines=2, retry=60.0)"


def test_a_program_can_carry_machines(accepting, store, start, conn):
    with accepting(store) as made:
        host = start([sys.executable, "-c", HOST, conn])
        made.until(lambda: len(made.happened("joined")) == 2)
    assert exit_codes([host]) == [0], error_of(host)


REFUSED = {
    ("--machines", 5): "--machines 5: expected 4 at most, because ",
    ("--machine", 5): "--machine 5: expected 1 to 4, the machines of ",
    ("--memory", "1K"): "--memory is 1.02 kB: expected at least ",
}


def test_a_host_that_asks_for_too_much_is_refused(accepting, store, join):
    with accepting(store) as made:
        others = join(3)
        made.step()
        refused = [join(1, *words, "--retry", 60)[0] for words in REFUSED]
        made.until(lambda: all(process.poll() is not None for process in refused))
        assert exit_codes(refused) == [2] * len(refused)
        for process, expected in zip(refused, REFUSED.values(), strict=True):
            message = error_of(process)
            assert expected in message
            assert message.count("\n") == 1
        made.step()
    assert exit_codes(others) == [0] * 3
