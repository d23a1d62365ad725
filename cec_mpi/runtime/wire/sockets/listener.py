"""The TCP and Unix sockets at which the master listens for machines."""

from __future__ import annotations

import logging
import math
import shutil
import socket
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.resources import network_id
from cec_mpi.runtime.roster import Host
from cec_mpi.runtime.times import (
    DISCONNECT_GRACE,
    DISCONNECT_POLL_SECONDS,
    DISCONNECT_SWEEP_SECONDS,
    HEARTBEAT_TIMEOUT,
    PROGRESS_INTERVAL,
)
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import Admission, OpenReport, Order, OrderKind
from cec_mpi.runtime.wire.sockets.connection_file import (
    SCRATCH_PREFIX,
    WILDCARD_ADDRESSES,
    ConnectionFile,
    Keys,
    derive_keys,
    generate_keys,
    local_addresses,
)
from cec_mpi.runtime.wire.sockets.messages import (
    ADMISSION,
    HEARTBEAT,
    ORDER,
    Hello,
    join_frame,
)
from cec_mpi.runtime.wire.sockets.zeromq import (
    DISCONNECT_FRAME_BYTES,
    USER,
    configure_socket,
    import_zmq,
    is_readable,
    open_monitor,
    read_event,
    send,
    to_frames,
)
from cec_mpi.store.files.regular import check_descriptors, increase_file_limit

log = logging.getLogger(__name__)
_DOMAIN = "cec_mpi"  # ZAP domain: the authenticator checks keys by domain
_DONTWAIT = 1  # ZMQ_DONTWAIT
_SOCKET_PREFIXES = b"\0", b"\1"  # TCP and Unix: the first byte of the name of a connection
_MAX_MESSAGES_PER_POLL = 64  # so that a socket which is always busy does not hide the other
_DESCRIPTORS = 26  # file descriptors, most for ZeroMQ, a few for modules and records
_NULL_LOGGER = logging.Logger("zmq.auth", logging.CRITICAL)  # pyzmq would log passwords


@dataclass(eq=False)
class Peer:
    """A host that has joined, and the state of its messages.

    Attributes
    ----------
    host : Host
        Its host in the roster.
    hello : Hello
        Its first message.
    send : callable
        Begins to send a message; returns False if the connection has ended.
    pending_batches : deque of tuple of Job
        Jobs that it has not answered; a batch has the jobs of one message.
    answers : deque of list
        Frames of its answers that the hub has not processed.
    opening_machine : int
        Machine that it is opening; 0 for none.
    opening_since : float
        Time at which the order to open was sent, in seconds of `time.monotonic`.
    last_progress : float
        Time of the last progress report on opening; `opening_since` before the first.
    progress_count : int
        Number of these progress reports.
    open_report : OpenReport or None
        Its report on the opened machine, until the hub processes it.
    is_ready : bool
        Whether it is ready to measure its speed, and waits for the other hosts.
    last_error : str
        Its last error; empty if it has reported none.
    is_leaving : bool
        Whether it has announced that it leaves.
    eligible_from : float
        Time from which it can carry machines, in seconds of `time.monotonic`.
    unsolicited_count : int
        Number of messages other than answers that it has sent since its last answer.
    """

    host: Host
    hello: Hello
    send: Callable[..., bool]
    eligible_from: float = 0.0
    pending_batches: deque[tuple[Job, ...]] = field(default_factory=deque)
    answers: deque[list[Any]] = field(default_factory=deque)
    opening_machine: int = 0
    opening_since: float = 0.0
    last_progress: float = 0.0
    progress_count: int = 0
    open_report: OpenReport | None = None
    is_ready: bool = False
    last_error: str = ""
    is_leaving: bool = False
    unsolicited_count: int = 0

    @property
    def rank(self) -> int:
        """Rank of the host in the session; the master has rank 0."""
        return self.host.rank

    @property
    def pending_jobs(self) -> list[Job]:
        """Jobs that it has not answered."""
        return [job for batch in self.pending_batches for job in batch]

    def send_order(self, order: Order, payload: bytes = b"") -> None:
        """Begin to send an order other than jobs."""
        header = np.array(order._replace(length=len(payload)), dtype=np.int64)
        self.send(ORDER, header, to_frames(payload))

    def open(self, machine: int, threads: int, payload: bytes) -> None:
        """Begin to send the order to open a machine."""
        self.opening_machine, self.open_report, self.is_ready = machine, None, False
        self.opening_since = self.last_progress = time.monotonic()
        self.progress_count = 0
        self.send_order(Order(OrderKind.OPEN, machine, threads), payload)

    def record_progress(self) -> bool:
        """Record a progress message; return False if the host may not send it."""
        self.last_progress = time.monotonic()
        self.progress_count += 1
        limit = 2 + (self.last_progress - self.opening_since) / PROGRESS_INTERVAL
        return bool(self.opening_machine) and self.progress_count <= limit

    def send_admission(self, admission: Admission) -> None:
        """Begin to send the decision on the machine that the host has opened."""
        self.opening_machine, self.open_report = 0, None
        self.send(ADMISSION, b"", to_frames(pack(admission)))

    def record_status(self, status: OpenReport | str | None) -> None:
        """Record an open report, an error, or (if None) that the host is ready to be timed."""
        match status:
            case OpenReport():
                self.open_report = status if self.opening_machine else None
            case str():
                self.last_error = status
            case None:
                self.is_ready = True


class Listener:
    """Sockets for machines; each message has the name of the connection of its sender.

    Without `secret`, machines on this computer can use a Unix socket in a directory that only this
    user can open. It needs no heartbeats, because the end of a process is detected at once, and a
    suspended process does not count as lost. TCP connections have heartbeats.

    A client without the keys uses a file descriptor for some seconds, until the handshake fails.
    Therefore this process raises its limit on open files to the hard limit (``ulimit -Hn``).

    Parameters
    ----------
    addresses : sequence of str
        Host names or addresses at which to listen; an empty string stands for all addresses.
    ports : (int, int) or None
        First and last port that may be used; None for any free port.
    encrypted : bool
        Whether TCP is encrypted (CURVE). If not, machines send the key as a password (PLAIN):
        anyone who can read the network traffic learns it, and anyone who binds the master's port
        can impersonate the master. Disable encryption only on trusted networks.
    secret : str
        Text from which the keys are derived, for machines without a connection file; by default the
        keys are random.
    heartbeat_timeout : float
        Seconds without a heartbeat over TCP after which a machine counts as lost.

    Attributes
    ----------
    file : ConnectionFile
        Addresses and keys for machines; the field `job_id` is empty.

    Raises
    ------
    InputError
        The addresses or ports cannot be used, the secret is too short, or ZeroMQ cannot encrypt.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        ports: tuple[int, int] | None,
        *,
        encrypted: bool = True,
        secret: str = "",
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    ) -> None:
        self._zmq = zmq = import_zmq()
        keys = derive_keys(secret, encrypted) if secret else generate_keys()
        increase_file_limit()
        check_descriptors(_DESCRIPTORS, "the sockets that machines use")
        from zmq.auth.thread import ThreadAuthenticator

        self._sockets: list[Any] = []  # TCP, Unix
        self._monitors: list[Any] = []
        self._directory = ""  # temporary directory of the Unix socket
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context, log=_NULL_LOGGER)
        try:
            self._authenticator.start()
            tcp = self._open_router(heartbeat_timeout)
            self._require_keys(tcp, keys, encrypted)
            self.file = ConnectionFile(
                tuple(
                    (name, port)
                    for address, port in self._bind(tcp, addresses, ports)
                    for name in (local_addresses() if address in WILDCARD_ADDRESSES else [address])
                ),
                network_id(),
                keys.server_key,
                keys.public_key,
                keys.secret_key,
                "" if secret else self._bind_unix(),
                encrypted,
                "",
            )
        except BaseException:
            self.close()
            raise
        self._tracked_descriptors: Counter[int] = Counter()  # of connections of machines
        # One for each connection that has ended, but whose name is unknown. Until this deadline,
        # `find_disconnected` searches for a connection on which messages can no longer be sent.
        self._search_deadlines: list[float] = []
        self._next_search = self._next_sweep = 0.0
        self._last_frame: Any = None  # first frame of the last message
        self._poller = zmq.Poller()
        for polled in (*self._sockets, *self._monitors):
            self._poller.register(polled, zmq.POLLIN)
        self._readable_indices: list[int] = []  # of sockets that may have messages, the next first
        self._messages_until_poll = 0

    def send(self, name: bytes, kind: bytes, head: Any = b"", frames: Sequence[Any] = ()) -> bool:
        """Begin to send a message; return whether the connection is still open.

        Parameters
        ----------
        name, kind : bytes
            Name of the connection, and kind of the message.
        head : bytes or ndarray
            Content of the first frame after the kind, which is copied.
        frames : sequence of zmq.Frame
            From `to_frames`.
        """
        zmq = self._zmq
        try:
            send(self._sockets[name[0]], [name[1:], join_frame(kind, head)], frames, _DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def receive(self, seconds: float = 0.0) -> tuple[bytes, list[memoryview]] | None:
        """Return the connection's name and the frames of the next message; None after `seconds`.

        The wait also ends if a connection that is tracked (`track_disconnect`) ends.
        """
        if not (self._readable_indices and self._messages_until_poll):
            self._poll(seconds)
            self._messages_until_poll = _MAX_MESSAGES_PER_POLL
        while self._readable_indices:
            index = self._readable_indices.pop(0)
            router = self._sockets[index]
            try:
                routing_id = router.recv(_DONTWAIT)
            except self._zmq.Again:
                continue
            self._readable_indices.append(index)  # so that a busy socket does not delay the other
            self._messages_until_poll -= 1
            frames = [router.recv(copy=False)]
            while frames[-1].more:
                frames.append(router.recv(copy=False))
            self._last_frame = frames[0]
            return _SOCKET_PREFIXES[index] + routing_id, [frame.buffer for frame in frames]
        return None

    def track_disconnect(self) -> None:
        """Track the connection of the last message, so that its end is detected at once."""
        self._tracked_descriptors[self._last_frame.get(self._zmq.SRCFD)] += 1

    def find_disconnected(self, names: Collection[bytes]) -> list[bytes]:
        """Return the names of connections that are known to have ended.

        Most calls return at once: connections are tested at intervals, and after a tracked one has
        ended.
        """
        now = time.monotonic()
        if now < (self._next_search if self._search_deadlines else self._next_sweep):
            return []
        self._next_search = now + DISCONNECT_POLL_SECONDS
        self._next_sweep = now + DISCONNECT_SWEEP_SECONDS
        disconnected = [name for name in names if not self.send(name, HEARTBEAT)]
        remaining = self._search_deadlines[len(disconnected) :]
        self._search_deadlines = [deadline for deadline in remaining if deadline > now]
        return disconnected

    def close(self) -> None:
        """Send pending messages, end all connections, and remove the Unix socket."""
        self._authenticator.stop()
        for router in self._sockets:
            router.disable_monitor()
            router.close()
        self._sockets = []
        self._context.destroy()  # also closes the monitors
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _open_router(self, heartbeat_timeout: float) -> Any:
        """Create a socket that identifies connections, and a monitor of them."""
        router = self._context.socket(self._zmq.ROUTER)
        self._sockets.append(router)
        configure_socket(router, heartbeat_timeout)
        router.router_mandatory = True
        router.maxmsgsize = DISCONNECT_FRAME_BYTES
        router.backlog = 1024
        self._monitors.append(open_monitor(router, self._zmq.Event.DISCONNECTED))
        return router

    def _require_keys(self, tcp: Any, keys: Keys, encrypted: bool) -> None:
        """Accept only clients that have the keys."""
        if encrypted:
            checker = SimpleNamespace(callback=lambda _domain, key: key == keys.public_key)
            self._authenticator.configure_curve_callback(_DOMAIN, checker)
            tcp.curve_server = True
            tcp.curve_publickey, tcp.curve_secretkey = keys.server_key, keys.server_secret
        else:
            passwords = {USER.decode(): keys.secret_key.decode()}
            self._authenticator.configure_plain(_DOMAIN, passwords)
            tcp.plain_server = True
        tcp.zap_domain = _DOMAIN.encode()

    def _poll(self, seconds: float) -> None:
        """Wait for messages or the end of a connection, for at most `seconds`."""
        if self._search_deadlines:
            seconds = min(seconds, DISCONNECT_POLL_SECONDS)
        readable = dict(self._poller.poll(math.ceil(1e3 * seconds)))
        self._readable_indices = [n for n, router in enumerate(self._sockets) if router in readable]
        for monitor in self._monitors:
            if monitor in readable:
                self._read_monitor(monitor)

    def _read_monitor(self, monitor: Any) -> None:
        """Begin a search for tracked connections that have ended."""
        while is_readable(monitor):
            descriptor = read_event(monitor)["value"]
            if descriptor in self._tracked_descriptors:
                self._tracked_descriptors -= Counter([descriptor])
                self._search_deadlines.append(time.monotonic() + DISCONNECT_GRACE)

    def _bind(
        self, tcp: Any, addresses: Sequence[str], ports: tuple[int, int] | None
    ) -> list[tuple[str, int]]:
        """Bind a port of each address; return the addresses with their ports."""
        bound_addresses = []
        for address in addresses:
            ip = _resolve(address)
            tcp.ipv6 = ":" in ip or (not address and socket.has_dualstack_ipv6())
            bind_address = f"[{ip}]" if ":" in ip else ip or "*"
            bound_addresses.append((address, self._bind_port(tcp, bind_address, ports)))
        return bound_addresses

    def _bind_port(self, tcp: Any, bind_address: str, ports: tuple[int, int] | None) -> int:
        """Bind the first free port; return it."""
        zmq = self._zmq
        reason = ""
        for port in range(ports[0], ports[1] + 1) if ports else ("*",):
            try:
                tcp.bind(f"tcp://{bind_address}:{port}")
            except zmq.ZMQError as error:
                reason = zmq.strerror(error.errno)
                continue
            return int(tcp.last_endpoint.decode().rpartition(":")[2].rstrip("\0"))
        ports_text = "any port"
        if ports is not None:
            first, last = ports
            ports_text = f"port {first}" if first == last else f"any of ports {first}-{last}"
        ip_text = "" if bind_address == "*" else f" of {bind_address}"
        raise InputError(f"the master cannot listen on {ports_text}{ip_text}: {reason}")

    def _bind_unix(self) -> str:
        """Bind a Unix socket in a temporary directory; return its path, empty if this fails."""
        unix = self._open_router(0)
        for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
            try:
                directory = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent)
            except OSError as error:
                log.info("no Unix socket in %s: %s", parent, error.strerror)
                continue
            path = f"{directory}/master"
            try:
                unix.bind(f"ipc://{path}")  # fails if the path is too long
            except self._zmq.ZMQError as error:
                log.info("no Unix socket in %s: %s", parent, error)
                shutil.rmtree(directory, ignore_errors=True)
                continue
            self._directory = directory
            return path
        return ""


def _resolve(address: str) -> str:
    """Return the IP address of a host name, because ZeroMQ cannot bind host names."""
    if not address:
        return ""
    try:
        return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise InputError(f"the master cannot listen on {address}: {reason}") from None
