"""ZeroMQ, where it is installed, and how each end of a connection uses it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError

if TYPE_CHECKING:
    import zmq

_HEARTBEAT_MS = 2000  # between two of them
_SILENCE_MS = 10_000  # after which the other end is taken for dead, as a computer without power
_HANDSHAKE_MS = 3000  # that a stranger has in all
LINGER_MS = 2000  # that the last words of a process have to be sent

_numbers = itertools.count()  # of monitors


def zeromq() -> Any:
    """The module ``zmq``.

    Raises
    ------
    InputError
        It is not installed, or cannot encrypt.
    """
    try:
        import zmq
    except ImportError:
        raise InputError("machines that join need pyzmq: pip install 'cec_mpi[join]'") from None
    if not zmq.has("curve"):
        raise InputError(
            f"machines that join need pyzmq with CURVE, and ZeroMQ {zmq.zmq_version()} was built "
            "without it: pip install --force-reinstall pyzmq has it"
        )
    return zmq


def prepare(socket: zmq.Socket[bytes]) -> None:
    """Have a socket notice a dead other end, and lose no last words."""
    socket.heartbeat_ivl = _HEARTBEAT_MS
    socket.heartbeat_timeout = _SILENCE_MS
    socket.handshake_ivl = _HANDSHAKE_MS
    socket.linger = LINGER_MS
    socket.sndhwm = 0  # what is sent is bounded: a job at a time


def watched(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """Where ZeroMQ tells what happens to connections of a socket, however long nobody looks."""
    import zmq

    at = f"inproc://cec_mpi.monitor.{next(_numbers)}"  # a name is taken a while after its end
    socket.monitor(at, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a thread of ZeroMQ would wait for room
    monitor.connect(at)
    return monitor


def is_heard(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message is there; never waits, and costs less than to try to receive one."""
    import zmq

    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def told(monitor: zmq.Socket[bytes]) -> Mapping[str, Any]:
    """What has happened next to a connection, as ZeroMQ tells it where it is `watched`."""
    from zmq.utils.monitor import parse_monitor_message

    return parse_monitor_message(monitor.recv_multipart())
