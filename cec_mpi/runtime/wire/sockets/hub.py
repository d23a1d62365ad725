"""The master's hub of elastic steps: machines join over sockets at any time, and may leave.

A machine has one job at a time, and each job has its own buffers: a late answer cannot be mistaken
for an answer to a later step. Nothing is collective, so no process waits for one that has died or
hangs. The hub detects the end of a process by the end of its connection or by missing heartbeats.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cec_mpi.core.elastic.events import (
    MachineExcluded,
    MachineLeft,
    MachineLost,
    MachineUnavailable,
)
from cec_mpi.errors import CecError, MachineError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.processes.packing import Failure, pack_fields
from cec_mpi.runtime.processes.resources import ProcessInfo, add_node_totals, detect_process
from cec_mpi.runtime.processes.start import version_mismatch_message
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.roster import LEAVE_REASON, Host, Roster, State
from cec_mpi.runtime.times import (
    ANSWER_POLL_SECONDS,
    DISCONNECT_POLL_SECONDS,
    MACHINE_EXIT_SECONDS,
    MAX_BACKOFF_SECONDS,
    OPEN_SECONDS,
    POLL_SECONDS,
    SETTLE_SECONDS,
    SHORTAGE_SECONDS,
    SLOW_OPEN_SECONDS,
)
from cec_mpi.runtime.wire.jobs import Event, Job, JobsAnswered, JobsEndpoint
from cec_mpi.runtime.wire.orders import (
    HUB_POISONED,
    Admission,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    Stop,
    clip_report,
)
from cec_mpi.runtime.wire.sockets.backoff import Backoff
from cec_mpi.runtime.wire.sockets.listener import Listener, Peer
from cec_mpi.runtime.wire.sockets.messages import (
    ANSWER,
    DISMISSED,
    FAILED,
    HELLO,
    LEAVE,
    LEAVE_ACK,
    MEASURE,
    ORDER,
    PROGRESS,
    REFUSED,
    STATUS,
    Hello,
    pack_jobs,
    package_fingerprint,
    split_frame,
    unpack_answer,
    unpack_status,
)
from cec_mpi.runtime.wire.sockets.zeromq import MAX_FRAME_BYTES, make_tracker, to_frames
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import format_bytes, plural
from cec_mpi.text.terminal import print_note

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)
# Limits on the messages that are received in one poll: for each peer, and for processes that join.
# ZeroMQ receives from all peers in turn. A host sends few messages besides its answers.
_MESSAGES_PER_PEER, _MESSAGES_OF_NEW_PEERS = 4, 16
_MAX_UNSOLICITED = 20  # messages other than answers from a process, between two answers
_MAX_BACKOFFS = 1000
_MAX_WARNINGS = 10  # of each kind


class ShortageReporter:
    """Reports the number of missing machines when it changes.

    Parameters
    ----------
    roster : Roster
    redundancy : int
        Number of additional answers that a step needs to compare answers.
    """

    def __init__(self, roster: Roster, redundancy: int) -> None:
        self._roster = roster
        self._redundancy = redundancy
        self._short_since: float | None = None
        self._reported_count = 0  # of missing machines
        self._next_check = 0.0

    def update(self, manifest: Manifest) -> None:
        """Report the number of missing machines of this store, if it has changed."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + POLL_SECONDS
        present = sorted(self._roster.machines(State.IDLE, State.COMPUTING, State.LATE))
        needed = manifest.code.recovery + self._redundancy
        missing_count = manifest.placement.count_missing(needed, present)
        if not missing_count:
            self._short_since, self._reported_count = None, 0
            return
        self._short_since = self._short_since or now
        if missing_count == self._reported_count or now - self._short_since < SHORTAGE_SECONDS:
            return
        self._reported_count = missing_count
        unavailable = self._roster.unavailable.items()
        reasons = {n: change.kind for n, change in unavailable if n not in present}
        self._roster.on_shortage(missing_count, present, reasons)
        more = plural(missing_count, "more machine")
        print_note(f"waiting for {more} ({len(present)} present)")


class SocketHub:
    """Rank 0's hub of an elastic session.

    Parameters
    ----------
    listener : Listener
    connection_path : Path or None
        Path for the connection file; None if machines get an address and a key from the user.
    job_id : str
        Identifier of the job in the launcher or batch system, for the connection file.
    waits_for_joins : bool
        Whether the run waits for machines that join later if too few are available.
    redundancy : int
        Number of additional answers that a step needs to compare answers.
    single_machine_option : str
        Option that limits each host to one machine; empty without such an option.

    Attributes
    ----------
    connection_file : ConnectionFile
        Addresses and keys with which machines join.
    roster : Roster
    waits_for_joins : bool
        As given.
    is_poisoned : bool
        See `ElasticHub`.
    joined_ranks : set of int
        Initial ranks (`Hello.initial_rank`) of the processes that have joined.
    stuck_ranks : list of int
        Initial ranks of the processes that have not left in time.
    """

    def __init__(
        self,
        listener: Listener,
        connection_path: Path | None,
        *,
        job_id: str = "",
        waits_for_joins: bool = False,
        redundancy: int = 0,
        single_machine_option: str = "",
    ) -> None:
        self._listener = listener
        self._connection_path = connection_path
        self.connection_file = structs.replace(listener.file, job_id=job_id)
        self._has_written_file = False
        self.waits_for_joins, self._redundancy = waits_for_joins, redundancy
        self._single_machine_option = single_machine_option
        self._events: deque[Event] = deque()
        self.clock: Clock = time
        self.roster = Roster(self._events.append)
        self._own_process = detect_process()
        self._pending_hellos: list[tuple[bytes, Hello]] | None = []  # None after `await_processes`
        self._hello_senders: set[bytes] = set()  # names of connections that have sent a hello
        self._peers: dict[bytes, Peer] = {}  # by name of the connection
        self._peers_by_rank: dict[int, Peer] = {}
        self._initial_machines: tuple[int, ...] = ()  # the n-th is for initial rank n
        self._last_host_names: dict[int, str] = {}  # computer that last carried each machine
        self._opening: Opening | None = None
        self._emulation: Emulation | None = None
        self._openers: list[Peer] = []  # hosts that open the store at the start
        # Frames of operands that were sent since the last poll, by `id`: hosts share them.
        self._operand_frames: dict[int, tuple[list[zmq.Frame], zmq.MessageTracker]] = {}
        self._shortage_reporter = ShortageReporter(self.roster, redundancy)
        self._is_serving = False  # between `admit` and `stop`
        self._stop_payload: bytes | None = None  # of the order to leave, for hosts that join later
        self._answer_queue: list[Peer] = []  # hosts of unprocessed answers, in the order of arrival
        self._must_check_hosts = False  # after messages except answers, or while hosts open shards
        self._next_check = 0.0  # time of the next check of all hosts
        self._invalid_message_count = 0
        self._backoffs: dict[tuple[str, int], Backoff] = {}  # by host name and process ID
        self._reported_problems: set[str] = set()
        self.is_poisoned = False
        self.joined_ranks: set[int] = set()
        self.stuck_ranks: list[int] = []

    # --- join -------------------------------------------------------------------------------------

    def listen(self, show_command: bool) -> None:
        """Write the connection file, and optionally print the command with which machines join.

        Raises
        ------
        InputError
            The connection file cannot be written.
        """
        if self._connection_path is not None:
            self._has_written_file = True  # also if `write` is interrupted
            self.connection_file.write(self._connection_path)
        addresses = self.connection_file.addresses
        ports = ", ".join(dict.fromkeys(f"{port}" for _, port in addresses))
        location = f"{', '.join(dict.fromkeys(name for name, _ in addresses))}, port {ports}"
        log.info("listening for machines at %s", location)
        if show_command:
            source = self._connection_path or f"{addresses[0][0]}:{ports}"
            print_note(f"listening for machines at {location}: cec-mpi join {source}")

    def await_processes(
        self,
        count_expected: Callable[[], int],
        min_processes: int,
        seconds: float,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> list[ProcessInfo]:
        """Wait for the processes of this run, and return them, this process first.

        When `min_processes` have joined, wait for the others for at most 10 s; they can still join
        later. Processes that were not started for this run also count if they have joined.

        Parameters
        ----------
        count_expected : callable
            Returns the number of processes that were started for this run and have not ended.
        min_processes : int
        seconds : float
            Maximum wait.
        check_cancelled : callable
            Called repeatedly; an exception ends the wait.
        """
        assert self._pending_hellos is not None
        deadline = time.monotonic() + seconds
        is_settling = False
        while (
            missing_count := count_expected()
            - sum(hello.initial_rank > 0 for _, hello in self._pending_hellos)
        ) > 0:
            self._receive_messages(POLL_SECONDS)
            names = self._listener.find_disconnected([name for name, _ in self._pending_hellos])
            self._pending_hellos = [pair for pair in self._pending_hellos if pair[0] not in names]
            if not is_settling and len(self._pending_hellos) >= min_processes:
                is_settling, deadline = True, min(deadline, time.monotonic() + SETTLE_SECONDS)
            if time.monotonic() > deadline:
                total = plural(count_expected(), "machine")
                print_note(f"{missing_count} of {total} have not joined yet, but can still join")
                break
            check_cancelled()
        hellos, self._pending_hellos = sorted(self._pending_hellos, key=_launch_order), None
        for name, hello in hellos:
            self._register(name, hello)
        return add_node_totals([self._own_process, *(hello.process for _, hello in hellos)])

    def assign_machines(self, machines: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """See `Hub.assign_machines`; 0 for a spare.

        The process with initial rank n carries the n-th of these machines, so that the copy of its
        shard in a cache is on its node. A host that can carry several machines gets the others when
        it serves the first one.
        """
        self._initial_machines, unassigned = machines, list(machines)
        machine_of_rank: dict[int, int] = {}
        peers = self._connected_peers()
        for peer in peers:
            if requested := [n for n in self._requested_machines(peer.hello) if n in unassigned]:
                unassigned.remove(requested[0])
                machine_of_rank[peer.rank] = requested[0]
        for peer in peers:
            if unassigned and peer.rank not in machine_of_rank and not peer.hello.initial_rank:
                machine_of_rank[peer.rank] = unassigned.pop(0)
        return tuple(machine_of_rank.get(rank, 0) for rank in range(1, ranks + 1))

    def pids(self) -> dict[int, int]:
        """See `Hub.pids`."""
        return {n: peer.host.pid for peer in self._connected_peers() for n in peer.host.machines}

    # --- open the store ---------------------------------------------------------------------------

    def open(self, opening: Opening) -> list[OpenReport]:
        """Make the machines open their shards; return their reports in the order of ranks.

        A machine that takes much longer than the others joins later.
        """
        if self.is_poisoned:
            raise MachineError(HUB_POISONED)
        self._opening = opening
        self.roster.add_vacant((*filter(None, opening.machines), *opening.unassigned_machines))
        for peer in self._connected_peers():
            self._set_slots_or_refuse(peer)
        self._openers, payload, threads = [], pack_fields(opening), self._threads_by_rank()
        for rank, machine in enumerate(opening.machines, start=1):
            if machine and rank in self.roster and not self.roster[rank].is_excluded:
                peer = self._peer_of(self.roster[rank])
                self.roster.assign(rank, machine)
                self._last_host_names[machine] = peer.host.name
                peer.open(machine, opening.options.threads or threads[rank], payload)
                self._openers.append(peer)
        if opening.measures_speed:
            self._wait_until(lambda peer: peer.is_ready)
            for peer in [peer for peer in self._openers if not peer.is_ready]:
                self._exclude(peer, "it was not ready to be measured in time")
            for peer in self._openers:
                peer.send(MEASURE)
        self._wait_until(lambda peer: peer.open_report is not None)
        reports = {
            peer.rank: replace(peer.open_report, rate=peer.open_report.rate / peer.host.slots)
            for peer in self._openers
            if peer.open_report is not None
        }
        return [reports.get(rank) or OpenReport() for rank in range(1, len(opening.machines) + 1)]

    def admit(self, emulation: Emulation | None) -> JobsEndpoint:
        """Let the machines that have opened their shards serve."""
        self._emulation = emulation
        for peer in self._connected_peers():
            if peer in self._openers:
                self._process_open_report(peer, notify=False)
        self._openers, self._is_serving = [], True
        self._fill_vacancies()
        return JobsEndpoint(self)

    def refuse(self, error: CecError) -> None:
        """See `Hub.refuse`."""
        for peer in self._openers:
            if peer.opening_machine:
                peer.send_admission(Admission(failure=Failure.from_exception(error)))

    def stop(
        self,
        error: BaseException | None,
        seconds: float = MACHINE_EXIT_SECONDS,
        notify_late_ranks: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Make all machines leave, and close the connections.

        Parameters
        ----------
        error : BaseException or None
            Exception that ends the session of the master.
        seconds : float
            Maximum wait for machines to leave.
        notify_late_ranks : callable
            Returns a context manager that notifies processes which have not sent a hello; the
            connections are closed in its context.
        """
        self._is_serving = False
        try:
            self._receive_messages()  # also hellos since the last step
            if self._pending_hellos is not None:
                for name, hello in self._pending_hellos:
                    self._register(name, hello)
                self._pending_hellos = None
            self._stop_payload = Stop(error).pack_payload()
            for peer in self._connected_peers():
                peer.send_order(Order(OrderKind.STOP), self._stop_payload)
            deadline = time.monotonic() + seconds
            while self._peers and time.monotonic() < deadline:
                self._receive_messages(DISCONNECT_POLL_SECONDS)
                for name in self._listener.find_disconnected(self._peers):
                    del self._peers[name]
            ranks = [peer.hello.initial_rank for peer in self._connected_peers()]
            self.stuck_ranks = [rank for rank in ranks if rank]
        finally:
            with notify_late_ranks():
                try:
                    if self._has_written_file and self._connection_path is not None:
                        self.connection_file.remove(self._connection_path)
                finally:
                    self._listener.close()

    # --- jobs -------------------------------------------------------------------------------------

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """See `ElasticHub.send_jobs`."""
        peer = self._peer_of(self.roster[rank])
        for job in jobs:
            self.roster.mark_computing(job.machine)
        peer.pending_batches.append(jobs)
        order, operands = pack_jobs(jobs)
        frames: list[zmq.Frame] = []
        for operand in operands:
            if id(operand) not in self._operand_frames:
                new_frames = to_frames(operand)
                self._operand_frames[id(operand)] = new_frames, make_tracker(new_frames)
            frames += self._operand_frames[id(operand)][0]
        for job in jobs if operands else ():
            job.is_borrowed, job.tracker = True, self._operand_frames[id(job.operand)][1]
        peer.send(ORDER, order, frames)

    def pending_jobs(self) -> dict[int, Job]:
        """See `ElasticHub.pending_jobs`."""
        return {
            job.machine: job
            for peer in self._peers.values()
            for job in peer.pending_jobs
            if peer.host.machines.get(job.machine) in (State.COMPUTING, State.LATE)
        }

    def expected_machines(self) -> set[int]:
        """See `ElasticHub.expected_machines`."""
        return self.roster.opening | (self.roster.missing if self.waits_for_joins else set())

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """See `ElasticHub.events`."""
        self._operand_frames.clear()
        self._receive_messages(min(until - time.monotonic(), ANSWER_POLL_SECONDS))
        self._handle_disconnects()
        if self._must_check_hosts or time.monotonic() > self._next_check:
            self._check_hosts()
        yield from self._pop_events()
        while self._answer_queue:
            peer = self._answer_queue.pop(0)
            if peer.rank in self.roster:
                self._process_answer(peer)
                self._release_if_leaving(peer)
            yield from self._pop_events()

    def _check_hosts(self) -> None:
        """Process reports on opened shards, assign vacant machines, and let hosts leave."""
        self._next_check = time.monotonic() + POLL_SECONDS
        for peer in self._connected_peers():
            if peer.opening_machine:
                self._process_open_report(peer)
        self._must_check_hosts = any(peer.opening_machine for peer in self._peers.values())
        self._fill_vacancies()
        if self._is_serving:
            self._shortage_reporter.update(self._manifest)
        for peer in self._connected_peers():
            self._release_if_leaving(peer)

    def _release_if_leaving(self, peer: Peer) -> None:
        """Release a host that has announced that it leaves, and has answered all jobs."""
        if peer.is_leaving and not peer.pending_batches:
            peer.send(LEAVE_ACK)
            self._remove_host(peer, "it has left")

    def mark_late(self, machine: int) -> None:
        """See `ElasticHub.mark_late`."""
        if self.roster.state_of(machine) is State.COMPUTING:
            self.roster.mark_late(machine)

    def mark_unresponsive(self, machine: int, reason: str) -> None:
        """See `ElasticHub.mark_unresponsive`."""
        host = self.roster.serving_host(machine)
        if host is not None and host.machines[machine] in (State.COMPUTING, State.LATE):
            self.roster.mark_unresponsive(host.rank, reason)
            self._fill_vacancies()

    def exclude(self, machine: int, reason: str, event_type: type[MachineUnavailable]) -> None:
        """See `ElasticHub.exclude`."""
        host = self.roster.serving_host(machine)
        if host is None:
            return
        if event_type is MachineLost:
            self._remove_machine(self._peer_of(host), machine, reason)
        else:
            self._exclude(self._peer_of(host), reason, event_type)

    def adopt(self, rank: int, machine: int) -> None:
        """See `ElasticHub.adopt`."""
        self._assign_machine(self._peer_of(self.roster[rank]), machine)

    def last_error(self, machine: int) -> str:
        """See `ElasticHub.last_error`."""
        host = self.roster.serving_host(machine)
        return (host and self._peer_of(host).last_error) or "no report"

    # --- hosts ------------------------------------------------------------------------------------

    @property
    def _current_opening(self) -> Opening:
        assert self._opening is not None
        return self._opening

    @property
    def _manifest(self) -> Manifest:
        return self._current_opening.manifest

    def _connected_peers(self) -> list[Peer]:
        return list(self._peers.values())

    def _spares(self) -> list[Peer]:
        """Return the hosts that can open another machine now."""
        now = time.monotonic()
        return [
            peer
            for peer in self._peers.values()
            if peer.host.free_slots
            and not (peer.opening_machine or peer.is_leaving)
            and peer.eligible_from <= now
        ]

    def _peer_of(self, host: Host) -> Peer:
        return self._peers_by_rank[host.rank]

    def _receive_messages(self, seconds: float = 0.0) -> None:
        """Receive messages, also from new processes; wait at most `seconds` for the first."""
        for _ in range(_MESSAGES_OF_NEW_PEERS + _MESSAGES_PER_PEER * len(self._peers)):
            message = self._listener.receive(max(0.0, seconds))
            if message is None:
                return
            seconds = 0.0
            self._handle_message(*message)

    def _handle_message(self, name: bytes, frames: list[Any]) -> None:
        peer = self._peers.get(name)
        if (size := max(map(len, frames))) > MAX_FRAME_BYTES:
            problem = f"it sends {size} bytes at once, expected at most {MAX_FRAME_BYTES}"
            self._refuse(name, peer, problem)
            return
        try:
            kind, head = split_frame(frames[0])
            self._must_check_hosts |= kind != ANSWER
            if peer is None:
                if kind == HELLO and (hello := self._unpack_hello(name, head)) is not None:
                    self._handle_hello(name, hello)
            elif kind == ANSWER and len(peer.answers) < len(peer.pending_batches):
                peer.answers.append([head, *frames[1:]])
                self._answer_queue.append(peer)
                return
            elif kind == PROGRESS and peer.record_progress():
                pass
            elif self._count_unsolicited(peer):
                return
            elif kind == STATUS:
                peer.record_status(unpack_status(head))
            elif kind == LEAVE:
                peer.is_leaving = True
            else:
                raise ValueError("unexpected message")
        except (IndexError, ValueError):
            self._invalid_message_count += 1
            if self._invalid_message_count <= _MAX_WARNINGS:
                log.warning("received an invalid message from a process that has the key")

    def _count_unsolicited(self, peer: Peer) -> bool:
        """Count a message that is not an answer; exclude the host and return True if too many."""
        peer.unsolicited_count += 1
        is_excessive = peer.unsolicited_count > _MAX_UNSOLICITED
        if is_excessive:
            self._refuse(b"", peer, "it sends too many unsolicited messages")
        return is_excessive

    def _refuse(self, name: bytes, peer: Peer | None, problem: str) -> None:
        """Exclude a host, or refuse a process that has not joined yet, and report the problem."""
        if peer is None:
            self._report_problem("a machine cannot join", problem)
            self._listener.send(name, REFUSED, problem.encode(errors="backslashreplace"))
        elif not peer.host.is_excluded:
            self._exclude(peer, problem)

    def _unpack_hello(self, name: bytes, head: memoryview) -> Hello | None:
        """Decode a hello; refuse a process whose hello is not valid."""
        if name in self._hello_senders:
            raise ValueError("a second hello")
        self._hello_senders.add(name)
        try:
            return Hello.unpack(head)
        except ValueError:
            problem = "its hello is not valid; install the same cec_mpi on all computers"
            self._refuse(name, None, problem)
            return None

    def _handle_hello(self, name: bytes, hello: Hello) -> None:
        own_package = [socket.gethostname(), *package_fingerprint()]
        problem = version_mismatch_message([own_package, [hello.process.host_name, *hello.package]])
        if problem:
            self._refuse(name, None, problem)
            return
        self._listener.track_disconnect()
        self.joined_ranks.add(hello.initial_rank)
        if self._pending_hellos is None:
            self._register(name, hello)
        else:
            self._pending_hellos.append((name, hello))

    def _register(self, name: bytes, hello: Hello) -> None:
        process = hello.process
        backoff = self._backoffs.get((process.host_name, process.pid))
        eligible_from = 0.0 if backoff is None else backoff.next_connection_time
        send = partial(self._listener.send, name)
        host = self.roster.add_host(hello.slots, process.host_name, process.pid)
        peer = Peer(host, hello, send, eligible_from)
        self._peers[name] = self._peers_by_rank[host.rank] = peer
        log.info("process %d on %s has joined as rank %d", host.pid, host.name, peer.rank)
        if self._stop_payload is not None:
            peer.send_order(Order(OrderKind.STOP), self._stop_payload)
        elif self._opening is not None:
            self._set_slots_or_refuse(peer)

    def _set_slots_or_refuse(self, peer: Peer) -> None:
        """Set the slots of a host, or refuse it if it requests more than is possible."""
        host, hello = peer.host, peer.hello
        store, manifest = self._current_opening.store, self._manifest
        capacity = hello.memory // manifest.shard_bytes
        max_machines = 1 if self._single_machine_option else manifest.code.machines
        problem = ""
        if hello.slots > max_machines:
            reason = (
                f"with {self._single_machine_option} answers must come from different processes"
                if self._single_machine_option
                else f"{store} has {plural(max_machines, 'machine')}"
            )
            problem = f"--machines {hello.slots}: expected {max_machines} at most, because {reason}"
        elif (machine := max(hello.machines, default=0)) > (last := manifest.code.machines):
            problem = f"--machine {machine}: expected 1 to {last}, the machines of {store}"
        elif not (capacity or hello.initial_rank):
            owner = hello.device or host.name
            limit = "--memory" if hello.has_memory_option else f"90 % of the free memory of {owner}"
            problem = (
                f"{limit} is {format_bytes(hello.memory)}: expected at least "
                f"{format_bytes(manifest.shard_bytes)}, a shard of {store}"
            )
        if problem:
            self._report_problem("a host cannot join", problem)
            peer.send(REFUSED, problem.encode(errors="backslashreplace"))
            self.roster.exclude(peer.rank, problem)
            return
        host.slots = max(1, min(hello.slots, capacity))
        self._set_capacities(peer)

    def _set_capacities(self, changed_peer: Peer) -> None:
        """Set the capacities of the hosts that share memory with one that has joined or left."""
        owner = changed_peer.host.name, changed_peer.hello.device
        peers = [
            peer for peer in self._peers.values() if (peer.host.name, peer.hello.device) == owner
        ]
        sharing_count = sum(not peer.hello.has_memory_option for peer in peers)
        for peer in peers:
            memory = peer.hello.memory // (1 if peer.hello.has_memory_option else sharing_count)
            capacity = 1 if self._single_machine_option else memory // self._manifest.shard_bytes
            capacity = min(capacity, self._manifest.code.machines)
            peer.host.capacity = max(peer.host.slots, capacity)

    def _handle_disconnects(self) -> None:
        """Process the last messages of hosts whose connections have ended, and remove the hosts."""
        names = self._listener.find_disconnected(self._peers)
        if names:
            self._receive_messages()  # their last messages
        for peer in [self._peers[name] for name in names]:
            while peer.answers:
                self._process_answer(peer)
            self._answer_queue = [other for other in self._answer_queue if other is not peer]
            self._remove_host(peer, "its connection has ended")

    def _remove_host(self, peer: Peer, reason: str) -> None:
        """Remove a host that has left or is lost."""
        if peer.is_leaving and not peer.pending_batches:
            self.roster.exclude(peer.rank, LEAVE_REASON, MachineLeft)
        else:
            log.error("rank %d on %s is lost: %s", peer.rank, peer.host.name, reason)
            self._record_disconnect(peer)
        self.roster.remove_host(peer.rank, f"process {peer.host.pid} on {peer.host.name} is gone")
        self._peers = {name: other for name, other in self._peers.items() if other is not peer}
        del self._peers_by_rank[peer.rank]
        if self._opening is not None:
            self._set_capacities(peer)
        self._fill_vacancies()

    def _record_disconnect(self, peer: Peer) -> None:
        """Record a disconnect, so that the process must wait before it can carry machines again."""
        if len(self._backoffs) > _MAX_BACKOFFS:
            self._backoffs = {
                key: backoff for key, backoff in self._backoffs.items() if not backoff.is_reset
            }
        key = peer.host.name, peer.host.pid
        self._backoffs.setdefault(key, Backoff(MAX_BACKOFF_SECONDS)).record_disconnect()

    def _exclude(
        self, peer: Peer, reason: str, event_type: type[MachineUnavailable] = MachineLost
    ) -> None:
        """Stop sending jobs to a host, and notify it unless it is already leaving."""
        self.roster.exclude(peer.rank, reason, event_type)
        peer.opening_machine = 0
        if peer in self._openers:
            self._openers.remove(peer)
        if event_type is not MachineLeft:
            kind = DISMISSED if event_type is MachineExcluded else FAILED
            peer.send(kind, reason.encode(errors="backslashreplace"))
        self._fill_vacancies()

    def _remove_machine(self, peer: Peer, machine: int, reason: str) -> None:
        """Remove a failed machine from its host; exclude a host that carries no other."""
        peer.host.failed_machines.add(machine)
        if list(peer.host.machines) == [machine]:
            self._exclude(peer, reason)
            return
        if peer.host.machines[machine] is not State.JOINING:
            peer.send_order(Order(OrderKind.CLOSE, machine))
        self.roster.remove_machine(peer.rank, MachineLost(machine, reason))
        self._fill_vacancies()

    def _process_answer(self, peer: Peer) -> None:
        jobs, frames = peer.pending_batches.popleft(), peer.answers.popleft()
        opening, host = self._current_opening, peer.host
        manifest = opening.manifest
        sum_size = manifest.columns * jobs[0].product.columns
        try:
            answers = unpack_answer(frames, jobs, sum_size, opening.arithmetic)
        except ValueError:
            self._exclude(peer, "its answer has the wrong length")
            return
        finally:
            for job in jobs:
                job.is_borrowed = False
        # The times in reports are multiplied by the number of machines of the host.
        max_seconds = (time.monotonic() - jobs[0].sent_at) * max(1, len(host.machines))
        is_leaving = False
        for job, report, job.pieces in zip(jobs, *answers, strict=True):
            job.report_fields = clip_report(report, max_seconds, manifest.shard_bytes)
            is_leaving |= bool(report.leaving)
        peer.unsolicited_count = 0
        self._events.append(JobsAnswered(jobs))
        if host.is_excluded:
            return
        if is_leaving:
            self._exclude(peer, LEAVE_REASON, MachineLeft)
            return
        computing = {job.machine for job in peer.pending_jobs}
        for machine in {*host.machines, *[job.machine for job in jobs]} - computing:
            self.roster.mark_answered(host.rank, machine)

    # --- assignment of machines to hosts ----------------------------------------------------------

    def _fill_vacancies(self) -> None:
        """Let spares become machines that are vacant or replaceable."""
        if not self._is_serving:
            return
        for spare in self._spares():
            hosts = self.roster.hosts
            being_opened = {n for host in hosts if not host.is_slow for n in host.opening}
            candidates = self.roster.vacant + [
                n
                for host in hosts
                for n in host.replaceable
                if host is not spare.host and n not in being_opened
            ]
            candidates = [n for n in candidates if n not in spare.host.failed_machines]
            if candidates:
                self._assign_machine(spare, self._choose_machine(spare, candidates))

    def _choose_machine(self, peer: Peer, machines: list[int]) -> int:
        """Choose a machine for a host.

        A requested machine comes first, then one that its computer was the last to carry, then one
        that no host has carried.
        """
        requested = [n for n in self._requested_machines(peer.hello) if n in machines]
        previous = [n for n in machines if self._last_host_names.get(n) == peer.host.name]
        new = [n for n in machines if n not in self._last_host_names]
        return (requested or previous or new or machines)[0]

    def _requested_machines(self, hello: Hello) -> tuple[int, ...]:
        """Return the machines that a host requests, or the machine for its initial rank."""
        if hello.machines or not 0 < hello.initial_rank <= len(self._initial_machines):
            return hello.machines
        return (self._initial_machines[hello.initial_rank - 1],)

    def _assign_machine(self, peer: Peer, machine: int) -> None:
        log.info("rank %d becomes machine %d", peer.rank, machine)
        self._must_check_hosts = True
        options, is_new = self._current_opening.options, machine not in self._last_host_names
        current_host = self.roster.serving_host(machine)
        if current_host is not None and current_host.is_silent:
            self._peer_of(current_host).send_order(Order(OrderKind.CLOSE, machine))
        if machine in self.roster.missing and machine not in self.roster.vacant:
            self.roster.vacate(machine)
        self.roster.assign(peer.rank, machine)
        self._last_host_names[machine] = peer.host.name
        # Speeds are not measured again, and scheduled faults were for the previous process.
        faults = options.inject.split(",")
        inject = ",".join(fault for fault in faults if is_new or fault.startswith("random"))
        options = replace(options, measures_speed=False, inject=inject)
        payload = pack_fields(replace(self._current_opening, options=options))
        peer.open(machine, options.threads or self._threads_by_rank()[peer.rank], payload)

    def _process_open_report(self, peer: Peer, notify: bool = True) -> None:
        """Process the report of a host on the shard that it opens, if it has arrived."""
        open_report, machine = peer.open_report, peer.opening_machine
        if open_report is None:
            now = time.monotonic()
            peer.host.is_slow = now > peer.last_progress + SLOW_OPEN_SECONDS
            if now > peer.opening_since + OPEN_SECONDS:
                self._exclude(peer, "it has not opened its shard in time")
            return
        peer.host.is_slow = False
        if machine not in peer.host.machines:
            problem = f"another host has already become machine {machine}"
            peer.send_admission(Admission(failure=Failure.from_exception(MachineError(problem))))
            return
        if open_report.problem:
            self._last_host_names.pop(machine, None)
            self._report_problem("a machine cannot join", open_report.problem)
            peer.send_admission(
                Admission(failure=Failure.from_exception(MachineError(open_report.problem)))
            )
            self._remove_machine(peer, machine, open_report.problem)
            return
        previous_host = self.roster.serving_host(machine)
        if previous_host is not None:
            if previous_host.machines[machine] in (State.COMPUTING, State.LATE):
                return
            self._peer_of(previous_host).send_order(Order(OrderKind.CLOSE, machine))
        if open_report.cache_problem and notify:  # otherwise printed at the start
            self._report_problem("a machine cannot use its cache", open_report.cache_problem)
        peer.send_admission(Admission(self._emulation))
        peer.host.devices[machine] = open_report.device
        self.roster.mark_joined(peer.rank, machine, notify)

    def _wait_until(self, is_done: Callable[[Peer], bool]) -> None:
        """Wait until enough hosts are done with their shards, then briefly for the others."""
        manifest = self._manifest
        last_change, last_count = time.monotonic(), -1
        while pending := [peer for peer in self._openers if not is_done(peer)]:
            self._receive_messages(POLL_SECONDS)
            self._handle_disconnects()
            self._openers = [peer for peer in self._openers if peer.rank in self.roster]
            finished = [peer.opening_machine for peer in self._openers if is_done(peer)]
            if len(finished) != last_count:
                last_change, last_count = time.monotonic(), len(finished)
            tolerated = manifest.placement.tolerated_losses(manifest.code.recovery, finished)
            if tolerated >= self._redundancy:
                deadline = last_change + SETTLE_SECONDS
            else:
                last_progress = max(peer.last_progress for peer in pending)
                deadline = max(last_change, last_progress) + SLOW_OPEN_SECONDS
            if time.monotonic() > deadline:
                log.warning("slow to open: machines %s", [peer.opening_machine for peer in pending])
                return

    def _threads_by_rank(self) -> dict[int, int]:
        """Return the BLAS threads of each host: its share of the cores of its node."""
        peers = self._connected_peers()
        processes = [self._own_process, *(peer.hello.process for peer in peers)]
        _, *threads = (process.threads for process in add_node_totals(processes))
        return {peer.rank: count for peer, count in zip(peers, threads, strict=True)}

    def _report_problem(self, effect: str, problem: str) -> None:
        """Log a problem, and print it unless it or too many others were printed before."""
        log.error("%s: %s", effect, problem)
        if problem not in self._reported_problems and len(self._reported_problems) < _MAX_WARNINGS:
            self._reported_problems.add(problem)
            print_note(f"{effect}: {problem}")

    def _pop_events(self) -> Iterator[Event]:
        while self._events:
            yield self._events.popleft()


def _launch_order(named_hello: tuple[bytes, Hello]) -> tuple[bool, int]:
    """Sort key: processes with an initial rank come first, in the order of these ranks."""
    rank = named_hello[1].initial_rank
    return not rank, rank
