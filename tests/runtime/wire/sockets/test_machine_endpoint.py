"""What a machine sends after a signal, whatever the master sends meanwhile."""

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
from cec_mpi.runtime.wire.orders import (
    Multiply,
    Open,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    ReportFields,
)
from cec_mpi.runtime.wire.sockets.machine_endpoint import ShutdownRequested, SocketMachineEndpoint
from cec_mpi.runtime.wire.sockets.messages import ANSWER, LEAVE, LEAVE_ACK, ORDER


class Wire:
    """A connection to a master that says these messages, and nothing in between (None)."""

    def __init__(self, *messages):
        self.messages = deque(messages)
        self.sent = []

    def send(self, kind, head=b"", frames=()):
        self.sent.append([kind, bytes(head), *map(bytes, frames)])

    def receive(self, seconds):
        return self.messages.popleft()


def order(kind, parts=0, *numbers):
    return [ORDER, np.array([*Order(kind, parts), *numbers], dtype=np.int64).tobytes()]


@pytest.fixture
def noted():
    with SignalRecorder() as signals:
        signal.raise_signal(signal.SIGTERM)
    return signals


def test_a_good_bye_that_meets_an_order_on_its_way_ends_with_a_farewell(noted, tmp_path):
    manifest = cec_mpi.encode(np.ones((2, 2)), tmp_path / "store", 1, 1)
    opening = Opening(tmp_path / "store", manifest, (1,), MachineOptions(), (1, 1))
    wire = Wire(None, [*order(OrderKind.OPEN), pack_fields(opening)], [LEAVE_ACK])
    end = SocketMachineEndpoint(wire, 1, noted)
    with SignalRecorder() as signals:
        assert isinstance(end.receive_order(signals), Open)
        with pytest.raises(ShutdownRequested, match="SIGTERM"):
            end.send_open_report(OpenReport())
    assert wire.sent[0] == [LEAVE, b""]


def test_a_signal_that_came_before_it_serves_goes_with_the_first_answer(noted):
    wire = Wire(order(OrderKind.MULTIPLY, 1, 3, 1, 0, 1))  # another would come before its good-bye
    end = SocketMachineEndpoint(wire, 1, noted)
    with SignalRecorder() as signals:
        job = end.receive_order(signals)
    assert isinstance(job, Multiply)
    end.send_answer(job, [np.zeros(1)], [Report(0.5)])
    kind, head = wire.sent[0]
    assert kind == ANSWER
    assert ReportFields(*np.frombuffer(head)[: ReportFields.size()]).leaving == 1
