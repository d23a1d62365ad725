"""ZeroMQ, as both ends of a connection use it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.runtime.times import HANDSHAKE_SECONDS, LINGER_SECONDS

if TYPE_CHECKING:
    import zmq

USER = b"cec_mpi"  # name with the key as password, without encryption
_HEARTBEATS = 5  # within a heartbeat timeout
_EVENTS, _READABLE, _MORE = 15, 1, 2  # ZMQ_EVENTS, ZMQ_POLLIN, ZMQ_SNDMORE: enums are slow
PIECE = 1 << 20  # bytes of a frame; heartbeats can be sent between two frames
MAX_FRAME_BYTES = 2 * PIECE  # plus headers; a process that sends more is excluded with an error
# Of a frame: ZeroMQ closes a connection that sends more. Each caller without the key can make the
# master hold as much for `HANDSHAKE_SECONDS`.
MAX_READ_BYTES = 4 * PIECE

_numbers = itertools.count()  # of monitors


def zeromq() -> Any:
    """Return the module ``zmq``.

    Raises
    ------
    InputError
        This ZeroMQ was built without encryption.
    """
    import zmq
    import zmq.utils.garbage  # exit handlers run in reverse order of registration

    if not zmq.has("curve"):
        raise InputError(
            f"ZeroMQ {zmq.zmq_version()} was built without encryption (CURVE): install one with "
            "encryption, for example with pip install --force-reinstall pyzmq"
        )
    return zmq


def configure_socket(socket: zmq.Socket[bytes], heartbeat_timeout: float) -> None:
    """Set the time limits and queue lengths of a socket.

    Parameters
    ----------
    socket : zmq.Socket
    heartbeat_timeout : float
        Seconds without a sign of life after which the other end counts as dead; 0 for no limit.
    """
    if heartbeat_timeout:
        socket.heartbeat_ivl = int(1e3 * heartbeat_timeout / _HEARTBEATS)
        socket.heartbeat_timeout = int(1e3 * heartbeat_timeout)
    socket.handshake_ivl = int(1e3 * HANDSHAKE_SECONDS)
    socket.linger = int(1e3 * LINGER_SECONDS)
    socket.sndhwm = 0  # what is sent is bounded: one job at a time


def to_frames(content: NDArray[Any] | bytes) -> list[zmq.Frame]:
    """Return the bytes of a contiguous array in frames that are not copied when they are sent.

    The array must not change until ZeroMQ has released the frames (`zmq.MessageTracker`).
    """
    import zmq

    if isinstance(content, bytes):
        content = np.frombuffer(content, np.uint8)
    octets = content.reshape(-1).view(np.uint8)
    return [
        zmq.Frame(octets[begin : begin + PIECE], copy=False, track=True)
        for begin in range(0, octets.size, PIECE)
    ]


def make_tracker(frames: Sequence[zmq.Frame]) -> zmq.MessageTracker:
    """Return a tracker that is done when ZeroMQ has released all frames."""
    import zmq

    return zmq.MessageTracker(*frames)


def send(
    socket: zmq.Socket[bytes], parts: Sequence[Any], frames: Sequence[Any], flags: int = 0
) -> None:
    """Begin to send a message of some parts, which are copied, and frames of `to_frames`."""
    *others, last = *parts, *frames
    for part in others:
        socket.send(part, flags | _MORE)
    socket.send(last, flags)


def open_monitor(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """Return a socket that receives these events of a socket's connections, and drops none."""
    import zmq

    at = f"inproc://cec_mpi.monitor.{next(_numbers)}"  # a name stays taken for a while
    socket.monitor(at, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a full queue would block a thread of ZeroMQ
    monitor.connect(at)
    return monitor


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message is there; never waits, and costs less than an attempt to receive one."""
    return bool(int(socket.get(_EVENTS)) & _READABLE)


def read_event(monitor: zmq.Socket[bytes]) -> Mapping[str, Any]:
    """Receive the next event from a monitor that `open_monitor` has returned."""
    from zmq.utils.monitor import parse_monitor_message

    return parse_monitor_message(monitor.recv_multipart())
