"""Where the master listens for machines: a socket that only those with the keys can speak to."""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.files.regular import check_descriptors, raise_file_limit
from cec_mpi.processes.launch.cards import network_here
from cec_mpi.wire.lifelines.lifelines import own_names
from cec_mpi.wire.sockets.connection_file import ConnectionFile
from cec_mpi.wire.sockets.frames import MOST_IN_FRAME, PRESENT, first
from cec_mpi.wire.sockets.library import is_heard, prepare, told, watched, zeromq

log = logging.getLogger(__name__)

_DOMAIN = "cec_mpi"  # whose keys they are
_DESCRIPTORS = 20  # of files, that ZeroMQ needs to listen, and a few more for modules and records
_LOOK_SECONDS = 0.01  # between two looks for those whose connection has ended
_ROUND_SECONDS = 1.0  # between two looks for whoever was missed otherwise
_OWED_SECONDS = 1.0  # after an end, in which it has to show whose it was


class Listener:
    """Listens, and tells callers apart by a number that ZeroMQ gives to each connection.

    Callers that say nothing, or lie, have a file descriptor each for the seconds in which they
    have to shake hands: this process may open all files that it may at most (``ulimit -Hn``).

    Parameters
    ----------
    at : sequence of str
        Addresses to listen at; an empty one is all that this computer has.
    ports : (int, int) or None
        The first and the last port that may be taken; any free one by default.

    Attributes
    ----------
    file : ConnectionFile
        Where it listens, and the keys of machines.

    Raises
    ------
    InputError
        It cannot listen there, or there is no ZeroMQ.
    """

    def __init__(self, at: Sequence[str], ports: tuple[int, int] | None) -> None:
        self._zmq = zmq = zeromq()
        raise_file_limit()
        check_descriptors(_DESCRIPTORS, "what machines join through")
        from zmq.auth.thread import ThreadAuthenticator

        server_key, server_secret = zmq.curve_keypair()
        public_key, secret_key = zmq.curve_keypair()
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, _OneKey(public_key))
        self._socket = self._context.socket(zmq.ROUTER)
        self._monitor: Any = None
        try:
            prepare(self._socket)
            self._socket.curve_server = True
            self._socket.curve_secretkey = server_secret
            self._socket.curve_publickey = server_key
            self._socket.zap_domain = _DOMAIN.encode()
            self._socket.router_mandatory = True
            self._socket.maxmsgsize = MOST_IN_FRAME
            self._socket.backlog = 1024
            self._monitor = watched(self._socket, zmq.Event.DISCONNECTED)
            places = [
                (name, port)
                for host, port in self._bind(at, ports)
                for name in ([host] if host else own_names())
            ]
        except BaseException:
            self.close()
            raise
        keys = server_key, public_key, secret_key
        self.file = ConnectionFile(tuple(places), network_here(), *keys)
        self._known: Counter[int] = Counter()  # file descriptors of callers that have the keys
        self._owed: list[float] = []  # until when it is to show whose connections have ended
        self._next_look = self._next_round = 0.0
        self._last: Any = None  # the frame that says who was heard last

    def send(self, caller: bytes, kind: bytes, head: Any = b"", *frames: Any) -> bool:
        """Begin to send; whether the caller is there."""
        zmq = self._zmq
        try:
            self._socket.send_multipart([caller, first(kind, head), *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def receive(self) -> tuple[bytes, list[Any]] | None:
        """Who has said something, and what; never waits.

        Who is to be missed as soon as its connection ends, the master has to `know`.
        """
        if not is_heard(self._socket):
            return None
        caller, *frames = self._socket.recv_multipart(copy=False)
        self._last = caller
        return caller.bytes, [frame.buffer for frame in frames]

    def know(self) -> None:
        """Whoever was heard last is to be missed when its connection ends."""
        self._known[self._last.get(self._zmq.SRCFD)] += 1

    def gone(self, callers: Sequence[bytes]) -> list[bytes]:
        """Those of some callers whose connections have ended; looks where some have."""
        self._look()
        now = time.monotonic()
        if now < (self._next_look if self._owed else self._next_round):
            return []
        self._next_look, self._next_round = now + _LOOK_SECONDS, now + _ROUND_SECONDS
        gone = [caller for caller in callers if not self.send(caller, PRESENT)]
        self._owed = [until for until in self._owed[len(gone) :] if until > now]
        return gone

    def close(self) -> None:
        """End all connections, when the last words are sent."""
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close()
        self._socket.close()
        self._authenticator.stop()
        self._context.term()

    def _look(self) -> None:
        """Notice that connections have ended of callers that had the keys."""
        while is_heard(self._monitor):
            descriptor = told(self._monitor)["value"]
            if descriptor in self._known:
                self._known -= Counter([descriptor])
                self._owed.append(time.monotonic() + _OWED_SECONDS)

    def _bind(self, at: Sequence[str], ports: tuple[int, int] | None) -> list[tuple[str, int]]:
        bound = []
        for host in at:
            dual = not host and socket.has_dualstack_ipv6()
            self._socket.ipv6 = dual or ":" in host
            written = f"[{host}]" if ":" in host else host or "*"
            bound.append((host, self._bind_one(written, ports)))
        return bound

    def _bind_one(self, written: str, ports: tuple[int, int] | None) -> int:
        zmq = self._zmq
        reason = ""
        for port in range(ports[0], ports[1] + 1) if ports else ("*",):
            try:
                self._socket.bind(f"tcp://{written}:{port}")
            except zmq.ZMQError as error:
                reason = error.strerror
                continue
            return int(self._socket.last_endpoint.decode().rpartition(":")[2].rstrip("\0"))
        which = f" at ports {ports[0]}-{ports[1]}" if ports else ""
        where = "any address" if written == "*" else written
        raise InputError(f"accept: rank 0 cannot listen at {where}{which}: {reason}")


class _OneKey:
    """Says that callers may speak who have this key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._key
