"""A connection holds while a machine is busy, and ends with a master that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.runtime.wire.sockets.messages import HEARTBEAT, HELLO, ORDER

LIMIT = 60  # seconds
SILENCE = 4.0  # longer than a busy computer may have no time for the other end


@pytest.fixture
def ends():
    """The master's end, as whom it knows a machine, and the machine's end."""
    listener = Listener(["127.0.0.1"], None, heartbeat_timeout=SILENCE)
    try:
        connection = Connection(replace(listener.file, local=""), heartbeat_timeout=SILENCE)
        try:
            connection.send(HELLO)
            due = time.monotonic() + LIMIT
            while (heard := listener.receive()) is None:
                assert time.monotonic() < due
                time.sleep(0.01)
            listener.track_disconnect()
            yield listener, heard[0], connection
        finally:
            connection.close()
    finally:
        listener.close()


def test_a_machine_may_be_busy_while_the_master_looks_often_whether_it_is_there(ends):
    listener, machine, connection = ends
    for _ in range(3000):
        assert listener.send(machine, HEARTBEAT)
    assert listener.send(machine, ORDER)
    time.sleep(1.5 * SILENCE)
    assert listener.find_disconnected([machine]) == []
    assert connection.receive(LIMIT)[0] == ORDER


MASTER = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.listener import Listener
listener = Listener(["127.0.0.1"], None)
listener.file.write(Path(sys.argv[1]))
print("listening", flush=True)
sys.stdin.read()
"""


def test_machines_remove_the_unix_socket_of_a_master_that_was_killed(tmp_path):
    words = [sys.executable, "-c", MASTER, tmp_path / "conn"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as master:
        assert master.stdout.readline() == "listening\n"
        file = read_connection_file(tmp_path / "conn")
        master.kill()
    directory = Path(file.local).parent
    assert directory.exists()
    with pytest.raises(MasterLostError, match="Connection refused"):
        Connection(file)
    assert not directory.exists()
