"""Who is alive, without asking MPI: a connection to each process, which ends when that does.

MPI libraries tell of a dead process late, or never, and some wait for ever when something is
sent to one. The kernel closes the connections of a process at once, whatever killed it.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import struct
import time
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Address", "Lifeline", "Lifelines"]

log = logging.getLogger(__name__)

_GREETING = struct.Struct("!16si")  # token, rank
_CONNECT_SECONDS = 2.0  # for one address
_GREET_SECONDS = 20.0  # until those that could connect are heard
_LOOK_SECONDS = 1e-3  # at most one look in this time
# A computer that is gone closes nothing: it is missed after some 25 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Address(NamedTuple):
    """Where rank 0 listens, and the secret that says who may call.

    Attributes
    ----------
    hosts : tuple of str
        Names and addresses, the likeliest first.
    port : int
    token : bytes
    """

    hosts: tuple[str, ...]
    port: int
    token: bytes


class Lifelines:
    """Rank 0's connections to all other processes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._sockets: dict[int, socket.socket] = {}
        self._ranks: dict[int, int] = {}  # of file descriptors
        self._poll = select.poll()
        self._next_look = 0.0
        hosts = dict.fromkeys((socket.gethostname(), socket.getfqdn(), *_own_addresses()))
        port = self._listener.getsockname()[1]
        self.address = Address(tuple(hosts), port, secrets.token_bytes(16))

    def accept(self, ranks: int, more: bool = False) -> None:
        """Hear the processes that have called: so many, and perhaps more of them later."""
        due = time.monotonic() + _GREET_SECONDS
        ranks += len(self._sockets)
        while len(self._sockets) < ranks and (left := due - time.monotonic()) > 0:
            self._listener.settimeout(left)
            try:
                connection, _ = self._listener.accept()
            except OSError:
                continue
            try:
                connection.settimeout(_CONNECT_SECONDS)
                greeting = connection.recv(_GREETING.size, socket.MSG_WAITALL)
                token, rank = _GREETING.unpack(greeting)
            except (OSError, struct.error):
                connection.close()
                continue
            if secrets.compare_digest(token, self.address.token):
                self._keep(rank, connection)
            else:
                connection.close()
        if not more:
            self._listener.close()
        if len(self._sockets) < ranks:
            log.warning("%d processes have called and are gone", ranks - len(self._sockets))

    def gone(self) -> list[int]:
        """Ranks that have ended since the last call; never waits."""
        now = time.monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK_SECONDS
        gone = []
        for descriptor, _ in self._poll.poll(0):
            rank = self._ranks[descriptor]
            if _has_ended(self._sockets[rank]):
                gone.append(rank)
                self._drop(rank)
        return gone

    def close(self) -> None:
        """End all connections."""
        self._listener.close()
        for rank in list(self._sockets):
            self._drop(rank)

    def _keep(self, rank: int, connection: socket.socket) -> None:
        _watch(connection)
        self._sockets[rank] = connection
        self._ranks[connection.fileno()] = rank
        self._poll.register(connection, select.POLLIN)

    def _drop(self, rank: int) -> None:
        connection = self._sockets.pop(rank)
        self._poll.unregister(connection)
        del self._ranks[connection.fileno()]
        connection.close()


class Lifeline:
    """Another process's connection to rank 0.

    Parameters
    ----------
    address : Address
    rank : int
        Its own.
    """

    def __init__(self, address: Address, rank: int) -> None:
        self._socket: socket.socket | None = None
        here = ("127.0.0.1",) if socket.gethostname() == address.hosts[0] else ()
        for host in (*here, *address.hosts):
            try:
                connection = socket.create_connection((host, address.port), _CONNECT_SECONDS)
                connection.sendall(_GREETING.pack(address.token, rank))
            except OSError as error:
                log.info("rank 0 cannot be reached at %s: %s", host, error)
                continue
            _watch(connection)
            self._socket = connection
            return
        log.warning("rank 0 cannot be reached at any of %s", ", ".join(address.hosts))

    @property
    def is_up(self) -> bool:
        """Whether rank 0 could be reached."""
        return self._socket is not None

    @property
    def is_cut(self) -> bool:
        """Whether rank 0 has ended."""
        return self._socket is not None and _has_ended(self._socket)

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _watch(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _own_addresses() -> list[str]:
    """Addresses of this computer that others may know it by."""
    found = []
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # The interface that leads outside: nothing is sent to this address for documentation.
        probe.connect(("192.0.2.1", 9))
        found.append(str(probe.getsockname()[0]))
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]
