"""How the processes that serve are reached, and how it shows which are gone."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from cec_mpi.processes.waiting import Patience
from cec_mpi.roster.roster import Process, Roster, State
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.lifelines.lifelines import Address, Lifelines
from cec_mpi.wire.messages.tags import CONTENT, OBJECT, ORDER
from cec_mpi.wire.orders import MASTER, Order

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Peer:
    """How a process is reached, and what is on its way to it.

    Attributes
    ----------
    process : Process
        What it is in the roster.
    comm : mpi4py.MPI.Comm
        Where it is reached.
    at : int
        As which rank of `comm`.
    host : str
    pid : int
        Its number on that host.
    job : Job or None
        That it was asked for, and whose buffers MPI uses.
    stores_left : list of int
        That it has to open before it is its machine.
    pinged : bool
        It was asked whether it hears.
    """

    process: Process
    comm: MPI.Comm
    at: int
    host: str = "a host that is not known yet"
    pid: int = 0
    job: Job | None = None
    stores_left: list[int] = field(default_factory=list)
    pinged: bool = False

    @property
    def rank(self) -> int:
        """Its number among the processes of the session, rank 0 being the master."""
        return self.process.rank

    @property
    def is_lost(self) -> bool:
        """Whether it is gone."""
        return self.process.state is State.LOST

    def isend(self, content: Any, tag: int) -> MPI.Request:
        """Begin to send a buffer."""
        return self.comm.Isend(content, dest=self.at, tag=tag)

    def irecv(self, content: Any, tag: int) -> MPI.Request:
        """Begin to receive a buffer."""
        return self.comm.Irecv(content, source=self.at, tag=tag)

    def isend_object(self, content: object, tag: int) -> MPI.Request:
        """Begin to send an object."""
        return self.comm.isend(content, dest=self.at, tag=tag)

    def has_sent(self, tag: int) -> bool:
        """Whether a message with this tag is there."""
        return bool(self.comm.Iprobe(source=self.at, tag=tag))

    def object(self, tag: int) -> Any:
        """Receive an object."""
        return self.comm.recv(source=self.at, tag=tag)


class Peers:
    """All processes that serve a session, those that are gone too.

    A death shows at the end of a connection (`lifelines`), or as an error of MPI.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and the processes that serve from the beginning; they meet here.
    at : sequence of str or None
        Addresses at which rank 0 listens (see `Lifelines`), in a session that goes on without
        processes that are gone.
    more : bool
        Others may come later.
    roster : Roster
        Of these processes.
    on_loss : callable
        Called when one is gone.

    Attributes
    ----------
    all : list of Peer
        In the order of ranks, from 1 on.
    are_leaving : bool
        That processes end is no loss any more.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        at: Sequence[str] | None,
        more: bool,
        roster: Roster,
        on_loss: Callable[[], None],
    ) -> None:
        self._lifelines = None if at is None else _listening(comm.size, at)
        comm.bcast(self._lifelines and self._lifelines.address, root=MASTER)
        places = (comm.gather(None, root=MASTER) or [])[1:]
        self.all = [
            Peer(roster[rank], comm, rank, host, pid)
            for rank, (host, pid, _) in enumerate(places, start=1)
        ]
        self._roster = roster
        if self._lifelines is not None:
            callers = [rank for rank, place in enumerate(places, start=1) if place[2]]
            self._lifelines.accept(callers, more=more)
        self._on_loss = on_loss
        self._outbox: list[tuple[MPI.Request, Any]] = []
        self.are_leaving = False

    def address_for(self, rank: int) -> Address | None:
        """Where rank 0 hears a process that comes later."""
        if self._lifelines is None:
            return None
        self._lifelines.expect(rank)
        return self._lifelines.address

    def living(self) -> list[Peer]:
        """Those that are not gone."""
        return [peer for peer in self.all if not peer.is_lost]

    def serving_as(self, machine: int) -> Peer | None:
        """The process that is a machine now."""
        return self._at(self._roster.serving_as(machine))

    def spare(self) -> Peer | None:
        """A process that can become a machine now."""
        return self._at(self._roster.spare())

    def hear_whereabouts(self, peer: Peer) -> None:
        """A process that came later has said where it runs."""
        peer.host, peer.pid, called = peer.object(OBJECT)
        if self._lifelines is not None:
            self._lifelines.accept([peer.rank] if called else [], more=True)

    def order(self, peer: Peer, order: Order, content: bytes = b"") -> None:
        """Send an order that is not a job, and bytes that belong to it."""
        header = np.array(order._replace(length=len(content)), dtype=np.int64)
        with self.watching(peer):
            self._outbox.append((peer.isend(header, ORDER), header))
            if content:
                self._outbox.append((peer.isend(content, CONTENT), content))

    def send_object(self, peer: Peer, content: object) -> None:
        """Send what a process waits for."""
        with self.watching(peer):
            self._outbox.append((peer.isend_object(content, OBJECT), None))

    def help_along(self) -> None:
        """Let what was sent go its way; who is gone shows elsewhere."""
        if self._outbox:
            self._outbox = [sent for sent in self._outbox if not _is_done(sent[0])]

    def replies(self, peers: Iterable[Peer], limit: float = float("inf")) -> dict[int, Any]:
        """An object of each of these; lost ones say nothing, nor those that are silent so long."""
        waited = {peer.rank: peer for peer in peers}
        replies: dict[int, Any] = {}
        patience, due = Patience(), time.monotonic() + limit
        while waited and time.monotonic() < due:
            for rank, peer in list(waited.items()):
                with self.watching(peer):
                    if peer.has_sent(OBJECT):
                        replies[rank] = peer.object(OBJECT)
                        del waited[rank]
                        due = time.monotonic() + limit
                if peer.is_lost:
                    waited.pop(rank, None)
            if waited:
                self.help_along()
                self.look_for_the_dead()
                patience.pause()
        return replies

    def look_for_the_dead(self) -> None:
        """Notice whose connection has ended."""
        if self._lifelines is not None and not self.are_leaving:
            for rank in self._lifelines.gone():
                self.lose(self.all[rank - 1], "its connection has ended")

    def watching(self, peer: Peer) -> _Watching:
        """An error of MPI inside the ``with`` means that this process is gone."""
        return _Watching(self, peer)

    def lose(self, peer: Peer, error: object) -> None:
        """A process is gone."""
        if peer.is_lost:
            return
        if peer.job is not None:
            _unfinished.append(peer.job)
        log.error("rank %d on %s is lost: %s", peer.rank, peer.host, error)
        self._roster.lose(peer.rank, f"process {peer.pid} on {peer.host} is gone")
        self._on_loss()

    def close(self) -> None:
        """End all connections."""
        if self._lifelines is not None:
            self._lifelines.close()

    def _at(self, process: Process | None) -> Peer | None:
        return None if process is None else self.all[process.rank - 1]


def _listening(size: int, at: Sequence[str]) -> Lifelines | None:
    """Connections to all other processes; without them, losses show in what MPI says, or late."""
    try:
        return Lifelines(range(1, size), at)
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"rank 0 cannot listen at {', '.join(filter(None, at)) or 'any address'} ({error}): a "
            "machine that is lost may be seen only when its deadline is over",
            stacklevel=2,
        )
        return None


_unfinished: list[Job] = []  # with buffers that MPI may still read or write


def _is_done(request: MPI.Request) -> bool:
    try:
        return bool(request.Test())
    except MPI.Exception:
        return True


class _Watching:
    __slots__ = ("_peer", "_peers")

    def __init__(self, peers: Peers, peer: Peer) -> None:
        self._peers, self._peer = peers, peer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if kind is None or not issubclass(kind, MPI.Exception):
            return False
        self._peers.lose(self._peer, error)
        return True
