"""A step by messages between the master and each machine: the exchange that outlives machines.

A machine has one job at a time, and the buffers of a job are its own: a late answer can
never be taken for one to a later step. Nothing here is collective, so nobody waits for a
process that died or is stuck. A death shows at the end of a connection (`lifelines`), as an
error of MPI where the library tells, or else as an answer that never comes.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.errors import CecError
from cec_mpi.runtime.collective import check_message_sizes
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import Opened, Opening, Product
from cec_mpi.runtime.jobs import (
    ASK,
    CLOSE,
    CONTENT,
    NOTE,
    OPEN,
    ORDER,
    REPORT,
    STEP,
    STOP,
    VALUES,
    Answered,
    Event,
    GivenUp,
    Intervals,
    Job,
    Joined,
    Left,
)
from cec_mpi.runtime.packing import pack_error
from cec_mpi.runtime.peers import Peer, Peers
from cec_mpi.runtime.replacing import Replacements
from cec_mpi.runtime.waiting import Patience

__all__ = ["MessagesHub", "MessagesMasterEnd"]

log = logging.getLogger(__name__)

_OPEN_SECONDS = 30.0  # without a word of any machine that opens its shard
_HEAR_SECONDS = 2.0  # that the master waits for machines to say that they hear, at the end
_BYE_SECONDS = 5.0  # and for them to leave
_MOST_BUFFERS = 1000  # that are kept for further answers


class MessagesHub:
    """Rank 0's end, for all stores that the machines serve.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master, one rank per machine, and spares.
    continues : bool
        Go on without machines that are lost; else losing one is an error.
    spawns : bool
        Start processes in the place of lost ones when there are no spares.

    Attributes
    ----------
    continues : bool
    lost_any : bool
        A process is gone or stuck: MPI_Finalize could wait for it for ever.
    out_of_reach : bool
        One is stuck on another node, and only the launcher can end it.
    """

    def __init__(self, comm: MPI.Intracomm, continues: bool, spawns: bool = False) -> None:
        self.continues = continues
        self._host = socket.gethostname()
        self._peers = Peers(comm, continues, spawns, self._on_loss)
        self._events: list[Event] = []
        self._replacements = Replacements(self._peers, continues, spawns, self._tell)
        self._opening: Opening | None = None
        self._asked: list[Peer] = []  # to open it
        self._stores = 0
        self._stopped = False
        self.lost_any = self.out_of_reach = False

    def open(self, opening: Opening) -> list[Opened]:
        """Ask all to open a store, and hear what they say."""
        check_message_sizes(opening.manifest)
        if not self._stores:
            for peer, machine in zip(self._peers.all, opening.machines, strict=True):
                peer.machine = machine
        self._replacements.paused = True
        self._asked = [peer for peer in self._peers.living() if peer.is_idle]
        opening = self._as_it_is(opening)
        self._opening = opening
        for peer in self._asked:
            self._peers.order(peer, OPEN, self._stores, content=pickle.dumps(opening))
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
        hears = self._all_that_hear()
        self.lost_any = self.lost_any or any(peer.lost for peer in self._peers.all)
        self.lost_any = self.lost_any or len(hears) < len(self._peers.living())
        self._peers.are_leaving = True
        for peer in hears:
            self._peers.order(peer, STOP, step=int(self.lost_any), content=pack_error(error))
        gone = self._peers.replies(hears, _BYE_SECONDS)
        for peer in self._peers.living():
            if peer.rank not in gone:
                self.lost_any = True
                self._end_process(peer)
        self._peers.close()

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Give a job to its machine, which has none."""
        peer = self._peers.serving_as(job.machine)
        assert peer is not None
        assert peer.is_idle
        numbers = np.array(job.intervals, dtype=np.int64).ravel()
        adjoint, columns = job.product
        header = np.array([STEP, job.store, job.step, adjoint, columns, 0], dtype=np.int64)
        order = np.concatenate((header, numbers))
        peer.job = job
        job.sent = order, content
        with self._peers.watching(peer):
            job.requests = [
                peer.irecv(job.report, REPORT),
                peer.irecv(job.values, VALUES),
                peer.isend(order, ORDER),
                peer.isend(content, CONTENT),
            ]

    def hear(self) -> None:
        """Notice machines that were warned while they had nothing to do."""
        for peer in self._peers.living():
            with self._peers.watching(peer):
                if peer.has_sent(NOTE):
                    peer.object(NOTE)
                    self._let_go(peer)

    def idle(self) -> list[int]:
        """Machines that can be given a job."""
        return sorted(peer.machine for peer in self._peers.all if peer.machine and peer.is_idle)

    def is_idle(self, machine: int) -> bool:
        """Whether this one can be given a job."""
        peer = self._peers.serving_as(machine)
        return peer is not None and peer.is_idle

    def busy(self) -> dict[int, Job]:
        """The jobs that are not answered."""
        return {
            peer.machine: peer.job
            for peer in self._peers.living()
            if peer.job and peer.machine and not peer.given_up
        }

    def joining(self) -> list[int]:
        """Machines that spares, or processes that are started for it, are about to become."""
        return self._replacements.joining()

    def events(self) -> list[Event]:
        """What has happened since the last call; never waits."""
        self._peers.help_along()
        self._peers.look_for_the_dead()
        self._replacements.look_around()
        for peer in self._peers.living():
            if peer.job is not None:
                self._look_at_job(peer)
        events, self._events = self._events, []
        return events

    def give_up(self, machine: int, reason: str) -> None:
        """Take a machine that does not answer for lost; a spare takes its place.

        When its process answers after all, it becomes a spare, or the same machine again if
        there was no spare.
        """
        peer = self._peers.serving_as(machine)
        if peer is None or peer.given_up:
            return
        peer.given_up = True
        self._tell(GivenUp(machine, reason))
        if self._replacements.give_to_spare(machine):
            peer.machine = 0

    def dismiss(self, machine: int, reason: str) -> None:
        """Ask a machine that raised an exception no more."""
        peer = self._peers.serving_as(machine)
        if peer is not None:
            peer.left_out = True
            self._without(peer, reason)

    def start_processes(self, soon: bool = False) -> None:
        """Start a process for each machine that has none, where the session does so.

        If it is too early now and it is to be done `soon`, `events` does it when it is time.
        """
        self._replacements.start_processes(soon)

    def report(self, machine: int) -> str:
        """Ask a machine what went wrong."""
        peer = self._peers.serving_as(machine)
        if peer is None:
            return "no report"
        self._peers.order(peer, ASK)
        return str(self._peers.replies([peer], _HEAR_SECONDS).get(peer.rank, "no report"))

    def close(self, store: int) -> None:
        """The machines need not serve this store any more; those that are busy keep it open."""
        self._replacements.openings.pop(store, None)
        for peer in self._peers.living():
            if store in peer.stores_left[bool(peer.joining) :]:  # not the one that it opens now
                peer.stores_left.remove(store)
            elif peer.is_idle and not self._stopped:
                self._peers.order(peer, CLOSE, store)

    def _as_it_is(self, opening: Opening) -> Opening:
        """With the machines that processes are now."""
        wanted = set(opening.machines)
        machines = tuple(
            p.machine if p.machine in wanted and p in self._asked else 0 for p in self._peers.all
        )
        return opening.for_machines(machines)

    def _heard(self, peers: list[Peer]) -> dict[int, Any]:
        """An object of each of these; where it can, a session goes on without silent ones."""
        found = self._peers.replies(peers, _OPEN_SECONDS if self.continues else float("inf"))
        for peer in list(peers):
            if peer.rank not in found:
                self._asked.remove(peer)
                if not peer.lost:
                    peer.left_out = True
                    self._without(peer, "it does not open its shard")
        return found

    def _look_at_job(self, peer: Peer) -> None:
        job = peer.job
        assert job is not None
        with self._peers.watching(peer):
            job.requests = [request for request in job.requests if not request.Test()]
            if not job.requests:
                peer.job, job.sent = None, ()
                self._tell(Answered(job))
                if peer.given_up and peer.machine and not (job.leaving or peer.stores_left):
                    self._tell(Joined(peer.machine, peer.rank))
                peer.given_up = False
                if job.leaving:
                    self._let_go(peer)
                elif peer.stores_left and peer.machine:
                    self._replacements.open_rest(peer)

    def let_go(self, machine: int, reason: str) -> None:
        """Ask a machine no more; a spare takes its place."""
        peer = self._peers.serving_as(machine)
        if peer is not None:
            self._let_go(peer, reason)

    def _let_go(self, peer: Peer, reason: str = "it was warned") -> None:
        if peer.left_out:
            return
        machine, peer.machine, peer.left_out = peer.machine, 0, True
        if machine:
            self._tell(Left(machine, reason))
            self._replacements.vacate(machine)

    def _without(self, peer: Peer, reason: str) -> None:
        """A process serves no more: another takes its place, if there is one."""
        machine, peer.machine = peer.machine, 0
        self._replacements.without(machine, reason)

    def _go_on_replacing(self) -> None:
        self._replacements.paused = False
        self._replacements.fill()

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    def _on_loss(self, peer: Peer, machine: int) -> None:
        self.lost_any, peer.machine = True, 0
        self._replacements.note_loss()
        if not self._stopped:
            gone = f"process {peer.process} on {peer.host} is gone"
            self._replacements.without(machine, gone)

    def _all_that_hear(self) -> list[Peer]:
        """Processes that answer, if need be after they were woken up."""
        hear: list[Peer] = []
        silent = self._peers.living()
        for attempt in range(2):
            if attempt:
                self._wake(silent)
            patience, due = Patience(), time.monotonic() + _HEAR_SECONDS
            while time.monotonic() < due and any(
                (p.job is not None or p.joining) and not p.lost for p in silent
            ):
                self.events()
                patience.pause()
            asked = [p for p in silent if not p.lost and p.job is None and not p.joining]
            for peer in asked:
                if not peer.pinged:
                    self._peers.order(peer, ASK)
                    peer.pinged = True
            answered = self._peers.replies(asked, _HEAR_SECONDS)
            hear += [peer for peer in asked if peer.rank in answered]
            silent = [p for p in silent if not p.lost and p not in hear]
            if not silent:
                break
        return [peer for peer in hear if not peer.lost]

    def _wake(self, peers: list[Peer]) -> None:
        """Let processes go on that somebody has stopped."""
        for peer in peers:
            if peer.host == self._host:
                with suppress(ProcessLookupError):
                    os.kill(peer.process, signal.SIGCONT)

    def _end_process(self, peer: Peer) -> None:
        """End a process of this job that does not hear: it would keep the launcher waiting."""
        if peer.host != self._host:
            self.out_of_reach = True
        else:
            log.error("rank %d does not answer: process %d is ended", peer.rank, peer.process)
            with suppress(ProcessLookupError):
                os.kill(peer.process, signal.SIGKILL)


class MessagesMasterEnd:
    """Rank 0's end for the steps of one store.

    Parameters
    ----------
    hub : MessagesHub
    store : int
    opening : Opening
    """

    def __init__(self, hub: MessagesHub, store: int, opening: Opening) -> None:
        self.hub = hub
        self._store = store
        self._manifest = opening.manifest
        self._buffers: dict[tuple[int, str], list[NDArray[Any]]] = {}

    def ask(
        self,
        machine: int,
        step: int,
        product: Product,
        intervals: Intervals,
        content: NDArray[Any],
    ) -> Job:
        """Give a machine that is idle a job.

        Parameters
        ----------
        machine, step : int
        product : Product
        intervals : tuple of (int, int)
        content : ndarray
            W, shape (k, r), or what its rows are multiplied with, (count, k); contiguous, in
            the dtype of the shards. It has to stay as it is until the answer is there.
        """
        if product.adjoint:
            size, dtype = self._manifest.columns * product.columns, "float64"
        else:
            rows = sum(stop - start for start, stop in intervals)
            size, dtype = rows * product.columns, self._manifest.dtype
        kept = self._buffers.get((size, dtype))
        values = kept.pop() if kept else np.empty(size, dtype)
        job = Job(machine, self._store, step, product, intervals, values)
        self.hub.ask(job, content)
        return job

    def release(self, jobs: Iterable[Job]) -> None:
        """The values of these jobs, all answered, are not needed any more."""
        if sum(map(len, self._buffers.values())) > _MOST_BUFFERS:
            self._buffers.clear()
        for job in jobs:
            key = job.values.size, job.values.dtype.name
            self._buffers.setdefault(key, []).append(job.values)

    def close(self) -> None:
        """The machines need not serve this store any more."""
        self.hub.close(self._store)
