"""ZeroMQ for both sides of a connection: options, frames, monitors."""

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

USER = b"cec_mpi"  # user name of machines in unencrypted runs; the password is the secret key
_HEARTBEATS_PER_TIMEOUT = 5
_EVENTS, _READABLE, _MORE = 15, 1, 2  # ZMQ_EVENTS, ZMQ_POLLIN, ZMQ_SNDMORE, because enums are slow
FRAME_BYTES = 1 << 20  # of a long message; heartbeats are sent between its frames
MAX_FRAME_BYTES = 2 * FRAME_BYTES  # a process that sends more is excluded with an error message
# ZeroMQ closes a connection on a larger frame. For `HANDSHAKE_SECONDS`, a client without the keys
# can make the master buffer this much.
DISCONNECT_FRAME_BYTES = 4 * FRAME_BYTES

_monitor_numbers = itertools.count()


def import_zmq() -> Any:
    """Import the module ``zmq`` and return it.

    Raises
    ------
    InputError
        This ZeroMQ was built without encryption.
    """
    import zmq
    import zmq.utils.garbage  # registers its exit handler first, so that it runs last

    if not zmq.has("curve"):
        raise InputError(
            f"ZeroMQ {zmq.zmq_version()} was built without encryption (CURVE): install a build "
            "with encryption, for example with pip install --force-reinstall pyzmq"
        )
    return zmq


def configure_socket(socket: zmq.Socket[bytes], heartbeat_timeout: float) -> None:
    """Set the time limits of a socket, and remove the limit of its send queue.

    Parameters
    ----------
    socket : zmq.Socket
    heartbeat_timeout : float
        Seconds without a heartbeat after which the connection ends; 0 for no limit.
    """
    if heartbeat_timeout:
        socket.heartbeat_ivl = int(1e3 * heartbeat_timeout / _HEARTBEATS_PER_TIMEOUT)
        socket.heartbeat_timeout = int(1e3 * heartbeat_timeout)
    socket.handshake_ivl = int(1e3 * HANDSHAKE_SECONDS)
    socket.linger = int(1e3 * LINGER_SECONDS)
    socket.sndhwm = 0  # no limit is needed, because a machine has one job at a time


def to_frames(content: NDArray[Any] | bytes) -> list[zmq.Frame]:
    """Return the bytes of a contiguous array in frames that are not copied when they are sent.

    The array must not change until ZeroMQ has released the frames (`zmq.MessageTracker`).
    """
    import zmq

    if isinstance(content, bytes):
        content = np.frombuffer(content, np.uint8)
    octets = content.reshape(-1).view(np.uint8)
    return [
        zmq.Frame(octets[begin : begin + FRAME_BYTES], copy=False, track=True)
        for begin in range(0, octets.size, FRAME_BYTES)
    ]


def make_tracker(frames: Sequence[zmq.Frame]) -> zmq.MessageTracker:
    """Return a tracker that is done when ZeroMQ has released all frames."""
    import zmq

    return zmq.MessageTracker(*frames)


def send(
    socket: zmq.Socket[bytes], parts: Sequence[Any], frames: Sequence[Any], flags: int = 0
) -> None:
    """Begin to send a message: `parts`, which are copied, then `frames` (see `to_frames`)."""
    *others, last = *parts, *frames
    for part in others:
        socket.send(part, flags | _MORE)
    socket.send(last, flags)


def open_monitor(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """Return a socket that receives these events of all connections of a socket."""
    import zmq

    # Numbers are not reused, because a closed address is not free immediately.
    address = f"inproc://cec_mpi.monitor.{next(_monitor_numbers)}"
    socket.monitor(address, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # without a limit, because a full queue would block a thread of ZeroMQ
    monitor.connect(address)
    return monitor


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message has arrived; faster than an attempt to receive it."""
    return bool(int(socket.get(_EVENTS)) & _READABLE)


def read_event(monitor: zmq.Socket[bytes]) -> Mapping[str, Any]:
    """Receive the next event from a monitor (`open_monitor`)."""
    from zmq.utils.monitor import parse_monitor_message

    return parse_monitor_message(monitor.recv_multipart())
