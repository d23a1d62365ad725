"""A machine's endpoint of a socket: its connection to the master, and its jobs."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DismissedError, InputError, MachineError, StoppedError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.packing import Failure, pack, unpack
from cec_mpi.runtime.processes.places import network_id
from cec_mpi.runtime.times import (
    CONNECT_SECONDS,
    HANDSHAKE_SECONDS,
    HEARTBEAT_TIMEOUT,
    LEAVE_ACK_SECONDS,
    PROGRESS_INTERVAL,
    SHUTDOWN_POLL_SECONDS,
)
from cec_mpi.runtime.wire.orders import (
    MAX_INLINE_ANSWERS,
    Admission,
    Close,
    Multiply,
    Open,
    Opening,
    OpenReport,
    OrderKind,
    ParsedOrder,
    Stop,
    pack_report,
    parse_order,
)
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile, order_addresses
from cec_mpi.runtime.wire.sockets.library import (
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
    ANSWER,
    DISMISSED,
    FAILED,
    HEARTBEAT,
    LEAVE,
    LEAVE_ACK,
    MEASURE,
    ORDER,
    PROGRESS,
    REFUSED,
    STATUS,
    copy_frames,
    join_frame,
    operand_shape,
    split_frame,
    unpack_order,
)
from cec_mpi.store.files.regular import check_descriptors
from cec_mpi.text import format_bytes, plural
from cec_mpi.text.terminal import print_note

_DESCRIPTORS = 12  # that ZeroMQ needs, and a few more for modules and shards
_UNIX = 0  # in place of a port
_NEVER_MS = 24 * 3600 * 1000
_SILENT = "no answer, or different keys or encryption"


class MasterLostError(MachineError):
    """The master has ended or cannot be reached.

    Attributes
    ----------
    is_silent : bool
        Its computer accepts connections, but the master does not answer: it may be stopped.
    """

    is_silent = False


class Connection:
    """A connection to the master, at the first place where it can be reached.

    On the master's host this is its Unix socket, if it has one and can be reached there.

    Parameters
    ----------
    file : ConnectionFile
        Where it listens, and the keys.
    check_cancelled : callable
        Called ten times a second until the master is reached; what it raises ends the attempt.
    heartbeat_timeout : float
        Seconds without a sign of life over TCP after which the master counts as gone.

    Attributes
    ----------
    place : str
        Where the master was reached, for example "Unix socket /tmp/cec_mpi-x/master" or
        "node1, port 5555".

    Raises
    ------
    MasterLostError
        It cannot be reached; the message lists what was tried.
    """

    def __init__(
        self,
        file: ConnectionFile,
        check_cancelled: Callable[[], None] = lambda: None,
        *,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    ) -> None:
        self._zmq = zeromq()
        self._disconnected = False
        self._check_cancelled = check_cancelled
        self._heartbeat_timeout = heartbeat_timeout
        check_descriptors(_DESCRIPTORS, "a connection to the master")
        self._context = self._zmq.Context()
        try:
            self.place = self._connect(file)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _connect(self, file: ConnectionFile) -> str:
        """Connect at the first place where the master can be reached, and return its name."""
        tried: dict[tuple[int, str], list[str]] = {}
        same_network = file.network == network_id()
        places = order_addresses(file.places, same_network)
        if same_network and _is_own_socket(file.local):
            places.insert(0, (file.local, _UNIX))
        probes = []
        for place in places:  # at the same time: a computer that is off answers at no address
            found: list[tuple[int, Any]] = []
            errors: list[Exception] = []
            given = *place, found, errors
            thread = threading.Thread(target=_probe, args=given, daemon=True)
            thread.start()
            probes.append((place, thread, found, errors))
        for (host, port), thread, found, errors in probes:
            try:
                self._check_cancelled()
                while thread.is_alive():
                    thread.join(SHUTDOWN_POLL_SECONDS)
                    self._check_cancelled()
                if not found:
                    raise errors[-1]
                for family, address in found:
                    if self._handshake(family, address, file):
                        return f"Unix socket {host}" if port == _UNIX else f"{host}, port {port}"
                reason = _SILENT
            except OSError as error:
                reason = error.strerror or str(error)
                if port == _UNIX and isinstance(error, ConnectionRefusedError):
                    _remove_socket(host)
            except UnicodeError:
                reason = "not a host name"
            tried.setdefault((port, reason), []).append(host)
        text = "; ".join(
            f"{'Unix socket' if port == _UNIX else f'port {port} of'} {', '.join(hosts)} ({reason})"
            for (port, reason), hosts in tried.items()
        )
        unreachable = MasterLostError(f"the master cannot be reached: tried {text}")
        unreachable.is_silent = any(reason == _SILENT for _, reason in tried)
        raise unreachable

    def send(self, kind: bytes, head: Any = b"", frames: Sequence[Any] = ()) -> None:
        """Begin to send a message; its frames (`library.to_frames`) are not copied."""
        send(self._socket, [join_frame(kind, head)], frames)

    def receive(self, seconds: float) -> list[Any] | None:
        """Return the kind of the next message, its head and frames; None after this time.

        Raises
        ------
        MasterLostError
            The connection has ended.
        MachineError
            The master has excluded this machine because something went wrong on it.
        DismissedError
            The master has excluded this machine for good because its answers were wrong.
        InputError
            The master refuses this machine.
        """
        zmq = self._zmq
        due = time.monotonic() + seconds
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if self._disconnected:  # and all that was sent before is received
                    raise MasterLostError("the connection to the master has ended") from None
                left = due - time.monotonic()
                if left <= 0:
                    return None
                found = dict(self._poller.poll(1 + int(1e3 * left)))
                self._disconnected = self._monitor in found and self._is_disconnected()
                continue
            kind, head = split_frame(frames[0].buffer)
            if kind == REFUSED:
                raise InputError(bytes(head).decode())
            if kind in (FAILED, DISMISSED):
                error = DismissedError if kind == DISMISSED else MachineError
                raise error(f"the master has excluded this machine: {bytes(head).decode()}")
            if kind != HEARTBEAT:
                return [kind, head, *(frame.buffer for frame in frames[1:])]

    def check(self) -> None:
        """Raise if the connection has ended.

        Raises
        ------
        MasterLostError
            It has ended.
        """
        self._disconnected = self._disconnected or self._is_disconnected()
        if self._disconnected:
            raise MasterLostError("the connection to the master has ended")

    def close(self) -> None:
        """Send pending messages, and close the connection."""
        if self._disconnected:
            self._socket.linger = 0
        self._end()
        self._context.term()

    def _handshake(self, family: int, address: Any, file: ConnectionFile) -> bool:
        """Connect, and return whether the handshake succeeded."""
        zmq = self._zmq
        self._socket = self._context.socket(zmq.DEALER)
        configure_socket(self._socket, 0 if family == socket.AF_UNIX else self._heartbeat_timeout)
        # With a limit, ZeroMQ stops reading when this machine is so busy that many messages wait,
        # and then takes the master for dead.
        self._socket.rcvhwm = 0
        self._socket.ipv6 = family == socket.AF_INET6
        # The master takes a reconnection for another machine, so the interval is a day. (-1, for
        # never, would drop the last messages.)
        self._socket.reconnect_ivl = _NEVER_MS
        if family != socket.AF_UNIX:
            self._set_keys(file)
        events = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        self._monitor = open_monitor(self._socket, events)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        if family == socket.AF_UNIX:
            self._socket.connect(f"ipc://{address}")
        else:
            host, port = address
            self._socket.connect(f"tcp://{f'[{host}]' if ':' in host else host}:{port}")
        due = time.monotonic() + HANDSHAKE_SECONDS
        while (
            not (has_event := self._monitor.poll(int(1e3 * SHUTDOWN_POLL_SECONDS)))
            and time.monotonic() < due
        ):
            self._check_cancelled()
        if has_event and not self._is_disconnected():
            return True
        self._socket.linger = 0
        self._end()
        return False

    def _set_keys(self, file: ConnectionFile) -> None:
        if file.encrypted:
            self._socket.curve_serverkey = file.server_key
            self._socket.curve_publickey = file.public_key
            self._socket.curve_secretkey = file.secret_key
        else:
            self._socket.plain_username = USER
            self._socket.plain_password = file.secret_key

    def _is_disconnected(self) -> bool:
        """Whether the last event of the connection is its end."""
        event = None
        while is_readable(self._monitor):
            event = read_event(self._monitor)["event"]
        return bool(event == self._zmq.Event.DISCONNECTED)

    def _end(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()


def _probe(host: str, port: int, found: list[tuple[int, Any]], errors: list[Exception]) -> None:
    """Find the addresses of a place, with their families, at which a process listens."""
    addresses: list[tuple[int, Any]] = [(socket.AF_UNIX, host)]
    try:
        if port != _UNIX:
            infos = dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            addresses = [(family, numbers[:2]) for family, _, _, _, numbers in infos]
    except (OSError, UnicodeError) as error:
        errors.append(error)
        return
    for family, address in addresses:
        try:
            with socket.socket(family) as caller:
                caller.settimeout(CONNECT_SECONDS)
                caller.connect(address)
            found.append((family, address))
        except OSError as error:
            errors.append(error)


def _remove_socket(path: str) -> None:
    """Remove the socket of a master that was killed."""
    with suppress(OSError):
        Path(path).unlink()
        Path(path).parent.rmdir()


def _is_own_socket(path: str) -> bool:
    """Whether the path is a socket of this user."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


class ShutdownRequested(StoppedError):
    """The machine was told to leave."""


def signal_reason(*noted: SignalRecorder) -> str:
    """Return the signal or notice that requested shutdown, as text; empty without one."""
    for signals in noted:
        if found := signals.received.name if signals.received else signals.notice:
            return f"shutdown requested by {found}"
    return ""


class SocketMachineEndpoint:
    """A machine's endpoint.

    Parameters
    ----------
    connection : Connection
    threads : int or None
        BLAS threads of this process; None for the number that the master sends.
    before : SignalRecorder
        Those that came before it serves.
    prints : bool
        Print which machine this process is.
    host_options : mapping
        Options of this host in place of those of the run.
    memory : int, optional
        Bytes for shards: it prints how many fit.

    Attributes
    ----------
    machines : tuple of int
        That it carries, or carried last.
    shutdown_reason : str
        Why this machine must leave; empty if it was not told to.
    """

    def __init__(
        self,
        connection: Connection,
        threads: int | None,
        before: SignalRecorder,
        prints: bool = True,
        host_options: Mapping[str, Any] = MappingProxyType({}),
        memory: int | None = None,
    ) -> None:
        self._connection = connection
        self._threads = threads
        self._prints = prints
        self._host_options, self._memory = host_options, memory
        self._signals = self._before = before
        self._frames: list[Any] = []  # that came with the order
        self._content = np.empty(0, np.uint8)  # that is in it
        self._opening: Open | None = None
        self._served: Opening | None = None
        self._queued_orders: deque[list[Any]] = deque()  # orders that came before an awaited object
        self._leave_deadline: float | None = None  # after good-bye
        self._next_progress = 0.0  # when a message on progress is due
        self.machines: tuple[int, ...] = ()

    def receive_order(self, signals: SignalRecorder) -> ParsedOrder:
        """Wait for an order; if this machine was told to leave, say good-bye to the master."""
        self._signals = signals
        while (frames := self._next()) is None or frames[0] != ORDER:
            if self.shutdown_reason and self._may_leave(frames):
                return Stop(ShutdownRequested(self.shutdown_reason))
        order, job, self._content = unpack_order(np.frombuffer(frames[1], np.int64))
        self._frames = frames[2:]
        if job is not None:
            return job
        parsed = parse_order(order, b"".join(self._frames))
        if isinstance(parsed, Close):
            self.machines = tuple(n for n in self.machines if n != parsed.machine)
            if self._prints:
                print_note(f"this process does not carry machine {parsed.machine} any longer")
        if isinstance(parsed, Open):
            if self._memory is not None:
                size = parsed.opening.manifest.shard_bytes
                fit = f"{plural(self._memory // size, 'shard')} of {format_bytes(size)}"
                print_note(f"{fit} would fit in {format_bytes(self._memory)}")
                self._memory = None
            options = replace(parsed.opening.options, **self._host_options)
            opening = replace(parsed.opening, options=options)
            threads = self._threads or parsed.threads
            self._opening = parsed = replace(parsed, opening=opening, threads=threads)
        return parsed

    def wait_for_all(self) -> None:
        """Report that this machine is ready, and wait until all machines are."""
        self._report_status(None)
        self._receive(MEASURE)

    def check_connection(self) -> None:
        """Raise if the master has gone or this machine must leave; tells the master of the work."""
        self._connection.check()
        if (now := time.monotonic()) > self._next_progress:
            self._next_progress = now + PROGRESS_INTERVAL
            self._connection.send(PROGRESS)
        if self.shutdown_reason:
            self._connection.send(LEAVE)
            raise ShutdownRequested(self.shutdown_reason)

    def send_open_report(self, report: OpenReport) -> Admission:
        """Report the opening of the shard; returns whether this machine serves it."""
        self._report_status(report)
        content = self._receive(ADMISSION)
        if content is None:
            return Admission(failure=Failure.from_exception(MachineError("the master leaves")))
        admission = unpack(content, Admission)
        order = self._opening
        assert order is not None
        if admission.failure is None:
            self._served = order.opening
            self.machines = *self.machines, order.machine
            if self._prints:
                print_note(f"this is machine {order.machine} of {order.opening.store}")
        return admission

    def receive_vector(self, order: Multiply) -> NDArray[Any]:
        """Return the vector of a job."""
        opening = self._served
        assert opening is not None
        shape = operand_shape(order, opening)
        if self._content.size:
            return self._content.view(opening.arithmetic).reshape(shape)
        values = np.empty(shape, opening.arithmetic)
        if not copy_frames(self._frames, values):
            raise MachineError("the master has sent a vector of the wrong length")
        self._frames = []
        return values

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send errors, if there are some, then reports and values.

        The reports say whether this host leaves.
        """
        for problem in filter(None, (report.problem for report in reports)):
            self._report_status(problem)
        is_leaving = bool(self.shutdown_reason)
        numbers = [
            number
            for part, report in zip(order.parts, reports, strict=True)
            for number in pack_report(
                report._replace(leaving=report.leaving or is_leaving), part.machine
            )
        ]
        head = np.array(numbers, dtype=np.float64)
        arrays = [np.ascontiguousarray(array) for array in values]
        if sum(array.nbytes for array in arrays) <= MAX_INLINE_ANSWERS:
            octets = b"".join(array.tobytes() for array in arrays)
            self._connection.send(ANSWER, head.tobytes() + octets)
        else:
            # The master asks for the next values only when it has all of these.
            self._connection.send(ANSWER, head, [f for array in arrays for f in to_frames(array)])

    def _report_status(self, content: OpenReport | str | None) -> None:
        self._connection.send(STATUS, pack(content))

    def _receive(self, kind: bytes) -> bytes | None:
        """Wait for a message of this kind, and return its content; None if the master leaves."""
        while True:
            frames = self._connection.receive(SHUTDOWN_POLL_SECONDS)
            if frames is None and self.shutdown_reason:
                self._connection.send(LEAVE)
                raise ShutdownRequested(self.shutdown_reason)
            if frames is not None and frames[0] != ORDER:
                break
            if frames is not None:
                self._queued_orders.append(frames)
                if unpack_order(np.frombuffer(frames[1], np.int64))[0].kind == OrderKind.STOP:
                    return None
        if frames[0] == LEAVE_ACK:  # the good-bye was on its way when the master sent the order
            raise ShutdownRequested(self.shutdown_reason)
        if frames[0] != kind:
            raise MachineError("the master has sent an unexpected message")
        return b"".join(frames[1:])

    def _next(self) -> list[Any] | None:
        if self._queued_orders:
            return self._queued_orders.popleft()
        return self._connection.receive(SHUTDOWN_POLL_SECONDS)

    def _may_leave(self, frames: list[Any] | None) -> bool:
        """Say good-bye; True if the master has answered it, or has been silent for too long."""
        now = time.monotonic()
        if self._leave_deadline is None:
            self._connection.send(LEAVE)
            self._leave_deadline = now + LEAVE_ACK_SECONDS
        return now > self._leave_deadline or (frames is not None and frames[0] == LEAVE_ACK)

    @property
    def shutdown_reason(self) -> str:  # noqa: D102
        return signal_reason(self._before, self._signals)
