"""ZeroMQ as it is used: sockets that come and go, each watched."""

from __future__ import annotations

import zmq

from cec_mpi.runtime.wire.sockets.zeromq import is_readable, open_monitor, read_event


def test_sockets_that_come_and_go_quickly_can_all_be_watched():
    """As by a machine that tries one address of its master after the other."""
    with zmq.Context() as context:
        for _ in range(200):
            socket = context.socket(zmq.DEALER)
            monitor = open_monitor(socket, zmq.Event.CONNECT_DELAYED | zmq.Event.LISTENING)
            assert not is_readable(monitor)
            socket.bind("tcp://127.0.0.1:*")
            assert monitor.poll(10_000)
            assert read_event(monitor)["event"] == zmq.Event.LISTENING
            socket.disable_monitor()
            monitor.close(0)
            socket.close(0)
