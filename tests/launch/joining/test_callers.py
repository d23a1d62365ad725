"""Whoever calls a run that machines join, with the keys or without: nobody costs the others."""

from __future__ import annotations

import json
import socket

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.messages import HELLO, STATUS, Hello, package_fingerprint
from helpers.joined import error_of, exit_codes
from helpers.waiting import wait_for_file

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
HERE = pack(Hello(package_fingerprint(), 1, detect_place()))
UNWRITABLE = (
    rb'{"problem": "\ud800", "shard": "", "rate": 0.0, "shard_missing": false, "damaged": false, '
    rb'"log_problem": "", "cache_problem": ""}'
)


def test_a_reason_that_cannot_be_written_ends_nothing(accepting, store, join, conn):
    with accepting(store) as made:
        processes = join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        connection = Connection(read_connection_file(conn))
        connection.send(HELLO, HERE)
        made.until(lambda: connection.receive(0))  # it is to open a shard
        connection.send(STATUS, UNWRITABLE)
        made.until(lambda: made.happened("lost") == [3])
        connection.close()
        made.step()
    assert exit_codes(processes) == [0] * 2


def test_strangers_cost_the_others_nothing(start, store, join, conn, endless_task, tmp_path):
    """200 that say nothing, say what nobody understands, or hang up: more than files were open."""
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    run += [*endless_task.words(store), "--checkpoint-every", 20]
    master = start(["sh", "-c", 'ulimit -S -n 100 && exec "$@"', "sh", *run])
    assert "listening" in master.stdout.readline()
    machines = join(2)
    wait_for_file(tmp_path / "out" / "checkpoint.npz", process=master)
    place = "127.0.0.1", read_connection_file(conn).addresses[-1][1]
    callers = []
    for number in range(200):
        callers.append(socket.create_connection(place))
        if number % 2:
            callers[-1].send(np.random.default_rng(number).bytes(1 + 40 * (number % 50)))
    for caller in callers[::5]:
        caller.close()
    endless_task.stop()
    assert exit_codes([master, *machines]) == [0] * 3, error_of(master)
    for caller in callers:
        caller.close()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert {kind for step in steps for event in step["events"] for kind in event} <= {
        "joined",
        "rank",
        "host",
        "pid",
    }


@pytest.mark.parametrize(("adopt", "others"), [(None, 2), (0.2, 1)])
def test_who_opens_no_shard_holds_up_no_step(
    adopt, others, accepting, store, join, conn, monkeypatch
):
    """Four come first and take all machines; then others come, or one that may carry several."""
    monkeypatch.setattr("cec_mpi.runtime.wire.sockets.hub.SLOW_OPEN_SECONDS", 1.0)
    with accepting(store, adopt=adopt) as made:
        callers = [Connection(read_connection_file(conn)) for _ in range(4)]
        for connection in callers:
            connection.send(HELLO, HERE)
        processes = join(others)
        made.step()
        for connection in callers:
            connection.close()
    assert exit_codes(processes) == [0] * others


def test_nothing_grows_with_machines_that_come_and_go(accepting, store, join, conn):
    def come_and_go(times):
        for _ in range(times):
            connection = Connection(read_connection_file(conn))
            connection.send(HELLO, HERE)
            made.step()
            connection.close()
        made.step()
        return psutil.Process().num_fds(), psutil.Process().memory_info().rss

    with accepting(store) as made:
        join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        come_and_go(30)
        descriptors, size = come_and_go(10)
        later, larger = come_and_go(50)
        assert later <= descriptors
        assert larger - size < 50 * 20_000  # most of it are the records that this test keeps
