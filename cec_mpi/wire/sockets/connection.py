"""A machine's connection to the master."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from cec_mpi.errors import DismissedError, InputError, MachineError
from cec_mpi.files.regular import check_descriptors
from cec_mpi.processes.launch.cards import network_here
from cec_mpi.wire.lifelines.lifelines import Address
from cec_mpi.wire.sockets.connection_file import ConnectionFile
from cec_mpi.wire.sockets.frames import DISMISSED, FAILED, PRESENT, REFUSED, first, kind_and_head
from cec_mpi.wire.sockets.library import is_heard, prepare, told, watched, zeromq

_DESCRIPTORS = 12  # of files, that ZeroMQ needs for it, and a few more for modules and shards
_CONNECT_SECONDS = 2.0  # for one address
_NEVER_MS = 24 * 3600 * 1000
_KNOWN_SECONDS = 3.0  # in which a master that is there knows the keys
_LOOK_MS = 100  # between two looks whether this process is to leave


class GoneMasterError(MachineError):
    """The master is gone, or cannot be reached."""


class Connection:
    """A connection to the master, at the first place where it is reached.

    Parameters
    ----------
    file : ConnectionFile
        Where it listens, and the keys.
    look : callable
        Called ten times a second while it is not reached; what it raises ends the attempt.

    Attributes
    ----------
    place : str
        Where it was reached.

    Raises
    ------
    GoneMasterError
        It is reached nowhere; says what was tried.
    """

    def __init__(self, file: ConnectionFile, look: Callable[[], None] = lambda: None) -> None:
        self._zmq = zeromq()
        self._cut = False
        self._look = look
        check_descriptors(_DESCRIPTORS, "a connection to the master")
        self._context = self._zmq.Context()
        try:
            self.place = self._reached(file)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _reached(self, file: ConnectionFile) -> str:
        """Connect to the first place where the master is reached; which one."""
        tried: dict[tuple[int, str], list[str]] = {}
        address = Address(file.places, file.network, file.secret_key)
        for host, port in address.seen_from(network_here()):
            try:
                for family, numbers in _resolved(host, port):
                    self._look()
                    with socket.create_connection(numbers, _CONNECT_SECONDS):
                        pass
                    if self._is_known(family, numbers, file):
                        return f"{host}, port {port}"
                reason = "who is there gives no answer, or does not know the keys"
            except OSError as error:
                reason = error.strerror or str(error)
            except UnicodeError:
                reason = "no name of a host"
            tried.setdefault((port, reason), []).append(host)
        text = "; ".join(
            f"port {port} of {', '.join(hosts)} ({reason})"
            for (port, reason), hosts in tried.items()
        )
        raise GoneMasterError(f"the master is reached nowhere: tried {text}")

    def send(self, kind: bytes, head: Any = b"", *frames: Any) -> None:
        """Begin to send a message."""
        self._socket.send_multipart([first(kind, head), *frames])

    def receive(self, seconds: float) -> list[Any] | None:
        """The kind of the next message, its head and frames; None if there is none in this time.

        Raises
        ------
        GoneMasterError
            The master is gone.
        MachineError
            It asks this machine no more, since something went wrong on it.
        DismissedError
            So it is, and the machine is not to come back, since its answers were wrong.
        InputError
            The master refuses this machine.
        """
        zmq = self._zmq
        due = time.monotonic() + seconds
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if self._cut:  # and all that it had said before is heard
                    raise GoneMasterError("the connection to the master has ended") from None
                left = due - time.monotonic()
                if left <= 0:
                    return None
                found = dict(self._poller.poll(1 + int(1e3 * left)))
                self._cut = self._monitor in found and self._is_cut()
                continue
            kind, head = kind_and_head(frames[0].buffer)
            if kind == REFUSED:
                raise InputError(bytes(head).decode())
            if kind in (FAILED, DISMISSED):
                error = DismissedError if kind == DISMISSED else MachineError
                raise error(f"the master asks no more: {bytes(head).decode()}")
            if kind != PRESENT:
                return [kind, head, *(frame.buffer for frame in frames[1:])]

    def close(self) -> None:
        """End it, when the last words are sent."""
        if self._cut:
            self._socket.linger = 0
        self._end()
        self._context.term()

    def _is_known(self, family: int, numbers: tuple[str, int], file: ConnectionFile) -> bool:
        """Connect, and see whether who is there has the keys."""
        zmq = self._zmq
        self._socket = self._context.socket(zmq.DEALER)
        prepare(self._socket)
        # Else ZeroMQ stops to read, and takes the master for dead, when this machine is so busy
        # that it leaves many messages unread.
        self._socket.rcvhwm = 0
        self._socket.ipv6 = family == socket.AF_INET6
        # Who is connected anew is another machine. (-1, for never, throws away what was said last.)
        self._socket.reconnect_ivl = _NEVER_MS
        self._socket.curve_serverkey = file.server_key
        self._socket.curve_publickey = file.public_key
        self._socket.curve_secretkey = file.secret_key
        events = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        self._monitor = watched(self._socket, events)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        host, port = numbers[:2]
        self._socket.connect(f"tcp://{f'[{host}]' if ':' in host else host}:{port}")
        due = time.monotonic() + _KNOWN_SECONDS
        while not (heard := self._monitor.poll(_LOOK_MS)) and time.monotonic() < due:
            self._look()
        if heard and not self._is_cut():
            return True
        self._socket.linger = 0
        self._end()
        return False

    def _is_cut(self) -> bool:
        """Whether the last that is heard of the connection is its end."""
        event = None
        while is_heard(self._monitor):
            event = told(self._monitor)["event"]
        return bool(event == self._zmq.Event.DISCONNECTED)

    def _end(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()


def _resolved(host: str, port: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """Addresses of a name, each once."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, _, _, _, numbers in dict.fromkeys(found):
        yield family, (str(numbers[0]), int(numbers[1]))
