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
from collections.abc import Iterator, Sequence
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.errors import CecError, MachineError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.roster.changes import WARNED, Gone, Left, Lost
from cec_mpi.roster.roster import Roster, State
from cec_mpi.wire.answers import check_message_sizes
from cec_mpi.wire.jobs import Answered, Event, Job
from cec_mpi.wire.messages.master_end import MessagesMasterEnd
from cec_mpi.wire.messages.packing import goes_with_order, goes_with_report, packed_job
from cec_mpi.wire.messages.parting import all_that_hear, all_that_stay, ended
from cec_mpi.wire.messages.peers import Peer, Peers
from cec_mpi.wire.messages.replacing import Replacements
from cec_mpi.wire.messages.tags import CONTENT, NOTE, ORDER, REPORT, VALUES
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import CUT_OFF, Kind, Order, Stop

_OPEN_SECONDS = 30.0  # without a word of any machine that opens its shard
_HEAR_SECONDS = 0.01  # between two looks whether machines were warned
_REPORT_SECONDS = 2.0  # in which a machine says what went wrong


class MessagesHub:
    """Rank 0's end, for all stores that the machines serve.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master, one rank per machine, and spares.
    at : sequence of str or None
        Addresses at which rank 0 hears whether machines live, to go on without those that are
        lost; None where losing one is an error.
    program : str, optional
        The module that a process runs which is started in the place of a lost one, when there are
        no spares; by default none is started.

    Attributes
    ----------
    roster : Roster
    continues : bool
    is_cut_off : bool
        See `JobsHub`.
    lost_any : bool
        A process is gone or stuck: MPI_Finalize could wait for it for ever.
    out_of_reach : bool
        One is stuck on another node, and only the launcher can end it.
    """

    def __init__(
        self, comm: MPI.Intracomm, at: Sequence[str] | None, program: str | None = None
    ) -> None:
        self.continues = continues = at is not None
        self._events: deque[Event] = deque()
        self.roster = Roster(comm.size - 1, time.monotonic, self._events.append)
        self._peers = Peers(comm, at, program is not None, self.roster, self._on_loss)
        self._replacements = Replacements(self._peers, continues, program, self.roster)
        self._opening: Opening | None = None
        self._asked: list[Peer] = []  # to open it
        self._stores = 0
        self._hears_from = 0.0
        self._stopped = False
        self.is_cut_off = self.lost_any = self.out_of_reach = False

    def open(self, opening: Opening) -> list[Opened]:
        """Ask all to open a store, and hear what they say."""
        if self.is_cut_off:
            raise MachineError(CUT_OFF)
        check_message_sizes(opening.manifest)
        if not self._stores:
            for process, machine in zip(self.roster.processes, opening.machines, strict=True):
                if machine and process.state is State.SPARE:
                    self.roster.serve(process.rank, machine)
        self._replacements.paused = True
        self._asked = [peer for peer in self._peers.living() if peer.process.is_free]
        opening = self._as_it_is(opening)
        self._opening = opening
        for peer in self._asked:
            self._peers.order(peer, Order(Kind.OPEN, self._stores), pickle.dumps(opening))
        if opening.measured:
            self._heard(self._asked)  # all are ready
            for peer in self._asked:
                self._peers.send_object(peer, None)
        found = self._heard(self._asked)
        return [found.get(peer.rank, Opened()) for peer in self._peers.all]

    def admit(self, emulation: Emulation | None) -> MessagesMasterEnd:
        """Tell all that they serve it."""
        assert self._opening is not None
        number, self._stores = self._stores, self._stores + 1
        for peer in self._peers.living():
            if peer in self._asked:
                self._peers.send_object(peer, emulation)
            else:
                peer.stores_left.append(number)  # it opens it when it is not busy any more
        self._replacements.openings[number] = self._opening, emulation
        self._go_on_replacing()
        return MessagesMasterEnd(self, number, self._opening)

    def refuse(self, error: CecError) -> None:
        """Tell all that they do not."""
        for peer in self._asked:
            self._peers.send_object(peer, error)
        self._go_on_replacing()

    def stop(self, error: BaseException | None) -> None:
        """Tell all to leave, and see that they do."""
        self._stopped = self._replacements.paused = True
        hears = all_that_hear(self._peers, lambda: deque(self.events(), maxlen=0))
        self.lost_any = self.lost_any or len(hears) < len(self._peers.living())
        self._peers.are_leaving = True
        for peer in hears:
            self._peers.order(peer, Order(Kind.STOP), Stop(error, self.lost_any).packed())
        for peer in all_that_stay(self._peers, hears):
            self.lost_any = True
            self.out_of_reach = not ended(peer) or self.out_of_reach
        self._peers.close()

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Give a job to its machine, which is idle."""
        peer = self._serving_as(job.machine)
        self.roster.ask(peer.rank)
        header = Order.of(job.product, job.store, job.shard, job.step)
        order = packed_job(header, job.intervals, content)
        peer.job = job
        job.sent = order, content
        with self._peers.watching(peer):
            requests = [peer.isend(order, ORDER)]
            if not goes_with_order(content):
                requests.append(peer.isend(content, CONTENT))
            if goes_with_report(job.values):
                requests.append(peer.irecv(job.room.together, VALUES))
            else:
                requests.append(peer.irecv(job.report, REPORT))
                requests.append(peer.irecv(job.values, VALUES))
            job.requests = requests
        job.asked = True

    def hear(self) -> None:
        """Notice machines that were warned while they had nothing to do."""
        now = time.monotonic()
        if now < self._hears_from:
            return
        self._hears_from = now + _HEAR_SECONDS
        for peer in self._peers.living():
            if peer.process.is_joining:
                continue  # it is heard when it is a machine
            with self._peers.watching(peer):
                if peer.has_sent(NOTE):
                    peer.object(NOTE)
                    self._exclude(peer, WARNED, Left)

    def busy(self) -> dict[int, Job]:
        """The jobs that are not answered, by machine; without those of machines given up."""
        return {
            peer.process.machine: peer.job
            for peer in self._peers.all
            if peer.job and peer.process.state in (State.COMPUTING, State.LATE)
        }

    def joining(self) -> set[int]:
        """Machines that processes are, or will be, about to become."""
        return self._replacements.joining()

    def events(self) -> Iterator[Event]:
        """What has happened since the last time, as it shows in the roster; never waits."""
        self._peers.help_along()
        self._peers.look_for_the_dead()
        self._replacements.look_around()
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
        wanted = set(opening.machines)
        machines = [p.process.machine if p in self._asked else 0 for p in self._peers.all]
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
            while job.requests and job.requests[-1].Test():
                job.requests.pop()
            if job.requests:
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

    def _exclude(self, peer: Peer, reason: str, change: type[Gone] = Lost) -> None:
        """Ask a process no more; another takes its place, if there is one."""
        self.roster.exclude(peer.rank, reason, change)
        self._replacements.fill()

    def _go_on_replacing(self) -> None:
        self._replacements.paused = False
        self._replacements.fill()

    def _told(self) -> Iterator[Event]:
        while self._events:
            yield self._events.popleft()

    def _on_loss(self) -> None:
        self.lost_any = True
        self._replacements.note_loss()
        self._replacements.fill()
