"""A machine's endpoint in an elastic run: its connection to the master, and its orders."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
from cec_mpi.runtime.processes.resources import network_id
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
from cec_mpi.runtime.wire.sockets.connection_file import (
    ConnectionFile,
    order_addresses,
    remove_stale_socket,
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
from cec_mpi.runtime.wire.sockets.zeromq import (
    USER,
    configure_socket,
    import_zmq,
    is_readable,
    open_monitor,
    read_event,
    send,
    to_frames,
)
from cec_mpi.store.files.regular import check_descriptors
from cec_mpi.text import format_bytes, plural
from cec_mpi.text.terminal import print_note

_DESCRIPTORS = 12  # file descriptors for ZeroMQ, and a few for modules and shards
_UNIX_PORT = 0  # stands for a Unix socket
_DAY_MS = 24 * 3600 * 1000
_NO_HANDSHAKE = "no answer, or different keys or encryption"


class MasterLostError(MachineError):
    """The master has ended or cannot be reached.

    Attributes
    ----------
    is_silent : bool
        Whether its computer accepts connections, but the master does not answer, for example
        because it is suspended.
    """

    is_silent = False


class Connection:
    """A connection to the master, at its first address that answers.

    On the master's computer the Unix socket is tried first.

    Parameters
    ----------
    file : ConnectionFile
        Addresses and keys of the master.
    check_cancelled : callable
        Called ten times a second until the connection is open; an exception ends the attempt.
    heartbeat_timeout : float
        Seconds without a heartbeat over TCP after which the master counts as lost.

    Attributes
    ----------
    address : str
        Address of the connection, for example "Unix socket /tmp/cec_mpi-x/master" or
        "node1, port 5555".

    Raises
    ------
    MasterLostError
        The master cannot be reached; the message lists the addresses that were tried.
    """

    def __init__(
        self,
        file: ConnectionFile,
        check_cancelled: Callable[[], None] = lambda: None,
        *,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    ) -> None:
        self._zmq = import_zmq()
        self._is_disconnected = False
        self._check_cancelled = check_cancelled
        self._heartbeat_timeout = heartbeat_timeout
        check_descriptors(_DESCRIPTORS, "a connection to the master")
        self._context = self._zmq.Context()
        try:
            self.address = self._connect(file)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _connect(self, file: ConnectionFile) -> str:
        """Connect to the first address that answers, and return its description."""
        same_network = file.network == network_id()
        addresses = order_addresses(file.addresses, same_network)
        if same_network and _is_own_socket(file.socket_path):
            addresses.insert(0, (file.socket_path, _UNIX_PORT))
        # Probe all addresses in parallel, because a computer that is down costs a whole timeout.
        probes = [_Probe(*address) for address in addresses]
        failed_targets: dict[tuple[int, str], list[str]] = {}  # by port and reason
        for probe in probes:
            target, port = probe.target, probe.port
            try:
                self._check_cancelled()
                while probe.is_alive():
                    probe.join(SHUTDOWN_POLL_SECONDS)
                    self._check_cancelled()
                if not probe.reachable:
                    raise probe.errors[-1]
                for family, address in probe.reachable:
                    if self._handshake(family, address, file):
                        is_unix = port == _UNIX_PORT
                        return f"Unix socket {target}" if is_unix else f"{target}, port {port}"
                reason = _NO_HANDSHAKE
            except OSError as error:
                reason = error.strerror or str(error)
                if port == _UNIX_PORT and isinstance(error, ConnectionRefusedError):
                    remove_stale_socket(target)
            except UnicodeError:
                reason = "not a host name"
            failed_targets.setdefault((port, reason), []).append(target)
        attempts = "; ".join(
            f"{f'port {port} of' if port != _UNIX_PORT else 'Unix socket'} {', '.join(targets)} "
            f"({reason})"
            for (port, reason), targets in failed_targets.items()
        )
        lost_error = MasterLostError(f"the master cannot be reached: tried {attempts}")
        lost_error.is_silent = any(reason == _NO_HANDSHAKE for _, reason in failed_targets)
        raise lost_error

    def send(self, kind: bytes, head: Any = b"", frames: Sequence[Any] = ()) -> None:
        """Begin to send a message; `frames` (see `to_frames`) are not copied."""
        send(self._socket, [join_frame(kind, head)], frames)

    def receive(self, seconds: float) -> list[Any] | None:
        """Return the kind, head and further frames of the next message; None after a time limit.

        Raises
        ------
        MasterLostError
            The connection has ended.
        MachineError
            The master has excluded this machine because of an error.
        DismissedError
            The master has excluded this machine for good because its answers were wrong.
        InputError
            The master has refused this machine.
        """
        zmq = self._zmq
        deadline = time.monotonic() + seconds
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if self._is_disconnected:  # and all earlier messages have been received
                    raise MasterLostError("the connection to the master has ended") from None
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return None
                readable = dict(self._poller.poll(1 + int(1e3 * remaining)))
                self._is_disconnected = self._monitor in readable and self._read_disconnect()
                continue
            kind, head = split_frame(frames[0].buffer)
            if kind == REFUSED:
                raise InputError(bytes(head).decode())
            if kind in (FAILED, DISMISSED):
                error_class = DismissedError if kind == DISMISSED else MachineError
                raise error_class(f"the master has excluded this machine: {bytes(head).decode()}")
            if kind != HEARTBEAT:
                return [kind, head, *(frame.buffer for frame in frames[1:])]

    def check(self) -> None:
        """Raise if the connection has ended.

        Raises
        ------
        MasterLostError
            The connection has ended.
        """
        self._is_disconnected = self._is_disconnected or self._read_disconnect()
        if self._is_disconnected:
            raise MasterLostError("the connection to the master has ended")

    def close(self) -> None:
        """Send pending messages, and close the connection."""
        if self._is_disconnected:
            self._socket.linger = 0
        self._close_socket()
        self._context.term()

    def _handshake(self, family: int, address: Any, file: ConnectionFile) -> bool:
        """Connect, and return whether the handshake succeeded."""
        zmq = self._zmq
        self._socket = self._context.socket(zmq.DEALER)
        configure_socket(self._socket, 0 if family == socket.AF_UNIX else self._heartbeat_timeout)
        # With a limit, ZeroMQ would stop reading while many messages wait for a busy machine, and
        # would then miss heartbeats of the master.
        self._socket.rcvhwm = 0
        self._socket.ipv6 = family == socket.AF_INET6
        # The master treats a reconnection as another machine, so the interval is a day. (-1, for
        # never, would drop the last messages.)
        self._socket.reconnect_ivl = _DAY_MS
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
            ip, port = address
            self._socket.connect(f"tcp://{f'[{ip}]' if ':' in ip else ip}:{port}")
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        while (
            not (has_event := self._monitor.poll(int(1e3 * SHUTDOWN_POLL_SECONDS)))
            and time.monotonic() < deadline
        ):
            self._check_cancelled()
        if has_event and not self._read_disconnect():
            return True
        self._socket.linger = 0
        self._close_socket()
        return False

    def _set_keys(self, file: ConnectionFile) -> None:
        if file.encrypted:
            self._socket.curve_serverkey = file.server_key
            self._socket.curve_publickey = file.public_key
            self._socket.curve_secretkey = file.secret_key
        else:
            self._socket.plain_username = USER
            self._socket.plain_password = file.secret_key

    def _read_disconnect(self) -> bool:
        """Read the events of the connection; return whether the last one is its end."""
        event = None
        while is_readable(self._monitor):
            event = read_event(self._monitor)["event"]
        return bool(event == self._zmq.Event.DISCONNECTED)

    def _close_socket(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()


class _Probe(threading.Thread):
    """Finds the addresses of a computer at which a process listens on a port, in a thread.

    Attributes
    ----------
    target : str
        Host name or address, or the path of a Unix socket.
    port : int
        Port; `_UNIX_PORT` for a Unix socket.
    reachable : list of (int, object)
        Address family and address of each socket that accepts connections.
    errors : list of Exception
        Errors of the other addresses.
    """

    def __init__(self, target: str, port: int) -> None:
        super().__init__(daemon=True)
        self.target, self.port = target, port
        self.reachable: list[tuple[int, Any]] = []
        self.errors: list[Exception] = []
        self.start()

    def run(self) -> None:
        addresses: list[tuple[int, Any]] = [(socket.AF_UNIX, self.target)]
        try:
            if self.port != _UNIX_PORT:
                infos = socket.getaddrinfo(self.target, self.port, type=socket.SOCK_STREAM)
                addresses = [
                    (family, address[:2]) for family, _, _, _, address in dict.fromkeys(infos)
                ]
        except (OSError, UnicodeError) as error:
            self.errors.append(error)
            return
        for family, address in addresses:
            try:
                with socket.socket(family) as client:
                    client.settimeout(CONNECT_SECONDS)
                    client.connect(address)
                self.reachable.append((family, address))
            except OSError as error:
                self.errors.append(error)


def _is_own_socket(path: str) -> bool:
    """Whether this path is a Unix socket of this user."""
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()


class ShutdownRequested(StoppedError):
    """The machine must leave because of a signal or notice."""


def describe_shutdown(*recorders: SignalRecorder) -> str:
    """Return a text that names the signal or notice that requested shutdown; empty if none did."""
    for signals in recorders:
        if name := signals.first_signal.name if signals.first_signal else signals.notice:
            return f"shutdown requested by {name}"
    return ""


class SocketMachineEndpoint:
    """A machine's endpoint in an elastic run.

    Parameters
    ----------
    connection : Connection
    threads : int or None
        BLAS threads of this process; None for the number that the master sends.
    earlier_signals : SignalRecorder
        Signals that were received before this process began to serve, and notices of preemption.
    verbose : bool
        Whether to print the machines that this process carries.
    host_options : mapping
        Options of this host, which replace those of the run.
    memory : int, optional
        Bytes for shards, to print the number of shards that fit.

    Attributes
    ----------
    machines : tuple of int
        Machines that it carries; after the end of the connection, those that it carried.
    shutdown_reason : str
        Why this machine must leave; empty if it need not.
    """

    def __init__(
        self,
        connection: Connection,
        threads: int | None,
        earlier_signals: SignalRecorder,
        verbose: bool = True,
        host_options: Mapping[str, Any] = MappingProxyType({}),
        memory: int | None = None,
    ) -> None:
        self._connection = connection
        self._threads = threads
        self._verbose = verbose
        self._host_options, self._memory = host_options, memory
        self._signals = self._earlier_signals = earlier_signals
        self._frames: list[Any] = []  # further frames of the last order
        self._inline_operands = np.empty(0, np.uint8)  # in the first frame of the last order
        self._open_order: Open | None = None
        self._served_opening: Opening | None = None
        self._queued_orders: deque[list[Any]] = deque()  # arrived while another message was awaited
        self._leave_deadline: float | None = None
        self._next_progress = 0.0  # time of the next progress message
        self.machines: tuple[int, ...] = ()

    def receive_order(self, signals: SignalRecorder) -> ParsedOrder:
        """Wait for an order; if this machine must leave, notify the master first."""
        self._signals = signals
        while (frames := self._next_message()) is None or frames[0] != ORDER:
            if self.shutdown_reason and self._announce_leave(frames):
                return Stop(ShutdownRequested(self.shutdown_reason))
        order, jobs, self._inline_operands = unpack_order(np.frombuffer(frames[1], np.int64))
        self._frames = frames[2:]
        if jobs is not None:
            return jobs
        parsed = parse_order(order, b"".join(self._frames))
        if isinstance(parsed, Close):
            self.machines = tuple(n for n in self.machines if n != parsed.machine)
            if self._verbose:
                print_note(f"this process no longer carries machine {parsed.machine}")
        if isinstance(parsed, Open):
            if self._memory is not None:
                size = parsed.opening.manifest.shard_bytes
                shards = f"{plural(self._memory // size, 'shard')} of {format_bytes(size)}"
                print_note(f"{shards} would fit in {format_bytes(self._memory)}")
                self._memory = None
            options = replace(parsed.opening.options, **self._host_options)
            opening = replace(parsed.opening, options=options)
            threads = self._threads or parsed.threads
            self._open_order = parsed = replace(parsed, opening=opening, threads=threads)
        return parsed

    def wait_for_all(self) -> None:
        """Report that this machine is ready, and wait until all machines are."""
        self._report_status(None)
        self._receive(MEASURE)

    def check_connection(self) -> None:
        """Raise if the master is lost or this machine must leave; report progress to the master."""
        self._connection.check()
        if (now := time.monotonic()) > self._next_progress:
            self._next_progress = now + PROGRESS_INTERVAL
            self._connection.send(PROGRESS)
        if self.shutdown_reason:
            self._connection.send(LEAVE)
            raise ShutdownRequested(self.shutdown_reason)

    def send_open_report(self, report: OpenReport) -> Admission:
        """Report the opening of the shard, and receive the master's admission."""
        self._report_status(report)
        message = self._receive(ADMISSION)
        if message is None:
            return Admission(failure=Failure.from_exception(MachineError("the master is leaving")))
        admission = unpack(message, Admission)
        order = self._open_order
        assert order is not None
        if admission.failure is None:
            self._served_opening = order.opening
            self.machines = *self.machines, order.machine
            if self._verbose:
                print_note(f"this is machine {order.machine} of {order.opening.store}")
        return admission

    def receive_operand(self, order: Multiply) -> NDArray[Any]:
        """Return the operand of jobs."""
        opening = self._served_opening
        assert opening is not None
        shape = operand_shape(order, opening)
        if self._inline_operands.size:
            return self._inline_operands.view(opening.arithmetic).reshape(shape)
        values = np.empty(shape, opening.arithmetic)
        if not copy_frames(self._frames, values):
            raise MachineError("the master has sent a vector of the wrong length")
        self._frames = []
        return values

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send errors, then reports and values; reports say whether this machine must leave."""
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
            values_bytes = b"".join(array.tobytes() for array in arrays)
            self._connection.send(ANSWER, head.tobytes() + values_bytes)
        else:
            # The arrays are not copied: the master sends the next job after it has received them.
            self._connection.send(
                ANSWER, head, [frame for array in arrays for frame in to_frames(array)]
            )

    def _report_status(self, content: OpenReport | str | None) -> None:
        self._connection.send(STATUS, pack(content))

    def _receive(self, kind: bytes) -> bytes | None:
        """Wait for a message of this kind, and return its content; None if the master stops."""
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
        if frames[0] == LEAVE_ACK:  # the master sent the order before it received LEAVE
            raise ShutdownRequested(self.shutdown_reason)
        if frames[0] != kind:
            raise MachineError("the master has sent an unexpected message")
        return b"".join(frames[1:])

    def _next_message(self) -> list[Any] | None:
        if self._queued_orders:
            return self._queued_orders.popleft()
        return self._connection.receive(SHUTDOWN_POLL_SECONDS)

    def _announce_leave(self, frames: list[Any] | None) -> bool:
        """Announce once that this machine leaves; return whether it may leave.

        It may leave after the master confirms this, or after a time limit.
        """
        now = time.monotonic()
        if self._leave_deadline is None:
            self._connection.send(LEAVE)
            self._leave_deadline = now + LEAVE_ACK_SECONDS
        return now > self._leave_deadline or (frames is not None and frames[0] == LEAVE_ACK)

    @property
    def shutdown_reason(self) -> str:  # noqa: D102
        return describe_shutdown(self._earlier_signals, self._signals)
