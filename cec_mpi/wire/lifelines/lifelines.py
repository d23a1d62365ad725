"""Who is alive, without asking MPI: a connection to each process, which ends when that does.

MPI libraries tell of a dead process late, or never, and some wait for ever when something is
sent to one. The kernel closes the connections of a process at once, whatever killed it.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cec_mpi.processes.launch.cards import cards, network_here
from cec_mpi.wire.lifelines.handshake import (
    HANDSHAKE_SECONDS,
    SECRET_BYTES,
    HandshakeError,
    RefusedError,
    SilenceError,
    call,
    shake_hands,
)
from cec_mpi.wire.lifelines.reception import Reception, is_shortage

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0  # for one address
_CALL_SECONDS = 6.0  # in which all addresses are tried again after what may have been bad luck
_AGAIN_SECONDS = 0.1  # between
_ARRIVAL_SECONDS = 2.0  # that a call which was answered takes to be seen by the main thread
_LOOK_SECONDS = 1e-3  # at most one look in this time
# A computer that is gone closes nothing: it is missed after some 25 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


@dataclass(frozen=True)
class Address:
    """Where rank 0 listens, and the secret that says who may call.

    Attributes
    ----------
    places : tuple of (str, int)
        Names or addresses, the likeliest first, each with a port. Some may be those of other
        computers, seen from elsewhere: who answers has to know the secret.
    network : str
        Where 127.0.0.1 is rank 0's own (`network_here`).
    secret : bytes
        Not to be shown.
    """

    places: tuple[tuple[str, int], ...]
    network: str
    secret: bytes = field(repr=False)

    def seen_from(self, network: str) -> list[tuple[str, int]]:
        """The places to try, in their order, for a process in this network."""
        near = [place for place in self.places if is_loopback(place[0])]
        far = [place for place in self.places if place not in near]
        return near + far if network == self.network or not far else far


def is_loopback(host: str) -> bool:
    """Whether an address is that of the computer itself."""
    return host in ("::1", "localhost") or host.startswith("127.")


class Lifelines:
    """Rank 0's connections to all other processes.

    Parameters
    ----------
    ranks : iterable of int
        Those that may call.
    at : sequence of str
        Addresses to listen at; an empty one is all that this computer has.
    ports : (int, int), optional
        The first and the last port that may be taken; by default any.

    Raises
    ------
    OSError, RuntimeError
        There are too few file descriptors or threads, or it cannot listen there.
    """

    def __init__(
        self,
        ranks: Iterable[int] = (),
        at: Sequence[str] = ("",),
        ports: tuple[int, int] | None = None,
    ) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._ranks: dict[int, int] = {}  # of file descriptors
        self._poll = select.poll()
        self._next_look = 0.0
        self._expected = set(ranks)  # that have not been accepted
        self._heard: dict[int, socket.socket] = {}  # likewise, and have called
        self._change = threading.Condition()  # of the two above
        secret = secrets.token_bytes(SECRET_BYTES)
        self._reception = Reception(at, secret, self._grants, self._welcome, ports)
        places = [
            (name, port)
            for host, port in zip(at, self._reception.ports, strict=True)
            for name in ([host] if host else own_names())
        ]
        self.address = Address(tuple(places), network_here(), secret)

    def expect(self, rank: int) -> None:
        """Let a process call that did not exist before."""
        with self._change:
            self._expected.add(rank)

    def accept(self, ranks: Iterable[int], more: bool = False) -> None:
        """Keep the connections of processes that have called.

        Parameters
        ----------
        ranks : iterable of int
            Those that were answered: their calls are here, or will be in a moment.
        more : bool
            Others may call later.
        """
        wanted = set(ranks)
        with self._change:
            self._change.wait_for(lambda: all(map(self._is_on, wanted)), _ARRIVAL_SECONDS)
            for rank in sorted(wanted & self._heard.keys()):
                self._expected.discard(rank)
                self._keep(rank, self._heard.pop(rank))
        missing = wanted - self._sockets.keys()
        if missing:
            log.warning("%d processes have called and are gone", len(missing))
        if not more:
            self._hear_no_more()

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

    def _grants(self, rank: int) -> bool:
        """Whether a process that knows the secret may be this rank."""
        with self._change:
            earlier = self._heard.get(rank)
            return rank in self._expected and (earlier is None or _has_ended(earlier))

    def _is_on(self, rank: int) -> bool:
        """Whether a call is there, and not one that was given up to call again."""
        connection = self._heard.get(rank)
        return connection is not None and not _has_ended(connection)

    def _welcome(self, rank: int, connection: socket.socket) -> None:
        try:
            _watch(connection)
        except OSError:  # it is gone again
            connection.close()
            return
        with self._change:
            if rank in self._heard:
                self._heard.pop(rank).close()
            self._heard[rank] = connection
            self._change.notify()

    def _hear_no_more(self) -> None:
        self._reception.close()
        while self._heard:
            self._heard.popitem()[1].close()

    def _keep(self, rank: int, connection: socket.socket) -> None:
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
        due = time.monotonic() + _CALL_SECONDS
        while self._try(address, rank) and time.monotonic() < due:
            time.sleep(_AGAIN_SECONDS)
        if self._socket is None:
            hosts = ", ".join(host for host, _ in address.places)
            log.warning("rank 0 cannot be reached at any of %s", hosts)

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

    def _try(self, address: Address, rank: int) -> bool:
        """Call at each place until rank 0 answers; whether it is worth while to do it again."""
        again = False
        for place in address.seen_from(network_here()):
            try:
                self._socket = _call(place, address.secret, rank)
            except RefusedError as error:
                log.error("rank 0 is reached at %s, but %s", place[0], error)
                return False
            except OSError as error:
                log.info("rank 0 cannot be reached at %s: %s", place[0], error)
                again = again or _was_bad_luck(error)
            else:
                log.info("rank 0 is reached at %s", place[0])
                return False
        return again


def _call(place: tuple[str, int], secret: bytes, rank: int) -> socket.socket:
    """A connection to rank 0, if it is there under this name and nobody else."""
    connection = socket.create_connection(place, _CONNECT_SECONDS)
    try:
        shake_hands(connection, call(secret, rank), HANDSHAKE_SECONDS)
        _watch(connection)
    except OSError:
        connection.close()
        raise
    return connection


def _was_bad_luck(error: OSError) -> bool:
    """Whether it may go well the next time: rank 0 had too many callers, or somebody too little."""
    if isinstance(error, HandshakeError):
        return isinstance(error, SilenceError)
    return is_shortage(error) or isinstance(error, ConnectionResetError | BrokenPipeError)


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


def own_names() -> list[str]:
    """Names and addresses that this computer may be known by, its own for itself too."""
    found = [socket.gethostname(), socket.getfqdn()]
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(found[0], None)]
    with suppress(OSError):
        found += [card.address for card in cards()]
    others = [name for name in dict.fromkeys(found) if not is_loopback(name)]
    return [*others, "127.0.0.1"]
