"""The master's end of elastic steps: machines join over sockets at any time, and may leave.

A machine has one job at a time, and each job has its own buffers: a late answer cannot be taken for
an answer to a later step. Nothing is collective, so that no process waits for one that has died or
hangs. The hub notices the end of a process by the end of its connection, or because it does not
answer.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import Excluded, Gone, Left, Lost
from cec_mpi.errors import CecError, MachineError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.processes.packing import Failure
from cec_mpi.runtime.processes.places import Place, place_here, places_together
from cec_mpi.runtime.processes.start import different_packages
from cec_mpi.runtime.processes.waiting import Clock, Patience
from cec_mpi.runtime.roster import WARNED, Roster, State
from cec_mpi.runtime.times import (
    LEAVING_SECONDS,
    LONGEST_EXILE,
    LOOK_SECONDS,
    OPEN_SECONDS,
    SETTLE_SECONDS,
    SHORTAGE_SECONDS,
)
from cec_mpi.runtime.wire.jobs import Answered, Event, Job, JobsEnd
from cec_mpi.runtime.wire.orders import HUB_POISONED, Kind, Opened, Opening, Order, Stop, Verdict
from cec_mpi.runtime.wire.sockets.backoff import Backoff
from cec_mpi.runtime.wire.sockets.library import MOST_IN_FRAME, frames_of, tracker_of
from cec_mpi.runtime.wire.sockets.listener import Listener, Peer
from cec_mpi.runtime.wire.sockets.messages import (
    ANSWER,
    DISMISSED,
    FAILED,
    FAREWELL,
    GOOD_BYE,
    HELLO,
    MEASURE,
    ORDER,
    REFUSED,
    STATUS,
    Hello,
    copy_frames,
    kind_and_head,
    package_here,
    packed,
    unpack_status,
)
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.terminal import say
from cec_mpi.text import plural

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)
# Messages of each process that are received before something else has a turn: ZeroMQ takes those
# of all processes in turn. A machine sends one for each job, and few others.
_SHARE = 4
_MOST_UNASKED = 20  # messages of a process, other than answers, until it has answered
_MOST_BACKOFFS = 1000
_MOST_WARNINGS = 10  # warnings of one kind


class Shortage:
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
        self._reported = 0  # machines that were missing
        self._next_look = 0.0

    def look(self, manifest: Manifest) -> None:
        """Report how many machines of this store are missing, if that has changed."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        here = sorted(self._roster.machines(State.IDLE, State.COMPUTING, State.LATE))
        missing = manifest.placement.missing(manifest.code.recovery + self._spare, here)
        if not missing:
            self._since, self._reported = None, 0
            return
        self._since = self._since or now
        if missing == self._reported or now - self._since < SHORTAGE_SECONDS:
            return
        self._reported = missing
        away = {n: gone.word for n, gone in self._roster.gone.items() if n not in here}
        self._roster.short(missing, here, away)
        more = plural(missing, "more machine")
        say(f"waiting for {more} ({plural(len(here), 'machine')} here)")


class SocketHub:
    """Rank 0's end of an elastic session.

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

    Attributes
    ----------
    roster : Roster
    waits : bool
    is_poisoned : bool
        See `ElasticHub`.
    joined_ranks : set of int
        Ranks of the launcher that have joined.
    stuck_ranks : list of int
        Ranks of processes that did not leave when they were told to.
    """

    def __init__(
        self,
        listener: Listener,
        path: Path | None,
        *,
        job: str = "",
        waits: bool = False,
        spare: int = 0,
    ) -> None:
        self._listener = listener
        self._path = path
        self._file = structs.replace(listener.file, job=job)
        self._written = False
        self.waits, self._spare = waits, spare
        self._events: deque[Event] = deque()
        self.clock: Clock = time
        self.roster = Roster(time.monotonic, self._events.append)
        self._here = place_here()
        self._gathered: list[tuple[bytes, Hello]] | None = []  # until the store is opened
        self._peers: dict[bytes, Peer] = {}  # by the names of their connections
        self._taking_part: tuple[int, ...] = ()
        self._last_hosts: dict[int, str] = {}  # the host on which each machine was last
        self._opening: Opening | None = None
        self._emulation: Emulation | None = None
        self._asked: list[Peer] = []  # to open the store
        # What was sent last, in frames that further machines get as well.
        self._outgoing: tuple[NDArray[Any], list[zmq.Frame], zmq.MessageTracker] | None = None
        self._shortage = Shortage(self.roster, spare)
        self._paused = True  # no process becomes a machine now
        self._stop_message: bytes | None = None  # to all, and to those who still come
        self._invalid_messages = 0  # messages that no machine sends
        self._backoffs: dict[tuple[str, int], Backoff] = {}  # by host and process
        self._reported_problems: set[str] = set()  # why processes could not join
        self.is_poisoned = False
        self.joined_ranks: set[int] = set()
        self.stuck_ranks: list[int] = []

    # Machines join.

    def listen(self, tells: bool) -> None:
        """Write the connection file; `tells`: print where machines can join.

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
        if tells:
            how = f"{hosts.split(', ')[0]}:{ports}" if self._path is None else self._path
            say(f"listening for machines at {hosts}, port {ports}: cec-mpi join {how}")

    def gather(
        self,
        expected: Callable[[], int],
        enough: int,
        seconds: float,
        look: Callable[[], None] = lambda: None,
    ) -> list[Place]:
        """Wait for the processes that were started for this run; returns the places of all.

        When enough have joined, the others have 10 s more; later they join like any machine.
        Machines that were started otherwise and join meanwhile count for `enough`.

        Parameters
        ----------
        expected : callable
            Returns how many processes were started and have not ended.
        enough : int
        seconds : float
            Longest wait.
        look : callable
            Called again and again; an exception ends the wait.
        """
        assert self._gathered is not None
        patience, due = Patience(), time.monotonic() + seconds
        settled = False
        while (missing := expected() - sum(hello.rank > 0 for _, hello in self._gathered)) > 0:
            self._listen()
            for name in self._listener.disconnected([name for name, _ in self._gathered]):
                self._gathered = [pair for pair in self._gathered if pair[0] != name]
            if not settled and len(self._gathered) >= enough:
                settled, due = True, min(due, time.monotonic() + SETTLE_SECONDS)
            if time.monotonic() > due:
                total = plural(expected(), "machine")
                say(f"{missing} of {total} have not joined yet, but can still join")
                break
            look()
            patience.pause()
        found, self._gathered = sorted(self._gathered, key=_by_rank), None
        for name, hello in found:
            self._welcome(name, hello)
        return places_together([self._here, *(hello.place for _, hello in found)])

    def assign_machines(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """See `Hub.assign_machines`; 0 for a spare.

        The process with rank n of the launcher becomes the n-th of these machines, so that the
        copy of its shard in a cache is on its node.
        """
        self._taking_part, free = machines, list(machines)
        chosen: dict[int, int] = {}
        peers = self._living()
        for peer in peers:
            wanted = self._wanted(peer.hello)
            if wanted in free:
                free.remove(wanted)
                chosen[peer.rank] = wanted
        for peer in peers:
            if free and peer.rank not in chosen and not peer.hello.rank:
                chosen[peer.rank] = free.pop(0)
        return tuple(chosen.get(rank, 0) for rank in range(1, len(places))), places

    def pids(self) -> dict[int, int]:
        """See `Hub.pids`."""
        return {peer.machine: peer.hello.pid for peer in self._living() if peer.machine}

    # Machines open the store.

    def open(self, opening: Opening) -> list[Opened]:
        """Make the machines open their shards; returns their reports in the order of ranks.

        A machine that takes much longer than the others joins later.
        """
        if self.is_poisoned:
            raise MachineError(HUB_POISONED)
        self._opening = opening
        self.roster.expect((*filter(None, opening.machines), *opening.expected))
        ranks = {peer.rank: peer for peer in self._peers.values()}
        numbered = enumerate(opening.machines, start=1)
        chosen = [(ranks[rank], n) for rank, n in numbered if n and rank in ranks]
        content = opening.packed()
        threads = self._threads()
        for peer, machine in chosen:
            self.roster.join(peer.rank, machine)
            self._last_hosts[machine] = peer.host
            peer.opened, peer.is_ready = None, False
            share = opening.options.threads or threads[peer.rank]
            peer.order(Order(Kind.OPEN, machine, share), content)
        self._asked = [peer for peer, _ in chosen]
        if opening.measured:
            self._await(lambda peer: peer.is_ready)
            for peer in [peer for peer in self._asked if not peer.is_ready]:
                self._exclude(peer, "it was not ready to be measured in time")
            for peer in self._asked:
                peer.send(MEASURE)
        self._await(lambda peer: peer.opened is not None)
        said = {peer.rank: peer.opened for peer in self._asked}
        return [said.get(rank) or Opened() for rank in range(1, len(opening.machines) + 1)]

    def admit(self, emulation: Emulation | None) -> JobsEnd:
        """Make the machines that have opened their shards serve; exclude the others."""
        assert self._opening is not None
        self._emulation = emulation
        for peer in self._living():
            if peer in self._asked:
                self._take_opened(peer, quietly=True)
        self._asked, self._paused = [], False
        self._fill_vacant()
        return JobsEnd(self, self._opening)

    def refuse(self, error: CecError) -> None:
        """See `Hub.refuse`."""
        for peer in self._asked:
            if peer.process.state is State.JOINING:
                peer.decide(Verdict(failure=Failure.of(error)))

    def stop(
        self,
        error: BaseException | None,
        seconds: float = LEAVING_SECONDS,
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
            Returns a context in which connections are closed: for machines that were not heard.
        """
        self._paused = True
        try:
            self._listen()  # who has come since the last step is told, too
            if self._gathered is not None:
                for name, hello in self._gathered:
                    self._welcome(name, hello)
                self._gathered = None
            self._stop_message = Stop(error).packed()
            for peer in self._living():
                peer.order(Order(Kind.STOP), self._stop_message)
            patience, due = Patience(), time.monotonic() + seconds
            while self._peers and time.monotonic() < due:
                self._listen()
                for name in self._listener.disconnected(list(self._peers)):
                    del self._peers[name]
                patience.pause()
            self.stuck_ranks = [peer.hello.rank for peer in self._living() if peer.hello.rank]
        finally:  # interrupted, too
            with closing():
                try:
                    if self._written and self._path is not None:
                        self._file.remove(self._path)
                finally:
                    self._listener.close()

    # Jobs.

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Send a job to its machine, which must be idle."""
        peer = self._serving_as(job.machine)
        if peer is None:
            raise RuntimeError(f"machine {job.machine} has no process")
        self.roster.ask(peer.rank)
        peer.job, peer.answer = job, None
        order, alone = packed(job, content)
        frames: Sequence[zmq.Frame] = ()
        if alone is not None:
            if self._outgoing is None or self._outgoing[0] is not alone:
                frames = frames_of(alone)
                self._outgoing = alone, frames, tracker_of(frames)
            job.content, frames, job.tracker = self._outgoing
        peer.send(ORDER, order, frames)
        job.asked = True

    def busy(self) -> dict[int, Job]:
        """Return the unanswered jobs by machine, without those of machines that were given up."""
        return {
            peer.machine: peer.job
            for peer in self._peers.values()
            if peer.job and peer.process.state in (State.COMPUTING, State.LATE)
        }

    def awaited(self) -> set[int]:
        """Return the machines that are expected: they open their shards, or may still join."""
        awaited = self.roster.machines(State.JOINING)
        return awaited.union(self.roster.vacant) if self.waits else awaited

    def events(self) -> Iterator[Event]:
        """Yield what has happened since the last call; never waits."""
        self._outgoing = None
        self._listen()
        self._handle_disconnects()
        self._fill_vacant()
        for peer in self._living():
            if peer.process.state is State.JOINING:
                self._take_opened(peer)
        if not self._paused:
            self._shortage.look(self._manifest)
        yield from self._happened()
        for peer in self._living():
            if peer.job is not None:
                self._take_answer(peer, peer.job)
            if peer.has_left and peer.job is None:
                peer.send(FAREWELL)
                self._lose(peer, "it has said good-bye")
            yield from self._happened()

    def late(self, machine: int) -> None:
        """Note that the step does not wait for a machine any longer."""
        peer = self._serving_as(machine)
        if peer is not None:
            self.roster.late(peer.rank)

    def give_up(self, machine: int, reason: str) -> None:
        """Treat a machine that does not answer as lost; a spare replaces it."""
        peer = self._serving_as(machine)
        if peer is None or peer.process.state not in (State.COMPUTING, State.LATE):
            return
        self.roster.give_up(peer.rank, reason)
        if self._paused:
            return
        for spare in self._spares():
            self.roster.hand_over(peer.rank)
            self._become(spare, machine)
            return

    def exclude(self, machine: int, reason: str, change: type[Gone]) -> None:
        """Give a machine no more jobs; a spare replaces it."""
        peer = self._serving_as(machine)
        if peer is not None:
            self._exclude(peer, reason, change)

    def report(self, machine: int) -> str:
        """Return the last error of a machine."""
        peer = self._serving_as(machine)
        return (peer and peer.text) or "no report"

    # Processes.

    @property
    def _manifest(self) -> Manifest:
        assert self._opening is not None
        return self._opening.manifest

    def _living(self) -> list[Peer]:
        return list(self._peers.values())

    def _is_here(self, peer: Peer) -> bool:
        return peer.process.state is not State.LOST

    def _spares(self) -> list[Peer]:
        """Return the processes that can become machines now."""
        now = time.monotonic()
        return [
            peer
            for peer in self._peers.values()
            if peer.process.state is State.SPARE and peer.able_from <= now
        ]

    def _serving_as(self, machine: int) -> Peer | None:
        process = self.roster.serving_as(machine)
        if process is None:
            return None
        return next(peer for peer in self._peers.values() if peer.process is process)

    def _listen(self) -> None:
        """Receive messages of machines, and new machines."""
        for _ in range(_SHARE * (_SHARE + len(self._peers))):
            message = self._listener.receive()
            if message is None:
                return
            self._handle_message(*message)

    def _handle_message(self, name: bytes, frames: list[Any]) -> None:
        peer = self._peers.get(name)
        if (size := max(map(len, frames))) > MOST_IN_FRAME:
            problem = f"it sends {size} bytes at once, expected at most {MOST_IN_FRAME}"
            self._refuse(name, peer, problem)
            return
        try:
            kind, head = kind_and_head(frames[0])
            if peer is None:
                if kind == HELLO:
                    self._handle_hello(name, Hello.unpack(head))
            elif kind == ANSWER and peer.job is not None:
                peer.answer = [head, *frames[1:]]
            elif self._is_refused(peer):
                return
            elif kind == STATUS:
                peer.take_status(unpack_status(head))
            elif kind == GOOD_BYE:
                peer.has_left = True
            else:
                raise ValueError("unexpected message")
        except (IndexError, ValueError):
            self._invalid_messages += 1
            if self._invalid_messages <= _MOST_WARNINGS:
                log.warning("a process that has the key has sent an invalid message")

    def _is_refused(self, peer: Peer) -> bool:
        """Count a message that is not an answer; exclude a process that sends too many."""
        peer.unasked += 1
        if peer.unasked > _MOST_UNASKED:
            self._refuse(b"", peer, "it sends messages that nobody has asked for")
        return peer.unasked > _MOST_UNASKED

    def _refuse(self, name: bytes, peer: Peer | None, problem: str) -> None:
        """Tell a process once why it gets no job."""
        if peer is None:
            self._report_problem("a machine cannot join", problem)
            self._listener.send(name, REFUSED, problem.encode(errors="backslashreplace"))
        elif peer.process.state is not State.EXCLUDED:
            self._exclude(peer, problem)

    def _handle_hello(self, name: bytes, hello: Hello) -> None:
        mine = [socket.gethostname(), *package_here()]
        problem = different_packages([mine, [hello.place.host, *hello.package]])
        if problem:
            self._refuse(name, None, problem)
            return
        self._listener.track_disconnect()
        self.joined_ranks.add(hello.rank)
        if self._gathered is None:
            self._welcome(name, hello)
        elif name not in (known for known, _ in self._gathered):
            self._gathered.append((name, hello))

    def _welcome(self, name: bytes, hello: Hello) -> None:
        backoff = self._backoffs.get((hello.place.host, hello.pid))
        able_from = 0.0 if backoff is None else backoff.next
        send = partial(self._listener.send, name)
        peer = Peer(self.roster.add(), hello, send, able_from=able_from)
        self.roster.set_host(peer.rank, peer.host)
        self._peers[name] = peer
        if self._stop_message is not None:
            peer.order(Order(Kind.STOP), self._stop_message)
        log.info("process %d on %s has come as rank %d", hello.pid, peer.host, peer.rank)

    def _handle_disconnects(self) -> None:
        """Notice connections that have ended."""
        gone = self._listener.disconnected(list(self._peers))
        if gone:
            self._listen()  # to what they have sent before
        for peer in [self._peers[name] for name in gone]:
            if peer.job is not None:
                self._take_answer(peer, peer.job)
            self._lose(peer, "its connection has ended")

    def _lose(self, peer: Peer, how: str) -> None:
        """Note that a process is gone."""
        if peer.has_left and peer.job is None:
            self.roster.exclude(peer.rank, WARNED, Left)
        else:
            log.error("rank %d on %s is lost: %s", peer.rank, peer.host, how)
            self._note_end(peer)
        self.roster.lose(peer.rank, f"process {peer.hello.pid} on {peer.host} is gone")
        self.roster.forget(peer.rank)
        self._peers = {name: each for name, each in self._peers.items() if each is not peer}
        self._fill_vacant()

    def _note_end(self, peer: Peer) -> None:
        """Note the end of a connection, so that its process has to wait if it comes again."""
        if len(self._backoffs) > _MOST_BACKOFFS:
            self._backoffs = {key: each for key, each in self._backoffs.items() if not each.is_over}
        key = peer.host, peer.hello.pid
        self._backoffs.setdefault(key, Backoff(LONGEST_EXILE)).note_end()

    def _exclude(self, peer: Peer, reason: str, change: type[Gone] = Lost) -> None:
        """Give a process no more jobs, and tell it to leave unless it has said that it does."""
        self.roster.exclude(peer.rank, reason, change)
        if peer in self._asked:
            self._asked.remove(peer)
        if change is not Left:
            kind = DISMISSED if change is Excluded else FAILED
            peer.send(kind, reason.encode(errors="backslashreplace"))
        self._fill_vacant()

    def _take_answer(self, peer: Peer, job: Job) -> None:
        if peer.answer is None or not job.asked:
            return
        (head, *values), peer.answer = peer.answer, None
        buffer = job.buffer
        report, begin = head[: buffer.report.nbytes], head[buffer.report.nbytes :]
        peer.job, job.content = None, None
        if not (
            copy_frames([report], buffer.report) and copy_frames([begin, *values], buffer.values)
        ):
            self._exclude(peer, "its answer has the wrong length")
            return
        job.bound_report(time.monotonic() - job.begun, self._manifest.shard_bytes)
        peer.unasked = 0
        self._events.append(Answered(job))
        if peer.process.state is State.EXCLUDED:
            return
        if job.leaving:
            self._exclude(peer, WARNED, Left)
        else:
            self.roster.answer(peer.rank)

    # Processes become machines.

    def _fill_vacant(self) -> None:
        """Make spares machines that have no process."""
        if self._paused:
            return
        for spare in self._spares():
            if self.roster.vacant:
                self._become(spare, self._chosen(spare, self.roster.vacant))

    def _chosen(self, peer: Peer, machines: list[int]) -> int:
        """Return the machine that a process becomes: the one it asks for, or one of its host."""
        wanted = [n for n in machines if n == self._wanted(peer.hello)]
        its = [n for n in machines if self._last_hosts.get(n) == peer.host]
        new = [n for n in machines if n not in self._last_hosts]
        return (wanted or its or new or machines)[0]

    def _wanted(self, hello: Hello) -> int:
        """Return the machine that a process asks for; 0 for any."""
        if hello.machine or not 0 < hello.rank <= len(self._taking_part):
            return hello.machine
        return self._taking_part[hello.rank - 1]

    def _become(self, peer: Peer, machine: int) -> None:
        log.info("rank %d is to become machine %d", peer.rank, machine)
        self._last_hosts[machine] = peer.host
        self.roster.join(peer.rank, machine)
        opening = self._opening
        assert opening is not None
        # Speeds are not measured again, and injected faults were for the process before.
        inject = ",".join(w for w in opening.options.inject.split(",") if w.startswith("random"))
        options = replace(opening.options, measured=False, inject=inject)
        content = replace(opening, options=options).packed()
        threads = options.threads or self._threads()[peer.rank]
        peer.opened = None
        peer.order(Order(Kind.OPEN, machine, threads), content)

    def _take_opened(self, peer: Peer, quietly: bool = False) -> None:
        """Take the report of a process on the shard that it opens."""
        opened, peer.opened = peer.opened, None
        if opened is None:
            if time.monotonic() - peer.process.since > OPEN_SECONDS:
                self._exclude(peer, "it has not opened its shard in time")
            return
        if opened.problem:
            self._last_hosts.pop(peer.machine, None)
            self._report_problem("a machine cannot join", opened.problem)
            peer.decide(Verdict(failure=Failure.of(MachineError(opened.problem))))
            self._exclude(peer, opened.problem)
            return
        if opened.uncached and not quietly:  # said at the start
            self._report_problem("a machine has no copy", opened.uncached)
        peer.decide(Verdict(self._emulation))
        self.roster.joined(peer.rank, quietly)

    def _await(self, done: Callable[[Peer], bool]) -> None:
        """Wait for the machines that open their shards, for slow ones only if they are needed."""
        manifest, patience = self._manifest, Patience()
        last, before = time.monotonic(), -1
        while waited := [peer for peer in self._asked if not done(peer)]:
            self._listen()
            self._handle_disconnects()
            self._asked = [peer for peer in self._asked if self._is_here(peer)]
            finished = [peer.machine for peer in self._asked if done(peer)]
            if len(finished) != before:
                last, before = time.monotonic(), len(finished)
            spare = manifest.placement.to_spare(manifest.code.recovery, finished)
            limit = SETTLE_SECONDS if spare >= self._spare else OPEN_SECONDS
            if time.monotonic() - last > limit:
                log.warning("slow to open: machines %s", [peer.machine for peer in waited])
                return
            patience.pause()

    def _threads(self) -> dict[int, int]:
        """Return the BLAS threads of each process: its share of the cores of its node."""
        peers = self._living()
        places = places_together([self._here, *(peer.hello.place for peer in peers)])[1:]
        return {peer.rank: place.threads for peer, place in zip(peers, places, strict=True)}

    def _report_problem(self, what: str, problem: str) -> None:
        log.error("%s: %s", what, problem)
        if problem not in self._reported_problems and len(self._reported_problems) < _MOST_WARNINGS:
            self._reported_problems.add(problem)
            say(f"{what}: {problem}")

    def _happened(self) -> Iterator[Event]:
        while self._events:
            yield self._events.popleft()


def _by_rank(found: tuple[bytes, Hello]) -> tuple[bool, int]:
    """Sort key: processes of the launcher come first, in the order of ranks."""
    return not found[1].rank, found[1].rank
