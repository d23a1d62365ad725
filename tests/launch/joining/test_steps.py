"""Machines that come as processes of their own, and leave as they like: steps stay right."""

from __future__ import annotations

import re
import signal
import stat
import sys
import time

import numpy as np
import pytest

from cec_mpi.runtime.processes.notices import ADDRESS_VARIABLE
from helpers import metadata
from helpers.joined import error_of, exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


def test_machines_join_and_leave_and_each_product_is_right(accepting, store, join, conn, capsys):
    with accepting(store, wait=True) as made:
        assert stat.S_IMODE(conn.stat().st_mode) == 0o600
        first = join(4)
        made.until(lambda: len(made.happened("joined")) == 4)
        first[0].kill()
        made.until(lambda: made.happened("lost"))
        first[1].send_signal(signal.SIGTERM)
        made.until(lambda: made.happened("left"))
        second = join(4)  # two of them are too many, until one is needed
        assert all("joined the run of" in process.stdout.readline() for process in second)
        made.until(lambda: len(made.happened("joined")) == 6)
        gone = made.happened("lost", "left")
        assert sorted(made.happened("joined")) == sorted([1, 2, 3, 4, *gone])
        first[2].send_signal(signal.SIGUSR1)
        made.until(lambda: len(made.happened("joined")) == 7)
        assert made.happened("joined")[6:] == made.happened("left")[1:]
        assert exit_codes(first[2:3]) == [6]
    assert exit_codes(first) == [-signal.SIGKILL, 6, 6, 0]
    assert exit_codes(second) == [0] * 4
    assert not conn.exists()
    assert "listening for machines at" in capsys.readouterr().out


def test_a_machine_leaves_when_the_notice_of_preemption_comes(accepting, store, join):
    with metadata.serve("gcp") as service, accepting(store, wait=True) as made:
        nowhere = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        where = nowhere | {ADDRESS_VARIABLE: service.address}
        (spot,) = join(1, "--notice", "auto", "--retry", 600, variables=where)
        (host,) = join(1, "--machines", 2, "--notice", "gcp", variables=where)
        made.until(lambda: len(made.happened("joined")) == 3)
        others = join(3)
        made.until(lambda: len(made.happened("joined")) == 4)
        service.is_preempted.set()
        made.until(lambda: len(made.happened("left")) == 3)
        assert exit_codes([spot, host]) == [6, 6]
    assert exit_codes(others) == [0, 0, 0]
    assert error_of(spot) == "shutdown requested by the notice of gcp (preempted)\n"


def test_who_comes_after_the_last_step_ends_as_the_others_do(accepting, store, join):
    with accepting(store) as made:
        first = join(2)
        made.step()
        late = join(1)[0]
        assert "joined" in late.stdout.readline()
        time.sleep(0.5)  # it says who it is, and nobody listens now
    assert exit_codes([*first, late]) == [0] * 3, error_of(late)


def test_a_step_waits_for_machines_that_come_back(accepting, store, join):
    with accepting(store, wait=True) as made:
        processes = join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        for process in processes:
            process.kill()
        join(2)
        made.step()
        assert len(made.happened("lost")) == 2
        assert len(made.happened("joined")) == 4


def test_large_vectors(accepting, make_store, join):
    """Vectors and answers in several pieces; float32."""
    X = np.random.default_rng(6).standard_normal((90, 200_000), dtype=np.float32)
    large = make_store(X, 3, 2)
    with accepting(large, tolerance=0.05) as made:
        join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        W = np.random.default_rng(9).standard_normal((200_000, 2), dtype=np.float32)
        np.testing.assert_allclose(made.operator @ W, X @ W, atol=0.05)


WRONG = """
import sys
from cec_mpi import cli
from cec_mpi.runtime.machine.machine import Machine
work = Machine.work
def wrong(self, *given):
    done = work(self, *given)
    self.values[:] += 1
    return done
Machine.work = wrong
sys.exit(cli.main(["join", sys.argv[1], "--retry", "60"]))
"""


def test_a_machine_whose_answers_are_wrong_has_to_leave(accepting, make_store, join, start, conn):
    store = make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 1)
    with accepting(store, check=True, stragglers=2) as made:
        good = join(3)
        made.until(lambda: len(made.happened("joined")) == 3)
        bad = start([sys.executable, "-c", WRONG, conn])
        made.until(lambda: made.happened("excluded"))
        assert exit_codes([bad]) == [7]
        message = r"the master has excluded this machine: wrong in step \d+\n"
        assert re.fullmatch(message, error_of(bad))
        assert len(made.happened("wrong")) == 1
        made.step()
    assert exit_codes(good) == [0] * 3


FAILS = """
import sys
from cec_mpi import cli
from cec_mpi.runtime.machine.machine import Machine
def fail(self, *given):
    raise ArithmeticError("no luck")
Machine.compute = fail
sys.exit(cli.main(["join", sys.argv[1], "--retry", "60"]))
"""


def test_a_machine_that_fails_says_so_and_may_come_back(accepting, store, join, start, conn):
    with accepting(store) as made:
        good = join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        failing = start([sys.executable, "-c", FAILS, conn])
        made.until(lambda: made.happened("lost"))
        assert exit_codes([failing]) == [3]
        assert (
            error_of(failing) == "the master has excluded this machine: ArithmeticError: no luck\n"
        )
        (lost,) = [event for event in made.recorder.happened if "lost" in event]
        assert lost["reason"] == "ArithmeticError: no luck"
    assert exit_codes(good) == [0] * 2
