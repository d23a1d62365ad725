"""The sockets at which the master listens: TCP and Unix, for machines with the keys."""

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
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.places import network_id
from cec_mpi.runtime.roster import Host
from cec_mpi.runtime.times import (
    DISCONNECT_GRACE,
    DISCONNECT_POLL_SECONDS,
    DISCONNECT_SWEEP_SECONDS,
    HEARTBEAT_TIMEOUT,
    PROGRESS_INTERVAL,
)
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import OpenReport, Order, OrderKind, Verdict
from cec_mpi.runtime.wire.sockets.connection_file import (
    ALL_ADDRESSES,
    SCRATCH_PREFIX,
    ConnectionFile,
    Keys,
    derive_keys,
    generate_keys,
    local_addresses,
)
from cec_mpi.runtime.wire.sockets.library import (
    MAX_READ_BYTES,
    USER,
    configure_socket,
    is_readable,
    open_monitor,
    read_event,
    send,
    to_frames,
    zeromq,
)
from cec_mpi.runtime.wire.sockets.messages import (
    ADMISSION,
    HEARTBEAT,
    ORDER,
    Hello,
    join_frame,
)
from cec_mpi.store.files.regular import check_descriptors, raise_file_limit

log = logging.getLogger(__name__)
_DOMAIN = "cec_mpi"  # of the keys
_NEVER_WAIT = 1  # ZMQ_DONTWAIT
_SOCKETS = b"\0", b"\1"  # TCP and Unix: the first byte of the name of a connection
_DESCRIPTORS = 26  # that ZeroMQ needs to listen, and a few more for modules and records
_NULL_LOGGER = logging.Logger("zmq.auth", logging.CRITICAL)  # pyzmq would log passwords


@dataclass(eq=False)
class Peer:
    """A host that has joined, and what it has sent.

    Attributes
    ----------
    host : Host
        Its entry in the roster.
    hello : Hello
        Its first message.
    send : callable
        Begins to send frames; returns False if the connection has ended.
    sent : deque of tuple of Job
        The jobs that it has not answered, as they were sent together.
    answers : deque of list
        The frames of its answers, until they are taken.
    opening : int
        The machine that it is opening; 0 for none.
    since : float
        When the order to open was sent, in seconds of `time.monotonic`.
    progressed : float
        When it last reported progress with that, at first `since`.
    progress_messages : int
        How many times it has done so.
    opened : OpenReport or None
        Its report on this machine, until it is taken.
    is_ready : bool
        Whether it waits for the others to measure its speed.
    text : str
        Its last error; empty if it has reported none.
    has_left : bool
        Whether it has said good-bye.
    eligible_from : float
        When it can take machines, on the clock of `time.monotonic`.
    unsolicited : int
        Messages that it has sent since its last answer.
    """

    host: Host
    hello: Hello
    send: Callable[..., bool]
    eligible_from: float = 0.0
    sent: deque[tuple[Job, ...]] = field(default_factory=deque)
    answers: deque[list[Any]] = field(default_factory=deque)
    opening: int = 0
    since: float = 0.0
    progressed: float = 0.0
    progress_messages: int = 0
    open_report: OpenReport | None = None
    is_ready: bool = False
    text: str = ""
    has_left: bool = False
    unsolicited: int = 0

    @property
    def rank(self) -> int:
        """Its number among the processes of the session; the master is 0."""
        return self.host.rank

    @property
    def jobs(self) -> list[Job]:
        """The jobs that it has not answered."""
        return [job for jobs in self.sent for job in jobs]

    def send_order(self, order: Order, content: bytes = b"") -> None:
        """Begin to send an order that is not a job."""
        header = np.array(order._replace(length=len(content)), dtype=np.int64)
        self.send(ORDER, header, to_frames(content))

    def open(self, machine: int, threads: int, opening: bytes) -> None:
        """Begin to send the order to open a machine."""
        self.opening, self.open_report, self.is_ready = machine, None, False
        self.since = self.progressed = time.monotonic()
        self.progress_messages = 0
        self.send_order(Order(OrderKind.OPEN, machine, threads), opening)

    def note_progress(self) -> bool:
        """Note that the host copies its shard; False for a message too many."""
        self.progressed, self.progress_messages = time.monotonic(), self.progress_messages + 1
        possible = 2 + (self.progressed - self.since) / PROGRESS_INTERVAL
        return bool(self.opening) and self.progress_messages <= possible

    def send_verdict(self, verdict: Verdict) -> None:
        """Begin to send whether the host serves the machine that it has opened."""
        self.opening, self.open_report = 0, None
        self.send(ADMISSION, b"", to_frames(pack(verdict)))

    def take_status(self, status: OpenReport | str | None) -> None:
        """Take a status of the host."""
        match status:
            case OpenReport():
                self.open_report = status if self.opening else None
            case str():
                self.text = status
            case None:
                self.is_ready = True


class Listener:
    """Listens for machines, and identifies each by the name of its connection.

    Machines on this host can use a Unix socket in a directory that only this user can open, whose
    name is in the connection file. It has no heartbeats, because the end of a process shows at
    once, and a stopped process is not lost. TCP has heartbeats.

    A caller without the keys holds a file descriptor for some seconds, until the handshake fails:
    this process raises its limit of open files to the hard one (``ulimit -Hn``).

    Parameters
    ----------
    at : sequence of str
        Names or addresses to listen at; an empty one stands for all of this host.
    ports : (int, int) or None
        The first and the last port that may be taken; any free one by default.
    encrypted : bool
        Whether TCP is encrypted (CURVE). If not, machines send the key as a password (PLAIN):
        anyone who can read the network traffic learns it, and anyone who binds the master's port
        can impersonate the master. Use it only on trusted networks.
    secret : str
        The text from which the keys are derived, for machines without a connection file; by default
        they are random.
    silence : float
        Seconds without a sign of life over TCP after which a machine counts as gone.

    Attributes
    ----------
    file : ConnectionFile
        Where it listens, and the keys of machines; without a job.

    Raises
    ------
    InputError
        It cannot listen there, the secret is too short, or ZeroMQ cannot encrypt.
    """

    def __init__(
        self,
        at: Sequence[str],
        ports: tuple[int, int] | None,
        *,
        encrypted: bool = True,
        secret: str = "",
        silence: float = HEARTBEAT_TIMEOUT,
    ) -> None:
        self._zmq = zmq = zeromq()
        keys = derive_keys(secret, encrypted) if secret else generate_keys()
        raise_file_limit()
        check_descriptors(_DESCRIPTORS, "the sockets that machines use")
        from zmq.auth.thread import ThreadAuthenticator

        self._sockets: list[Any] = []  # TCP, Unix
        self._monitors: list[Any] = []
        self._directory = ""  # of the Unix socket
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context, log=_NULL_LOGGER)
        try:
            self._authenticator.start()
            tcp = self._open_router(silence)
            self._require_keys(tcp, keys, encrypted)
            places = [
                (name, port)
                for host, port in self._bind(tcp, at, ports)
                for name in (local_addresses() if host in ALL_ADDRESSES else [host])
            ]
            self.file = ConnectionFile(
                tuple(places),
                network_id(),
                keys.server_key,
                keys.public_key,
                keys.secret_key,
                "" if secret else self._bind_local(),
                encrypted,
                "",
            )
        except BaseException:
            self.close()
            raise
        self._tracked: Counter[int] = Counter()  # file descriptors of machines
        # Deadlines by which a send must reveal whose connection has ended.
        self._expected_until: list[float] = []
        self._next_check = self._next_sweep = 0.0
        self._last: Any = None  # a frame of the last message
        self._poller = zmq.Poller()
        for polled in (*self._sockets, *self._monitors):
            self._poller.register(polled, zmq.POLLIN)
        self._readable: list[int] = []  # numbers of sockets that may have messages, in turn

    def send(self, caller: bytes, kind: bytes, head: Any = b"", frames: Sequence[Any] = ()) -> bool:
        """Begin to send a message; whether the caller is still connected.

        Parameters
        ----------
        caller, kind : bytes
        head : bytes or ndarray
            It is copied.
        frames : sequence of zmq.Frame
            See `library.to_frames`.
        """
        zmq = self._zmq
        try:
            send(
                self._sockets[caller[0]], [caller[1:], join_frame(kind, head)], frames, _NEVER_WAIT
            )
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def receive(self, seconds: float = 0.0) -> tuple[bytes, list[memoryview]] | None:
        """Return the next message and its sender; None if there is none for this time.

        The end of a sender's connection shows at once only after `track_disconnect`, and ends the
        wait.
        """
        if not self._readable:
            self._poll(seconds)
        while self._readable:
            number = self._readable.pop(0)
            router = self._sockets[number]
            try:
                caller = router.recv(_NEVER_WAIT)
            except self._zmq.Again:
                continue
            self._readable.append(number)  # many messages on one do not delay the other's
            frames = [router.recv(copy=False)]
            while frames[-1].more:
                frames.append(router.recv(copy=False))
            self._last = frames[0]
            return _SOCKETS[number] + caller, [frame.buffer for frame in frames]
        return None

    def track_disconnect(self) -> None:
        """Look for the end of the last sender's connection from now on."""
        self._tracked[self._last.get(self._zmq.SRCFD)] += 1

    def disconnected(self, callers: Collection[bytes]) -> list[bytes]:
        """Return those of some callers whose connections have ended, as far as is known."""
        now = time.monotonic()
        if now < (self._next_check if self._expected_until else self._next_sweep):
            return []
        self._next_check, self._next_sweep = (
            now + DISCONNECT_POLL_SECONDS,
            now + DISCONNECT_SWEEP_SECONDS,
        )
        gone = [caller for caller in callers if not self.send(caller, HEARTBEAT)]
        self._expected_until = [until for until in self._expected_until[len(gone) :] if until > now]
        return gone

    def close(self) -> None:
        """Send pending messages, end all connections, and remove the Unix socket."""
        self._authenticator.stop()
        for router in self._sockets:
            router.disable_monitor()
            router.close()
        self._sockets = []
        self._context.destroy()  # and the monitors
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _open_router(self, silence: float) -> Any:
        """Make a socket that tells callers apart, and watch it."""
        router = self._context.socket(self._zmq.ROUTER)
        self._sockets.append(router)
        configure_socket(router, silence)
        router.router_mandatory = True
        router.maxmsgsize = MAX_READ_BYTES
        router.backlog = 1024
        self._monitors.append(open_monitor(router, self._zmq.Event.DISCONNECTED))
        return router

    def _require_keys(self, tcp: Any, keys: Keys, encrypted: bool) -> None:
        """Accept only callers that have the keys."""
        if encrypted:
            self._authenticator.configure_curve_callback(_DOMAIN, _KeyChecker(keys.public_key))
            tcp.curve_server = True
            tcp.curve_publickey, tcp.curve_secretkey = keys.server_key, keys.server_secret
        else:
            passwords = {USER.decode(): keys.secret_key.decode()}
            self._authenticator.configure_plain(_DOMAIN, passwords)
            tcp.plain_server = True
        tcp.zap_domain = _DOMAIN.encode()

    def _poll(self, seconds: float) -> None:
        """Wait for messages or the end of a connection, at most for this time."""
        if self._expected_until:
            seconds = min(seconds, DISCONNECT_POLL_SECONDS)
        readable = dict(self._poller.poll(math.ceil(1e3 * seconds)))
        self._readable = [n for n, router in enumerate(self._sockets) if router in readable]
        for monitor in self._monitors:
            if monitor in readable:
                self._read_monitor(monitor)

    def _read_monitor(self, monitor: Any) -> None:
        """Notice that connections of machines have ended."""
        while is_readable(monitor):
            descriptor = read_event(monitor)["value"]
            if descriptor in self._tracked:
                self._tracked -= Counter([descriptor])
                self._expected_until.append(time.monotonic() + DISCONNECT_GRACE)

    def _bind(
        self, tcp: Any, at: Sequence[str], ports: tuple[int, int] | None
    ) -> list[tuple[str, int]]:
        bound = []
        for host in at:
            dual = not host and socket.has_dualstack_ipv6()
            address = _address(host)
            tcp.ipv6 = dual or ":" in address
            written = f"[{address}]" if ":" in address else address or "*"
            bound.append((host, self._bind_one(tcp, written, ports)))
        return bound

    def _bind_one(self, tcp: Any, written: str, ports: tuple[int, int] | None) -> int:
        zmq = self._zmq
        reason = ""
        for port in range(ports[0], ports[1] + 1) if ports else ("*",):
            try:
                tcp.bind(f"tcp://{written}:{port}")
            except zmq.ZMQError as error:
                reason = zmq.strerror(error.errno)
                continue
            return int(tcp.last_endpoint.decode().rpartition(":")[2].rstrip("\0"))
        which = "any port"
        if ports is not None:
            first, last = ports
            which = f"port {first}" if first == last else f"any of ports {first}-{last}"
        where = "" if written == "*" else f" of {written}"
        raise InputError(f"the master cannot listen on {which}{where}: {reason}")

    def _bind_local(self) -> str:
        """Listen in a temporary directory; returns the socket's path, empty if none can be used."""
        local = self._open_router(0)
        for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
            try:
                directory = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent)
            except OSError as error:
                log.info("no Unix socket in %s: %s", parent, error.strerror)
                continue
            path = f"{directory}/master"
            try:
                local.bind(f"ipc://{path}")  # fails if the path is too long
            except self._zmq.ZMQError as error:
                log.info("no Unix socket in %s: %s", parent, error)
                shutil.rmtree(directory, ignore_errors=True)
                continue
            self._directory = directory
            return path
        return ""


def _address(host: str) -> str:
    """Return the address of a name, because ZeroMQ listens only at addresses."""
    if not host:
        return ""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise InputError(f"the master cannot listen on {host}: {reason}") from None


class _KeyChecker:
    """Admits callers that have this key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._key
