"""Products are right while machines join as processes and leave at any time."""

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
from helpers.processes import await_error, await_exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


def test_products_are_right_while_machines_join_die_and_leave(
    open_accepting, store, join, conn, capsys
):
    with open_accepting(store, wait=True) as checked:
        assert stat.S_IMODE(conn.stat().st_mode) == 0o600
        first = join(4)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
        first[0].kill()
        checked.run_until(lambda: checked.event_machines("lost"))
        first[1].send_signal(signal.SIGTERM)
        checked.run_until(lambda: checked.event_machines("left"))
        second = join(4)  # two of them are spares
        assert all("joined the run of" in process.stdout.readline() for process in second)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 6)
        gone = checked.event_machines("lost", "left")
        assert sorted(checked.event_machines("joined")) == sorted([1, 2, 3, 4, *gone])
        first[2].send_signal(signal.SIGUSR1)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 7)
        assert checked.event_machines("joined")[6:] == checked.event_machines("left")[1:]
        assert await_exit_codes(first[2:3]) == [6]
    assert await_exit_codes(first) == [-signal.SIGKILL, 6, 6, 0]
    assert await_exit_codes(second) == [0] * 4
    assert not conn.exists()
    assert "listening for machines at" in capsys.readouterr().out


def test_machines_leave_at_a_notice_of_preemption(open_accepting, store, join):
    with metadata.serve("gcp") as service, open_accepting(store, wait=True) as checked:
        no_proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        variables = no_proxy | {ADDRESS_VARIABLE: service.address}
        (spot,) = join(1, "--notice", "auto", "--retry", 600, variables=variables)
        (host,) = join(1, "--machines", 2, "--notice", "gcp", variables=variables)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
        replacements = join(3)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
        service.is_preempted.set()
        checked.run_until(lambda: len(checked.event_machines("left")) == 3)
        assert await_exit_codes([spot, host]) == [6, 6]
        assert all("joined the run of" in process.stdout.readline() for process in replacements)
    assert await_exit_codes(replacements) == [0, 0, 0]
    assert await_error(spot) == "shutdown requested by the notice of gcp (preempted)\n"


def test_a_machine_that_joins_after_the_last_step_exits_with_0(open_accepting, store, join):
    with open_accepting(store) as checked:
        first = join(2)
        checked.step()
        late = join(1)[0]
        assert "joined" in late.stdout.readline()
        time.sleep(0.5)  # its hello arrives, but no step follows
    assert await_exit_codes([*first, late]) == [0] * 3, await_error(late)


FAULTY = """
import sys
from cec_mpi import cli
from cec_mpi.store.dense import DenseShard

multiply = DenseShard.multiply

def multiply_wrongly(self, W, intervals, out):
    multiply(self, W, intervals, out)
    out += 1

DenseShard.multiply = multiply_wrongly
sys.exit(cli.main(["join", sys.argv[1], "--retry", "60"]))
"""


def test_a_faulty_machine_is_excluded_and_exits_with_the_reason(
    open_accepting, make_store, join, start, conn
):
    store = make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 1)
    with open_accepting(store, check=True, stragglers=2) as checked:
        healthy = join(3)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
        faulty = start([sys.executable, "-c", FAULTY, conn])
        checked.run_until(lambda: checked.event_machines("excluded"))
        assert await_exit_codes([faulty]) == [7]
        message = r"the master has excluded this machine: wrong in step \d+\n"
        assert re.fullmatch(message, await_error(faulty))
        checked.step()
    assert await_exit_codes(healthy) == [0] * 3
