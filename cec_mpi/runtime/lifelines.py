"""Who is alive, without asking MPI: a connection to each process, which ends when that does.

MPI libraries tell of a dead process late, or never, and some wait for ever when something is
sent to one. The kernel closes the connections of a process at once, whatever killed it.
"""

from __future__ import annotations

import fcntl
import logging
import queue
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Address", "Lifeline", "Lifelines"]

log = logging.getLogger(__name__)

_GREETING = struct.Struct("!16si")  # token, rank
_CONNECT_SECONDS = 2.0  # for one address, and for one greeting
_SIOCGIFADDR = 0x8915  # the IPv4 address of a network card
_LOOK_SECONDS = 1e-3  # at most one look in this time
# A computer that is gone closes nothing: it is missed after some 25 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Address(NamedTuple):
    """Where rank 0 listens, and the secret that says who may call.

    Attributes
    ----------
    hosts : tuple of str
        Names and addresses, the likeliest first. Some may be those of other computers, seen
        from elsewhere: who calls has to hear the token.
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
        self._callers: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def accept(self, ranks: Iterable[int], more: bool = False) -> None:
        """Keep the connections of processes that have called.

        Parameters
        ----------
        ranks : iterable of int
            Those that have heard the token: their calls are here, or will be in a moment.
        more : bool
            Others may call later.
        """
        if not more:
            self._hear_no_more()
        missing = set(ranks) - self._sockets.keys()
        while missing or not self._callers.empty():
            try:
                rank, connection = self._callers.get(timeout=_CONNECT_SECONDS)
            except queue.Empty:
                log.warning("%d processes have called and are gone", len(missing))
                return
            self._keep(rank, connection)
            missing.discard(rank)

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
        self._hear_no_more()
        for rank in list(self._sockets):
            self._drop(rank)

    def _hear(self) -> None:
        """Answer each caller that knows the token, in a thread: callers wait for it."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # heard enough
            try:
                connection.settimeout(_CONNECT_SECONDS)
                greeting = connection.recv(_GREETING.size, socket.MSG_WAITALL)
                token, rank = _GREETING.unpack(greeting)
                if not secrets.compare_digest(token, self.address.token):
                    raise ConnectionError("a stranger")
                connection.sendall(token)
            except (OSError, struct.error):
                connection.close()
            else:
                self._callers.put((rank, connection))

    def _hear_no_more(self) -> None:
        with suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends a wait in accept
        self._hearing.join()
        self._listener.close()

    def _keep(self, rank: int, connection: socket.socket) -> None:
        if rank in self._sockets:
            self._drop(rank)
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
                self._socket = _call(host, address, rank)
            except OSError as error:
                log.info("rank 0 cannot be reached at %s: %s", host, error)
            else:
                log.info("rank 0 is reached at %s", host)
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


def _call(host: str, address: Address, rank: int) -> socket.socket:
    """A connection to rank 0, if it is there under this name and nobody else."""
    connection = socket.create_connection((host, address.port), _CONNECT_SECONDS)
    try:
        connection.sendall(_GREETING.pack(address.token, rank))
        answer = connection.recv(len(address.token), socket.MSG_WAITALL)
        if not secrets.compare_digest(answer, address.token):
            raise ConnectionError("somebody else answers")
        _watch(connection)
    except OSError:
        connection.close()
        raise
    return connection


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
    found += _addresses_of_cards()
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def _addresses_of_cards() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # a card without one
                found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                yield socket.inet_ntoa(found[20:24])
