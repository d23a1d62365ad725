"""A step by messages between the master and each machine: the exchange that outlives machines.

A machine has one job at a time, and the buffers of a job are its own: a late answer can
never be taken for one to a later step. Nothing here is collective, so nobody waits for a
process that died or is stuck. A death shows at the end of a connection (`lifelines`), as an
error of MPI where the library tells, or else as an answer that never comes.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cec_mpi.errors import CecError, MachineError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.roster.changes import WARNED, Gone, Left, Lost
from cec_mpi.roster.roster import Process, Roster, State
from cec_mpi.wire.answers import check_message_sizes
from cec_mpi.wire.jobs import Answered, Event, Job
from cec_mpi.wire.messages.master_end import MessagesMasterEnd
from cec_mpi.wire.messages.packing import packed
from cec_mpi.wire.messages.parting import part
from cec_mpi.wire.messages.peer import Callers, Peer
from cec_mpi.wire.messages.peers import Peers
from cec_mpi.wire.messages.replacing import Replacements
from cec_mpi.wire.messages.shortage import Shortage
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import CUT_OFF, Kind, Order

if TYPE_CHECKING:
    from cec_mpi.wire.messages.ranks import Ranks

_OPEN_SECONDS = 30.0  # without a word of any machine that opens its shard
_HEAR_SECONDS = 0.01  # between two looks whether machines were warned
_REPORT_SECONDS = 2.0  # in which a machine says what went wrong


class MessagesHub:
    """Rank 0's end, for all stores that the machines serve.

    Parameters
    ----------
    size : int
        Processes that serve from the beginning.
    continues : bool
        Go on without machines that are lost; else losing one is an error.
    ranks : callable, optional
        Given the roster of these processes, how those of the launcher are reached.
    callers : Callers, optional
        Processes that come by themselves.

    Attributes
    ----------
    roster : Roster
    continues : bool
    is_cut_off : bool
        See `JobsHub`.
    lost_any : bool
        A process of the job is gone or stuck: MPI_Finalize could wait for it for ever.
    out_of_reach : bool
        One is stuck on another node, and only the launcher can end it.
    """

    def __init__(
        self,
        size: int,
        continues: bool,
        ranks: Callable[[Roster], Ranks] | None = None,
        callers: Callers | None = None,
    ) -> None:
        self.continues = continues
        self._events: deque[Event] = deque()
        self.roster = Roster(size, time.monotonic, self._events.append)
        of_launcher = ranks(self.roster) if ranks is not None else None
        groups = [group for group in (of_launcher, callers) if group is not None]
        first = of_launcher.first if of_launcher is not None else []
        self._peers = Peers(first, groups, self.roster, self._on_loss)
        self._replacements = Replacements(self._peers, continues, of_launcher, self.roster)
        self._callers = callers
        if callers is not None:
            callers.welcome = self._welcome
        self._shortage = Shortage(self.roster, 0 if callers is None else callers.spare)
        self._opening: Opening | None = None
        self._asked: list[Peer] = []  # to open it
        self._stores = 0
        self._hears_from = 0.0
        self._stopped = self._has_begun = False
        self.is_cut_off = self.lost_any = self.out_of_reach = False

    def open(self, opening: Opening) -> list[Opened]:
        """Ask all to open a store, and hear what they say."""
        if self.is_cut_off:
            raise MachineError(CUT_OFF)
        check_message_sizes(opening.manifest)
        if not self._stores:
            for rank, machine in enumerate(opening.machines, start=1):
                if machine and self.roster[rank].state is State.SPARE:
                    self.roster.serve(rank, machine)
        self._replacements.paused = True
        self._asked = self._peers.that_can_open()
        opening = self._as_it_is(opening)
        self._opening = opening
        for peer in self._asked:
            self._peers.order(peer, Order(Kind.OPEN, self._stores), pickle.dumps(opening))
        if opening.measured:
            self._heard(self._asked)  # all are ready
            for peer in self._asked:
                self._peers.send_object(peer, None)
        found = self._heard(self._asked)
        return [found.get(rank, Opened()) for rank in self._peers.all]

    def admit(self, emulation: Emulation | None) -> MessagesMasterEnd:
        """Tell all that they serve it."""
        assert self._opening is not None
        number, self._stores = self._stores, self._stores + 1
        self._replacements.openings[number] = self._opening, emulation
        for peer in self._peers.living():
            if peer in self._asked:
                self._peers.send_object(peer, emulation)
            else:
                peer.stores_left.append(number)  # it opens it when it is not busy any more
                if peer.process.state is State.IDLE:
                    self._replacements.open_rest(peer)
        if not number:
            self.roster.expect(self._opening.expected)
            if self._callers is not None:
                self._callers.begin(self._opening.store)
        self._replacements.go_on()
        return MessagesMasterEnd(self, number, self._opening)

    def refuse(self, error: CecError) -> None:
        """Tell all that they do not."""
        for peer in self._asked:
            self._peers.send_object(peer, error)
        self._replacements.go_on()

    def stop(self, error: BaseException | None) -> None:
        """Tell all to leave, and see that those of the job do."""
        self._stopped = self._replacements.paused = True
        parted = part(self._peers, lambda: deque(self.events(), maxlen=0), error, self.lost_any)
        self.lost_any, self.out_of_reach = not parted.all_have_left, parted.out_of_reach

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Give a job to its machine, which is idle."""
        peer = self._serving_as(job.machine)
        self.roster.ask(peer.rank)
        self._has_begun = True
        peer.job = job
        with self._peers.watching(peer):
            order, alone = packed(job, content)
            job.sent = order, content
            peer.begin(job, order, alone)
        job.asked = True

    def hear(self) -> None:
        """Notice machines that were warned while they had nothing to do."""
        now = time.monotonic()
        if now < self._hears_from:
            return
        self._hears_from = now + _HEAR_SECONDS
        for peer in self._peers.warned():
            self._exclude(peer, WARNED, Left)

    def busy(self) -> dict[int, Job]:
        """The jobs that are not answered, by machine; without those of machines given up."""
        return {
            peer.process.machine: peer.job
            for peer in self._peers.all.values()
            if peer.job and peer.process.state in (State.COMPUTING, State.LATE)
        }

    def joining(self) -> set[int]:
        """Machines that processes are, or will be, about to become."""
        return self._replacements.joining()

    def awaited(self) -> set[int]:
        """These, and machines without a process where some are waited for."""
        awaited = self.joining()
        if self._callers is not None and (self._callers.waits or not self._has_begun):
            awaited.update(self.roster.vacant)
        return awaited

    def events(self) -> Iterator[Event]:
        """What has happened since the last time, as it shows in the roster; never waits."""
        self._peers.help_along()
        self._peers.look_for_the_dead()
        self._replacements.look_around()
        if self._callers is not None and not self._stopped:
            self._shortage.look(self._replacements.openings)
        yield from self._told()
        for peer in self._peers.living():
            if peer.job is not None and not peer.is_lost:
                self._look_at_job(peer, peer.job)
                yield from self._told()

    def late(self, machine: int) -> None:
        """The step that waits for a machine waits for it no more."""
        self.roster.late(self._serving_as(machine).rank)

    def give_up(self, machine: int, reason: str) -> None:
        """Take a machine that does not answer for lost; a spare takes its place."""
        peer = self._peers.serving_as(machine)
        if peer is not None and peer.process.state in (State.COMPUTING, State.LATE):
            self.roster.give_up(peer.rank, reason)
            self._replacements.hand_over(peer)

    def exclude(self, machine: int, reason: str, change: type[Gone]) -> None:
        """Ask a machine no more; a spare takes its place."""
        peer = self._peers.serving_as(machine)
        if peer is not None:
            self._exclude(peer, reason, change)

    def start_processes(self, soon: bool = False) -> None:
        """Start a process for each machine that has none, where the session does so."""
        self._replacements.start_processes(soon)

    def report(self, machine: int) -> str:
        """Ask a machine what went wrong."""
        peer = self._peers.serving_as(machine)
        if peer is None:
            return "no report"
        self._peers.order(peer, Order(Kind.EXPLAIN))
        return str(self._peers.replies([peer], _REPORT_SECONDS).get(peer.rank, "no report"))

    def close(self, store: int) -> None:
        """The machines need not serve this store any more; those that are busy keep it open."""
        self._replacements.openings.pop(store, None)
        for peer in self._peers.living():
            opens_now = peer.process.is_joining  # the first
            if store in peer.stores_left[opens_now:]:
                peer.stores_left.remove(store)
            elif peer.process.is_free and not self._stopped:
                self._peers.order(peer, Order(Kind.CLOSE, store))

    def _as_it_is(self, opening: Opening) -> Opening:
        """With the machines that processes are now."""
        wanted = {*opening.machines, *opening.expected}
        every = self._peers.all.values()
        machines = [p.process.machine if p in self._asked else 0 for p in every]
        return opening.for_machines([n if n in wanted else 0 for n in machines])

    def _heard(self, peers: list[Peer]) -> dict[int, Any]:
        """An object of each of these; where it can, a session goes on without silent ones."""
        found = self._peers.replies(peers, _OPEN_SECONDS if self.continues else float("inf"))
        for peer in list(peers):
            if peer.rank not in found:
                self._asked.remove(peer)
                if not peer.is_lost:
                    self._exclude(peer, "it does not open its shard")
        return found

    def _look_at_job(self, peer: Peer, job: Job) -> None:
        if not job.asked:
            return
        with self._peers.watching(peer):
            if not peer.has_answered(job):
                return
            peer.job, job.sent = None, ()
            self._events.append(Answered(job))
            if peer.process.state is State.EXCLUDED:
                return
            if job.leaving:
                self._exclude(peer, WARNED, Left)
            elif peer.stores_left and peer.process.machine:
                self._replacements.open_rest(peer)
            else:
                self.roster.answer(peer.rank)

    def _serving_as(self, machine: int) -> Peer:
        peer = self._peers.serving_as(machine)
        if peer is None:
            raise RuntimeError(f"machine {machine} has no process")
        return peer

    def _welcome(self, make: Callable[[Process], Peer]) -> Peer:
        """A process has come by itself."""
        peer = make(self.roster.come())
        self.roster.settle(peer.rank, peer.host, peer.room)
        self._peers.add(peer)
        return peer

    def _exclude(self, peer: Peer, reason: str, change: type[Gone] = Lost) -> None:
        """Ask a process no more; another takes its place, if there is one."""
        self._peers.exclude(peer, reason, change)
        self._replacements.fill()

    def _told(self) -> Iterator[Event]:
        while self._events:
            yield self._events.popleft()

    def _on_loss(self, peer: Peer) -> None:
        if peer.is_of_the_job:
            self.lost_any = True
            self._replacements.note_loss()
        self._replacements.fill()
