"""ZeroMQ, as both ends of a connection use it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.times import KNOWN_SECONDS, LINGER_SECONDS

if TYPE_CHECKING:
    import zmq

USER = b"cec_mpi"  # name with the key as password, without encryption
_HEARTBEATS = 5  # in the time of silence above

_numbers = itertools.count()  # of monitors


def zeromq() -> Any:
    """Return the module ``zmq``.

    Raises
    ------
    InputError
        This ZeroMQ was built without encryption.
    """
    import zmq

    if not zmq.has("curve"):
        raise InputError(
            f"ZeroMQ {zmq.zmq_version()} was built without encryption (CURVE): install one with "
            "encryption, for example with pip install --force-reinstall pyzmq"
        )
    return zmq


def prepare(socket: zmq.Socket[bytes], silence: float) -> None:
    """Set the time limits and queue lengths of a socket.

    Parameters
    ----------
    socket : zmq.Socket
    silence : float
        Seconds without a sign of life after which the other end counts as dead; 0 for no limit.
    """
    if silence:
        socket.heartbeat_ivl = int(1e3 * silence / _HEARTBEATS)
        socket.heartbeat_timeout = int(1e3 * silence)
    socket.handshake_ivl = int(1e3 * KNOWN_SECONDS)
    socket.linger = int(1e3 * LINGER_SECONDS)
    socket.sndhwm = 0  # what is sent is bounded: one job at a time


def watched(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """Return a socket that receives these events of a socket's connections, and drops none."""
    import zmq

    at = f"inproc://cec_mpi.monitor.{next(_numbers)}"  # a name stays taken for a while
    socket.monitor(at, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a thread of ZeroMQ would wait for room
    monitor.connect(at)
    return monitor


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message is there; never waits, and costs less than an attempt to receive one."""
    import zmq

    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def read_event(monitor: zmq.Socket[bytes]) -> Mapping[str, Any]:
    """Receive the next event from a monitor that `watched` has returned."""
    from zmq.utils.monitor import parse_monitor_message

    return parse_monitor_message(monitor.recv_multipart())
