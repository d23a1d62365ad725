"""A connection holds, however long a machine does not read what the master says."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cec_mpi.wire.sockets.connection import Connection
from cec_mpi.wire.sockets.frames import HELLO, ORDER, PRESENT
from cec_mpi.wire.sockets.listener import Listener

LIMIT = 60  # seconds
SILENCE = 4.0  # longer than a busy computer may have no time for the other end


@pytest.fixture
def ends():
    """The master's end, as whom it knows a machine, and the machine's end."""
    listener = Listener(["127.0.0.1"], None, silence=SILENCE)
    try:
        connection = Connection(replace(listener.file, local=""), silence=SILENCE)
        try:
            connection.send(HELLO)
            due = time.monotonic() + LIMIT
            while (heard := listener.receive()) is None:
                assert time.monotonic() < due
                time.sleep(0.01)
            listener.know()
            yield listener, heard[0], connection
        finally:
            connection.close()
    finally:
        listener.close()


def test_a_machine_may_be_busy_while_the_master_looks_often_whether_it_is_there(ends):
    listener, machine, connection = ends
    for _ in range(3000):
        assert listener.send(machine, PRESENT)
    assert listener.send(machine, ORDER)
    time.sleep(1.5 * SILENCE)
    assert listener.gone([machine]) == []
    assert connection.receive(LIMIT)[0] == ORDER
