"""A machine that tries to join although no run serves it: refusals and signals."""

from __future__ import annotations

import json
import socket

import pytest

from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.messages import HELLO, LEAVE, split_frame
from helpers.processes import await_error, await_exit_codes
from helpers.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
STALE = {
    "format": "cec_mpi connection file",
    "version": 2,
    "at": [["127.0.0.1", 9]],
    "network": "elsewhere",
    "local": "",
    "encrypted": True,
    "job": "",
    **dict.fromkeys(["server_key", "public_key", "secret_key"], "0" * 40),
}


def test_a_machine_that_a_signal_ends_does_not_wait_for_another_run(join, conn):
    master = Listener(["127.0.0.1"], None)
    master.file.write(conn)
    (machine,) = join(1, "--retry", 10 * LIMIT)
    for kind in (HELLO, LEAVE):
        message = wait_until(master.receive)
        assert split_frame(message[1][0])[0] == kind
        machine.terminate()
    master.close()
    assert machine.wait(LIMIT) == 6, await_error(machine)


def test_a_signal_ends_a_machine_that_is_connecting(start, tmp_path):
    """A suspended master is like this: its port accepts connections, but sends nothing."""
    with socket.create_server(("", 0)) as silent:
        port = silent.getsockname()[1]
        hosts = [[f"127.0.0.{number}", port] for number in range(1, 10)]
        (tmp_path / "conn").write_text(json.dumps(STALE | {"at": hosts}))
        machine = start(["cec-mpi", "join", "conn"])
        silent.accept()[0].close()
        machine.terminate()
        assert await_exit_codes([machine]) == [6], await_error(machine)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["none"], 2, "none does not exist: expected the connection file of a run"),
        (["none", "--retry", "0.5"], 3, "HOST:PORT; waited 0.5 s"),
        ([""], 2, "'': expected the name of a file or directory"),
        (["."], 2, ". is a directory: expected the connection file of a run"),
        (["other"], 2, "other is not a connection file of cec_mpi"),
        (["stale"], 3, "the master cannot be reached: tried port 9 of 127.0.0.1 (Connection refu"),
        (["odd"], 3, "tried port 9 of ü.. (not a host name)"),
        (["stale", "--notice", "oci"], 2, "--notice: 'oci': expected one of none, auto,"),
        (["stale", "--retry", "0"], 2, "--retry: '0': expected a time"),
        (["stale", "--machines", "0"], 2, "--machines: '0': expected a whole number of"),
        (["stale", "--memory", "x"], 2, "--memory: 'x': expected a size, such as 64G, or"),
        (["stale", "--shards-per-machine", "2"], 2, "start more ranks on this node"),
    ],
)
def test_join_refuses_unusable_arguments(call, tmp_path, words, code, expected):
    (tmp_path / "other").write_text("{}")
    (tmp_path / "stale").write_text(json.dumps(STALE))
    (tmp_path / "odd").write_text(json.dumps(STALE | {"at": [["ü..", 9]]}))
    exit_code, _, stderr = call(["join", *words], tmp_path)
    assert exit_code == code, stderr
    assert expected in stderr
    assert len(stderr.splitlines()) == 1
