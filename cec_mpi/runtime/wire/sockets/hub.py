"""The master's hub of elastic steps: machines join over sockets at any time, and may leave.

A machine has one job at a time, and each job has its own buffers: a late answer cannot be taken for
an answer to a later step. Nothing is collective, so that no process waits for one that has died or
hangs. The hub notices the end of a process by the end of its connection, or because it does not
answer.
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
from cec_mpi.runtime.processes.places import Place, combine_places, detect_place
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
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile
from cec_mpi.runtime.wire.sockets.library import MAX_FRAME_BYTES, make_tracker, to_frames
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
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import format_bytes, plural
from cec_mpi.text.terminal import print_note

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)
# Messages of each process that are received before something else has a turn: ZeroMQ takes those
# of all processes in turn. A machine sends one for each job, and few others.
_SHARE = 4
_MAX_UNSOLICITED = 20  # messages of a process, other than answers, until it has answered
_MAX_BACKOFFS = 1000
_MAX_WARNINGS = 10  # warnings of one kind


class ShortageReporter:
    """Reports how many machines are missing, whenever that has changed.

    Parameters
    ----------
    roster : Roster
        The processes of the machines.
    spare : int
        Machines that a step must be able to miss, so that answers can be compared.
    """

    def __init__(self, roster: Roster, spare: int) -> None:
        self._roster = roster
        self._spare = spare
        self._since: float | None = None
        self._last_missing = 0  # machines that were missing
        self._next_check = 0.0

    def update(self, manifest: Manifest) -> None:
        """Report how many machines of this store are missing, if that has changed."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + POLL_SECONDS
        here = sorted(self._roster.machines(State.IDLE, State.COMPUTING, State.LATE))
        missing = manifest.placement.count_missing(manifest.code.recovery + self._spare, here)
        if not missing:
            self._since, self._last_missing = None, 0
            return
        self._since = self._since or now
        if missing == self._last_missing or now - self._since < SHORTAGE_SECONDS:
            return
        self._last_missing = missing
        away = {
            n: gone.record_word for n, gone in self._roster.unavailable.items() if n not in here
        }
        self._roster.on_shortage(missing, here, away)
        more = plural(missing, "more machine")
        print_note(f"waiting for {more} ({plural(len(here), 'machine')} here)")


class SocketHub:
    """Rank 0's hub of an elastic session.

    Parameters
    ----------
    listener : Listener
    path : Path or None
        Where to write the connection file; None if machines have an address and a key.
    job : str
        Of the launcher (`job_id`), for the connection file.
    waits : bool
        Whether the run waits for machines that join if there are too few.
    spare : int
        Machines that a step must be able to miss, so that answers can be compared.
    single_option : str
        The option with which each host carries one machine; empty if it may carry several.

    Attributes
    ----------
    roster : Roster
    waits : bool
    is_poisoned : bool
        See `ElasticHub`.
    joined_ranks : set of int
        Ranks of the launcher that have joined.
    stuck_ranks : list of int
        Ranks of processes that ignored the order to leave.
    """

    def __init__(
        self,
        listener: Listener,
        path: Path | None,
        *,
        job: str = "",
        waits: bool = False,
        spare: int = 0,
        single_option: str = "",
    ) -> None:
        self._listener = listener
        self._path = path
        self._file = structs.replace(listener.file, job=job)
        self._written = False
        self.waits, self._spare, self._single_option = waits, spare, single_option
        self._events: deque[Event] = deque()
        self.clock: Clock = time
        self.roster = Roster(self._events.append)
        self._here = detect_place()
        self._pending_hellos: list[tuple[bytes, Hello]] | None = []  # until the store is opened
        self._greeted: set[bytes] = set()  # that have sent a hello
        self._peers: dict[bytes, Peer] = {}  # by the names of their connections
        self._by_rank: dict[int, Peer] = {}
        self._taking_part: tuple[int, ...] = ()
        self._last_hosts: dict[int, str] = {}  # the host on which each machine was last
        self._opening: Opening | None = None
        self._emulation: Emulation | None = None
        self._openers: list[Peer] = []  # to open the store
        # The frames of arrays that were sent in this poll, by `id`, for further hosts.
        self._outgoing: dict[int, tuple[list[zmq.Frame], zmq.MessageTracker]] = {}
        self._shortage = ShortageReporter(self.roster, spare)
        self._paused = True  # no process becomes a machine now
        self._stop_message: bytes | None = None  # also for hosts that join later
        self._answering: list[Peer] = []  # peers with answers, in order
        self._has_news = False  # messages that are not answers, or hosts that open machines
        self._next_round = 0.0  # when all hosts are looked at
        self._invalid_messages = 0  # messages that no machine sends
        self._backoffs: dict[tuple[str, int], Backoff] = {}  # by host and process
        self._reported_problems: set[str] = set()  # why processes could not join
        self.is_poisoned = False
        self.joined_ranks: set[int] = set()
        self.stuck_ranks: list[int] = []

    # Machines join.

    @property
    def connection(self) -> ConnectionFile:
        """Where machines join, with the keys."""
        return self._file

    def listen(self, prints: bool) -> None:
        """Write the connection file; `prints`: print where machines can join.

        Raises
        ------
        InputError
            It cannot be written.
        """
        if self._path is not None:
            self._written = True  # or is about to be
            self._file.write(self._path)
        ports = ", ".join(dict.fromkeys(f"{port}" for _, port in self._file.places))
        hosts = ", ".join(dict.fromkeys(host for host, _ in self._file.places))
        log.info("listening for machines at %s, port %s", hosts, ports)
        if prints:
            how = f"{hosts.split(', ')[0]}:{ports}" if self._path is None else self._path
            print_note(f"listening for machines at {hosts}, port {ports}: cec-mpi join {how}")

    def gather(
        self,
        expected: Callable[[], int],
        min_processes: int,
        seconds: float,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> list[Place]:
        """Wait for the processes that were started for this run; return the places of all.

        When `min_processes` have joined, the others have 10 s more; later they join like any
        machine. Processes that were not started for this run but have joined are counted, too.

        Parameters
        ----------
        expected : callable
            Returns the number of processes that were started and have not ended.
        min_processes : int
        seconds : float
            Maximum wait.
        check_cancelled : callable
            Called repeatedly; an exception ends the wait.
        """
        assert self._pending_hellos is not None
        due = time.monotonic() + seconds
        settled = False
        while (
            missing := expected() - sum(hello.rank > 0 for _, hello in self._pending_hellos)
        ) > 0:
            self._listen(POLL_SECONDS)
            for name in self._listener.disconnected([name for name, _ in self._pending_hellos]):
                self._pending_hellos = [pair for pair in self._pending_hellos if pair[0] != name]
            if not settled and len(self._pending_hellos) >= min_processes:
                settled, due = True, min(due, time.monotonic() + SETTLE_SECONDS)
            if time.monotonic() > due:
                total = plural(expected(), "machine")
                print_note(f"{missing} of {total} have not joined yet, but can still join")
                break
            check_cancelled()
        found, self._pending_hellos = sorted(self._pending_hellos, key=_launch_order), None
        for name, hello in found:
            self._register(name, hello)
        return combine_places([self._here, *(hello.place for _, hello in found)])

    def assign_machines(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """See `Hub.assign_machines`; 0 for a spare.

        The process with rank n of the launcher becomes the n-th of these machines, so that the
        copy of its shard in a cache is on its node. A host that takes more than one machine gets
        the others when this one serves.
        """
        self._taking_part, free = machines, list(machines)
        chosen: dict[int, int] = {}
        peers = self._connected_peers()
        for peer in peers:
            if wanted := [n for n in self._requested_machines(peer.hello) if n in free]:
                free.remove(wanted[0])
                chosen[peer.rank] = wanted[0]
        for peer in peers:
            if free and peer.rank not in chosen and not peer.hello.rank:
                chosen[peer.rank] = free.pop(0)
        return tuple(chosen.get(rank, 0) for rank in range(1, len(places))), places

    def pids(self) -> dict[int, int]:
        """See `Hub.pids`."""
        return {n: peer.hello.pid for peer in self._connected_peers() for n in peer.host.machines}

    # Machines open the store.

    def open(self, opening: Opening) -> list[OpenReport]:
        """Make the machines open their shards; returns their reports in the order of ranks.

        A machine that takes much longer than the others joins later.
        """
        if self.is_poisoned:
            raise MachineError(HUB_POISONED)
        self._opening = opening
        self.roster.add_vacant((*filter(None, opening.machines), *opening.expected))
        for peer in self._connected_peers():
            self._refuse_unfit(peer)
        self._openers, content, threads = [], pack_fields(opening), self._threads()
        for rank, machine in enumerate(opening.machines, start=1):
            if machine and rank in self.roster and not self.roster[rank].is_excluded:
                peer = self._peer_of(self.roster[rank])
                self.roster.assign(rank, machine)
                self._last_hosts[machine] = peer.host.name
                peer.open(machine, opening.options.threads or threads[rank], content)
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
        """Make the machines that have opened their shards serve; exclude the others."""
        assert self._opening is not None
        self._emulation = emulation
        for peer in self._connected_peers():
            if peer in self._openers:
                self._take_open_report(peer, notify=False)
        self._openers, self._paused = [], False
        self._fill_vacant()
        return JobsEndpoint(self, self._opening)

    def refuse(self, error: CecError) -> None:
        """See `Hub.refuse`."""
        for peer in self._openers:
            if peer.opening:
                peer.send_admission(Admission(failure=Failure.from_exception(error)))

    def stop(
        self,
        error: BaseException | None,
        seconds: float = MACHINE_EXIT_SECONDS,
        closing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Tell all machines to leave, and close the connections.

        Parameters
        ----------
        error : BaseException or None
            The exception that the master leaves with.
        seconds : float
            How long to wait for machines that have not left.
        closing : callable
            Returns a context in which connections are closed. It notifies machines whose hello has
            not arrived.
        """
        self._paused = True
        try:
            self._listen()  # also processes that connected after the last step
            if self._pending_hellos is not None:
                for name, hello in self._pending_hellos:
                    self._register(name, hello)
                self._pending_hellos = None
            self._stop_message = Stop(error).packed()
            for peer in self._connected_peers():
                peer.send_order(Order(OrderKind.STOP), self._stop_message)
            due = time.monotonic() + seconds
            while self._peers and time.monotonic() < due:
                self._listen(DISCONNECT_POLL_SECONDS)
                for name in self._listener.disconnected(self._peers):
                    del self._peers[name]
            self.stuck_ranks = [
                peer.hello.rank for peer in self._connected_peers() if peer.hello.rank
            ]
        finally:  # interrupted, too
            with closing():
                try:
                    if self._written and self._path is not None:
                        self._file.remove(self._path)
                finally:
                    self._listener.close()

    # Jobs.

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """Send jobs to the host of their machines, which must be idle."""
        peer = self._peer_of(self.roster[rank])
        for job in jobs:
            self.roster.mark_computing(job.machine)
        peer.sent.append(jobs)
        order, contents = pack_jobs(jobs)
        frames: list[zmq.Frame] = []
        for content in contents:
            if id(content) not in self._outgoing:
                made = to_frames(content)
                self._outgoing[id(content)] = made, make_tracker(made)
            frames += self._outgoing[id(content)][0]
        for job in jobs if contents else ():
            job.is_borrowed, job.tracker = True, self._outgoing[id(job.operand)][1]
        peer.send(ORDER, order, frames)

    def pending_jobs(self) -> dict[int, Job]:
        """Return the unanswered jobs by machine, without those of machines that were given up."""
        return {
            job.machine: job
            for peer in self._peers.values()
            for job in peer.jobs
            if peer.host.machines.get(job.machine) in (State.COMPUTING, State.LATE)
        }

    def expected_machines(self) -> set[int]:
        """Return the machines that are expected: they open their shards, or may still join."""
        return self.roster.opening | (self.roster.missing if self.waits else set())

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """See `ElasticHub.events`."""
        self._outgoing.clear()
        self._listen(min(until - time.monotonic(), ANSWER_POLL_SECONDS))
        self._handle_disconnects()
        if self._has_news or time.monotonic() > self._next_round:
            self._check_hosts()
        yield from self._pop_events()
        while self._answering:
            peer = self._answering.pop(0)
            if peer.rank in self.roster:
                self._take_answer(peer)
                self._dismiss_if_done(peer)
            yield from self._pop_events()

    def _check_hosts(self) -> None:
        """Check all hosts, after a message that is not an answer and from time to time."""
        self._next_round = time.monotonic() + POLL_SECONDS
        for peer in self._connected_peers():
            if peer.opening:
                self._take_open_report(peer)
        self._has_news = any(peer.opening for peer in self._peers.values())
        self._fill_vacant()
        if not self._paused:
            self._shortage.update(self._manifest)
        for peer in self._connected_peers():
            self._dismiss_if_done(peer)

    def _dismiss_if_done(self, peer: Peer) -> None:
        """Let a host leave that has said good-bye, if it has answered all jobs."""
        if peer.has_left and not peer.sent:
            peer.send(LEAVE_ACK)
            self._lose(peer, "it has said good-bye")

    def mark_late(self, machine: int) -> None:
        """Note that the step does not wait for a machine any longer."""
        if self.roster.state_of(machine) is State.COMPUTING:
            self.roster.mark_late(machine)

    def give_up(self, machine: int, reason: str) -> None:
        """Treat the host of an unresponsive machine as lost; spares replace it."""
        host = self.roster.serving_host(machine)
        if host is not None and host.machines[machine] in (State.COMPUTING, State.LATE):
            self.roster.give_up(host.rank, reason)
            self._fill_vacant()

    def exclude(self, machine: int, reason: str, change: type[MachineUnavailable]) -> None:
        """Give a machine no more jobs, and its host none if its answers were wrong."""
        host = self.roster.serving_host(machine)
        if host is None:
            return
        if change is MachineLost:
            self._remove_machine(self._peer_of(host), machine, reason)
        else:
            self._exclude(self._peer_of(host), reason, change)

    def adopt(self, rank: int, machine: int) -> None:
        """Assign a vacant machine to a host that already carries others."""
        self._assign_machine(self._peer_of(self.roster[rank]), machine)

    def last_error(self, machine: int) -> str:
        """Return the last error of a machine."""
        host = self.roster.serving_host(machine)
        return (host and self._peer_of(host).last_error) or "no report"

    # Processes.

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
        """Return the hosts that can take another machine now."""
        now = time.monotonic()
        return [
            peer
            for peer in self._peers.values()
            if peer.host.free_slots
            and not (peer.opening or peer.has_left)
            and peer.eligible_from <= now
        ]

    def _peer_of(self, host: Host) -> Peer:
        return self._by_rank[host.rank]

    def _listen(self, seconds: float = 0.0) -> None:
        """Receive messages of machines, and new machines; waits so long for the first at most."""
        for _ in range(_SHARE * (_SHARE + len(self._peers))):
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
            self._has_news |= kind != ANSWER
            if peer is None:
                if kind == HELLO and (hello := self._read_hello(name, head)) is not None:
                    self._handle_hello(name, hello)
            elif kind == ANSWER and len(peer.answers) < len(peer.sent):
                peer.answers.append([head, *frames[1:]])
                self._answering.append(peer)
                return
            elif kind == PROGRESS and peer.note_progress():
                pass
            elif self._count_unsolicited(peer):
                return
            elif kind == STATUS:
                peer.record_status(unpack_status(head))
            elif kind == LEAVE:
                peer.has_left = True
            else:
                raise ValueError("unexpected message")
        except (IndexError, ValueError):
            self._invalid_messages += 1
            if self._invalid_messages <= _MAX_WARNINGS:
                log.warning("received an invalid message from a process that has the key")

    def _count_unsolicited(self, peer: Peer) -> bool:
        """Count a message that is not an answer; exclude a process that sends too many."""
        peer.unsolicited += 1
        if peer.unsolicited > _MAX_UNSOLICITED:
            self._refuse(b"", peer, "it sends too many unsolicited messages")
        return peer.unsolicited > _MAX_UNSOLICITED

    def _refuse(self, name: bytes, peer: Peer | None, problem: str) -> None:
        """Tell a process once why it gets no job."""
        if peer is None:
            self._report_problem("a machine cannot join", problem)
            self._listener.send(name, REFUSED, problem.encode(errors="backslashreplace"))
        elif not peer.host.is_excluded:
            self._exclude(peer, problem)

    def _read_hello(self, name: bytes, head: memoryview) -> Hello | None:
        """Decode a hello; refuse a process whose hello is not valid."""
        if name in self._greeted:
            raise ValueError("a second first message")
        self._greeted.add(name)
        try:
            return Hello.unpack(head)
        except ValueError:
            self._refuse(
                name, None, "its hello is not valid; install the same cec_mpi on all hosts"
            )
            return None

    def _handle_hello(self, name: bytes, hello: Hello) -> None:
        mine = [socket.gethostname(), *package_fingerprint()]
        problem = version_mismatch_message([mine, [hello.place.host, *hello.package]])
        if problem:
            self._refuse(name, None, problem)
            return
        self._listener.track_disconnect()
        self.joined_ranks.add(hello.rank)
        if self._pending_hellos is None:
            self._register(name, hello)
        else:
            self._pending_hellos.append((name, hello))

    def _register(self, name: bytes, hello: Hello) -> None:
        backoff = self._backoffs.get((hello.place.host, hello.pid))
        eligible_from = 0.0 if backoff is None else backoff.next
        send = partial(self._listener.send, name)
        host = self.roster.add_host(hello.count, hello.place.host, hello.pid)
        peer = self._peers[name] = self._by_rank[host.rank] = Peer(host, hello, send, eligible_from)
        log.info("process %d on %s has joined as rank %d", hello.pid, host.name, peer.rank)
        if self._stop_message is not None:
            peer.send_order(Order(OrderKind.STOP), self._stop_message)
        elif self._opening is not None:
            self._refuse_unfit(peer)

    def _refuse_unfit(self, peer: Peer) -> None:
        """Refuse a host that asks for more than the run or its memory allows."""
        host, hello, store, manifest = (
            peer.host,
            peer.hello,
            self._current_opening.store,
            self._manifest,
        )
        fits = hello.memory // manifest.shard_bytes
        most = 1 if self._single_option else manifest.code.machines
        problem = ""
        if hello.count > most:
            why = (
                f"with {self._single_option} answers come from different processes"
                if self._single_option
                else f"{store} has {plural(most, 'machine')}"
            )
            problem = f"--machines {hello.count}: expected {most} at most, because {why}"
        elif (number := max(hello.machines, default=0)) > (last := manifest.code.machines):
            problem = f"--machine {number}: expected 1 to {last}, the machines of {store}"
        elif not (fits or hello.rank):
            owner = hello.device or host.name
            limit = "--memory" if hello.is_limited else f"90 % of the free memory of {owner}"
            problem = (
                f"{limit} is {format_bytes(hello.memory)}: expected at least "
                f"{format_bytes(manifest.shard_bytes)}, a shard of {store}"
            )
        if problem:
            self._report_problem("a host cannot join", problem)
            peer.send(REFUSED, problem.encode(errors="backslashreplace"))
            self.roster.exclude(peer.rank, problem)
            return
        host.slots = max(1, min(hello.count, fits))
        self._share_memory(peer)

    def _share_memory(self, changed: Peer) -> None:
        """Set how many machines the hosts of a computer can carry: by default they share memory."""
        memory_of = changed.host.name, changed.hello.device
        peers = [
            peer
            for peer in self._peers.values()
            if (peer.host.name, peer.hello.device) == memory_of
        ]
        sharing = sum(not peer.hello.is_limited for peer in peers)
        for peer in peers:
            memory = peer.hello.memory // (1 if peer.hello.is_limited else sharing)
            fits = 1 if self._single_option else memory // self._manifest.shard_bytes
            fits = min(fits, self._manifest.code.machines)
            peer.host.capacity = max(peer.host.slots, fits)

    def _handle_disconnects(self) -> None:
        """Notice connections that have ended."""
        gone = self._listener.disconnected(self._peers)
        if gone:
            self._listen()  # to what they have sent before
        for peer in [self._peers[name] for name in gone]:
            while peer.answers:
                self._take_answer(peer)
            self._answering = [other for other in self._answering if other is not peer]
            self._lose(peer, "its connection has ended")

    def _lose(self, peer: Peer, how: str) -> None:
        """Note that a host is gone."""
        if peer.has_left and not peer.sent:
            self.roster.exclude(peer.rank, LEAVE_REASON, MachineLeft)
        else:
            log.error("rank %d on %s is lost: %s", peer.rank, peer.host.name, how)
            self._note_end(peer)
        self.roster.remove_host(peer.rank, f"process {peer.hello.pid} on {peer.host.name} is gone")
        self._peers = {name: each for name, each in self._peers.items() if each is not peer}
        del self._by_rank[peer.rank]
        if self._opening is not None:
            self._share_memory(peer)
        self._fill_vacant()

    def _note_end(self, peer: Peer) -> None:
        """Record the end of a connection: its process must wait before it can connect again."""
        if len(self._backoffs) > _MAX_BACKOFFS:
            self._backoffs = {
                key: entry for key, entry in self._backoffs.items() if not entry.is_over
            }
        key = peer.host.name, peer.hello.pid
        self._backoffs.setdefault(key, Backoff(MAX_BACKOFF_SECONDS)).note_end()

    def _exclude(
        self, peer: Peer, reason: str, change: type[MachineUnavailable] = MachineLost
    ) -> None:
        """Send a host no more jobs, and dismiss it unless it is already leaving."""
        self.roster.exclude(peer.rank, reason, change)
        peer.opening = 0
        if peer in self._openers:
            self._openers.remove(peer)
        if change is not MachineLeft:
            kind = DISMISSED if change is MachineExcluded else FAILED
            peer.send(kind, reason.encode(errors="backslashreplace"))
        self._fill_vacant()

    def _remove_machine(self, peer: Peer, machine: int, reason: str) -> None:
        """Take a machine from a host on which it has failed; exclude a host that has no other."""
        peer.host.failed_machines.add(machine)
        if list(peer.host.machines) == [machine]:
            self._exclude(peer, reason)
            return
        if peer.host.machines[machine] is not State.JOINING:
            peer.send_order(Order(OrderKind.CLOSE, machine))
        self.roster.remove_machine(peer.rank, MachineLost(machine, reason))
        self._fill_vacant()

    def _take_answer(self, peer: Peer) -> None:
        jobs, frames = peer.sent.popleft(), peer.answers.popleft()
        opening, host = self._current_opening, peer.host
        manifest = opening.manifest
        columns = manifest.columns * jobs[0].product.columns
        try:
            answers = unpack_answer(frames, jobs, columns, opening.arithmetic)
        except ValueError:
            self._exclude(peer, "its answer has the wrong length")
            return
        finally:
            for job in jobs:
                job.is_borrowed = False
        seconds = (time.monotonic() - jobs[0].sent_at) * max(1, len(host.machines))
        is_leaving = False
        for job, reported, job.pieces in zip(jobs, *answers, strict=True):
            job.report_fields = clip_report(reported, seconds, manifest.shard_bytes)
            is_leaving |= bool(reported.leaving)
        peer.unsolicited = 0
        self._events.append(JobsAnswered(jobs))
        if host.is_excluded:
            return
        if is_leaving:
            self._exclude(peer, LEAVE_REASON, MachineLeft)
            return
        unanswered = {job.machine for job in peer.jobs}
        for machine in {*host.machines, *[job.machine for job in jobs]} - unanswered:
            self.roster.mark_answered(host.rank, machine)

    # Hosts take machines.

    def _fill_vacant(self) -> None:
        """Let spares open machines that have no host, or one that is replaceable."""
        if self._paused:
            return
        for spare in self._spares():
            hosts = self.roster.hosts
            opening = {n for host in hosts if not host.is_slow for n in host.opening}
            to_take = self.roster.vacant + [
                n
                for host in hosts
                for n in host.replaceable
                if host is not spare.host and n not in opening
            ]
            able = [n for n in to_take if n not in spare.host.failed_machines]
            if able:
                self._assign_machine(spare, self._choose_machine(spare, able))

    def _choose_machine(self, peer: Peer, machines: list[int]) -> int:
        """Return the machine for a host: a requested one, else one that its computer carried."""
        wanted = [n for n in self._requested_machines(peer.hello) if n in machines]
        its = [n for n in machines if self._last_hosts.get(n) == peer.host.name]
        new = [n for n in machines if n not in self._last_hosts]
        return (wanted or its or new or machines)[0]

    def _requested_machines(self, hello: Hello) -> tuple[int, ...]:
        """Return the machines that a host asks for."""
        if hello.machines or not 0 < hello.rank <= len(self._taking_part):
            return hello.machines
        return (self._taking_part[hello.rank - 1],)

    def _assign_machine(self, peer: Peer, machine: int) -> None:
        log.info("rank %d becomes machine %d", peer.rank, machine)
        self._has_news = True
        options, is_new = self._current_opening.options, machine not in self._last_hosts
        before = self.roster.serving_host(machine)
        if before is not None and before.is_silent:
            self._peer_of(before).send_order(Order(OrderKind.CLOSE, machine))
        if machine in self.roster.missing and machine not in self.roster.vacant:
            self.roster.vacate(machine)
        self.roster.assign(peer.rank, machine)
        self._last_hosts[machine] = peer.host.name
        # Speeds are not measured again, and injected faults were for the process before.
        inject = ",".join(w for w in options.inject.split(",") if is_new or w.startswith("random"))
        options = replace(options, measures_speed=False, inject=inject)
        content = pack_fields(replace(self._current_opening, options=options))
        peer.open(machine, options.threads or self._threads()[peer.rank], content)

    def _take_open_report(self, peer: Peer, notify: bool = True) -> None:
        """Take the report of a host on the shard that it opens."""
        open_report, machine = peer.open_report, peer.opening
        if open_report is None:
            now = time.monotonic()
            peer.host.is_slow = now > peer.last_progress + SLOW_OPEN_SECONDS
            if now > peer.opening_since + OPEN_SECONDS:
                self._exclude(peer, "it has not opened its shard in time")
            return
        peer.host.is_slow = False
        if machine not in peer.host.machines:
            problem = f"another host has opened machine {machine} meanwhile"
            peer.send_admission(Admission(failure=Failure.from_exception(MachineError(problem))))
            return
        if open_report.problem:
            self._last_hosts.pop(machine, None)
            self._report_problem("a machine cannot join", open_report.problem)
            peer.send_admission(
                Admission(failure=Failure.from_exception(MachineError(open_report.problem)))
            )
            self._remove_machine(peer, machine, open_report.problem)
            return
        before = self.roster.serving_host(machine)
        if before is not None:
            if before.machines[machine] in (State.COMPUTING, State.LATE):
                return
            self._peer_of(before).send_order(Order(OrderKind.CLOSE, machine))
        if open_report.cache_problem and notify:  # otherwise printed at the start
            self._report_problem("a machine has no copy", open_report.cache_problem)
        peer.send_admission(Admission(self._emulation))
        peer.host.devices[machine] = open_report.device
        self.roster.mark_joined(peer.rank, machine, notify)

    def _wait_until(self, done: Callable[[Peer], bool]) -> None:
        """Wait for the machines that open their shards, for slow ones only if they are needed."""
        manifest = self._manifest
        last, before = time.monotonic(), -1
        while waited := [peer for peer in self._openers if not done(peer)]:
            self._listen(POLL_SECONDS)
            self._handle_disconnects()
            self._openers = [peer for peer in self._openers if peer.rank in self.roster]
            finished = [peer.opening for peer in self._openers if done(peer)]
            if len(finished) != before:
                last, before = time.monotonic(), len(finished)
            spare = manifest.placement.tolerated_losses(manifest.code.recovery, finished)
            if spare >= self._spare:
                due = last + SETTLE_SECONDS
            else:
                due = max(last, *(peer.last_progress for peer in waited)) + SLOW_OPEN_SECONDS
            if time.monotonic() > due:
                log.warning("slow to open: machines %s", [peer.opening for peer in waited])
                return

    def _threads(self) -> dict[int, int]:
        """Return the BLAS threads of each process: its share of the cores of its node."""
        peers = self._connected_peers()
        places = combine_places([self._here, *(peer.hello.place for peer in peers)])[1:]
        return {peer.rank: place.threads for peer, place in zip(peers, places, strict=True)}

    def _report_problem(self, what: str, problem: str) -> None:
        log.error("%s: %s", what, problem)
        if problem not in self._reported_problems and len(self._reported_problems) < _MAX_WARNINGS:
            self._reported_problems.add(problem)
            print_note(f"{what}: {problem}")

    def _pop_events(self) -> Iterator[Event]:
        while self._events:
            yield self._events.popleft()


def _launch_order(found: tuple[bytes, Hello]) -> tuple[bool, int]:
    """Sort key: processes of the launcher come first, in the order of ranks."""
    return not found[1].rank, found[1].rank
