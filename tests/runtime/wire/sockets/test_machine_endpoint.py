"""What a machine sends after a signal, and while messages of the master are under way."""

from __future__ import annotations

import signal
from collections import deque

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.packing import pack_fields
from cec_mpi.runtime.wire.orders import Open, Opening, OpenReport, Order, OrderKind, ReportFields
from cec_mpi.runtime.wire.sockets.machine_endpoint import ShutdownRequested, SocketMachineEndpoint
from cec_mpi.runtime.wire.sockets.messages import ANSWER, LEAVE, LEAVE_ACK, ORDER


class RecordedConnection:
    """A connection that receives these messages (None for a time limit), and keeps sent ones."""

    def __init__(self, *messages):
        self.messages = deque(messages)
        self.sent = []

    def send(self, kind, head=b"", frames=()):
        self.sent.append([kind, bytes(head), *map(bytes, frames)])

    def receive(self, seconds):
        return self.messages.popleft()


@pytest.fixture
def receive():
    """Receive the first order of messages, on a machine that has received SIGTERM before."""
    with SignalRecorder() as earlier:
        signal.raise_signal(signal.SIGTERM)

    def receive(*messages):
        connection = RecordedConnection(*messages)
        endpoint = SocketMachineEndpoint(connection, 1, earlier)
        with SignalRecorder() as signals:
            return connection, endpoint, endpoint.receive_order(signals)

    return receive


def order(kind, parts=0, *numbers):
    return [ORDER, np.array([*Order(kind, parts), *numbers], dtype=np.int64).tobytes()]


def test_a_machine_leaves_although_the_master_sends_an_order_first(receive, tmp_path):
    manifest = cec_mpi.encode(np.ones((2, 2)), tmp_path / "store", 1, 1)
    opening = Opening(tmp_path / "store", manifest, (1,), MachineOptions(), (1, 1))
    messages = None, [*order(OrderKind.OPEN), pack_fields(opening)], [LEAVE_ACK]
    connection, endpoint, parsed = receive(*messages)
    assert isinstance(parsed, Open)
    with pytest.raises(ShutdownRequested, match="SIGTERM"):
        endpoint.send_open_report(OpenReport())
    assert connection.sent[0] == [LEAVE, b""]


def test_the_first_answer_reports_an_earlier_signal(receive):
    connection, endpoint, jobs = receive(order(OrderKind.MULTIPLY, 1, 3, 1, 0, 1))
    endpoint.send_answer(jobs, [np.zeros(1)], [Report(0.5)])
    kind, head = connection.sent[0]
    assert kind == ANSWER
    assert ReportFields(*np.frombuffer(head)[: ReportFields.size()]).leaving == 1
