"""Connections to a run, with or without its keys, do not disturb its machines."""

from __future__ import annotations

import json
import socket

import numpy as np
import psutil
import pytest

from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.messages import HELLO, Hello, package_fingerprint
from helpers.processes import await_error, await_exit_codes
from helpers.waiting import wait_for_file

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
GREETING = pack(Hello(package_fingerprint(), detect_process()))


def test_connections_without_the_keys_do_not_disturb_a_run(
    start, store, join, conn, endless_task, tmp_path
):
    """200 connections, more than the soft limit on files: silent, with random bytes, or closed."""
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    run += [*endless_task.prepare(store), "--checkpoint-every", 20]
    master = start(["sh", "-c", 'ulimit -S -n 100 && exec "$@"', "sh", *run])
    assert "listening" in master.stdout.readline()
    machines = join(2)
    wait_for_file(tmp_path / "out" / "checkpoint.npz", process=master)
    address = "127.0.0.1", read_connection_file(conn).addresses[-1][1]
    connections = []
    for number in range(200):
        connections.append(socket.create_connection(address))
        if number % 2:
            connections[-1].send(np.random.default_rng(number).bytes(1 + 40 * (number % 50)))
    for connection in connections[::5]:
        connection.close()
    endless_task.stop()
    assert await_exit_codes([master, *machines]) == [0] * 3, await_error(master)
    for connection in connections:
        connection.close()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert {kind for step in steps for event in step["events"] for kind in event} <= {
        "joined",
        "rank",
        "host",
        "pid",
    }


def test_machines_that_come_and_go_leak_no_memory_or_descriptors(open_accepting, store, join, conn):
    def come_and_go(times):
        for _ in range(times):
            connection = Connection(read_connection_file(conn))
            connection.send(HELLO, GREETING)
            checked.step()
            connection.close()
        checked.step()
        return psutil.Process().num_fds(), psutil.Process().memory_info().rss

    with open_accepting(store) as checked:
        join(2)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 2)
        come_and_go(30)
        descriptors, size = come_and_go(10)
        later_descriptors, later_size = come_and_go(50)
        assert later_descriptors <= descriptors
        assert later_size - size < 50 * 20_000  # mostly the records that this test keeps
