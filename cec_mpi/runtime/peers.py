"""The processes that serve, as rank 0 sees them: how they are reached, and which are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from cec_mpi.runtime.jobs import CONTENT, MASTER, OBJECT, ORDER, Job
from cec_mpi.runtime.lifelines import Address, Lifelines
from cec_mpi.runtime.waiting import Patience

__all__ = ["Peer", "Peers"]

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Peer:
    """A process that serves: which machine it is, and what it was asked last.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session, rank 0 being the master.
    comm : mpi4py.MPI.Comm
        Where it is reached.
    at : int
        As which rank of `comm`.
    host : str
    process : int
        Its number on that host.
    """

    rank: int
    comm: MPI.Comm
    at: int
    host: str = "a host that is not known yet"
    process: int = 0
    machine: int = 0  # 0 for a spare
    job: Job | None = None
    joining: int = 0  # the machine that it is to become
    asked: float = 0.0  # when
    stores_left: list[int] = field(default_factory=list)  # that it has to open first
    lost: bool = False
    left_out: bool = False  # lives, but is not asked any more
    given_up: bool = False  # taken for lost, until it answers
    pinged: bool = False  # asked whether it hears
    starting: bool = False  # has not said where it runs

    @property
    def is_idle(self) -> bool:
        """Whether it can be asked something."""
        return not (self.lost or self.left_out or self.job or self.joining)

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
    continues : bool
        The session goes on without processes that are gone.
    more : bool
        Others may come later.
    on_loss : callable
        Called with a process that is gone, and which machine it was.

    Attributes
    ----------
    all : list of Peer
        In the order of ranks, from 1 on.
    are_leaving : bool
        That processes end is no loss any more.
    """

    def __init__(
        self, comm: MPI.Intracomm, continues: bool, more: bool, on_loss: Callable[[Peer, int], None]
    ) -> None:
        self._lifelines = Lifelines() if continues else None
        comm.bcast(self._lifelines and self._lifelines.address, root=MASTER)
        places = (comm.gather(None, root=MASTER) or [])[1:]
        self.all = [
            Peer(rank, comm, rank, host, process)
            for rank, (host, process, _) in enumerate(places, start=1)
        ]
        if self._lifelines is not None:
            callers = [rank for rank, place in enumerate(places, start=1) if place[2]]
            self._lifelines.accept(callers, more=more)
        self._on_loss = on_loss
        self._outbox: list[tuple[MPI.Request, Any]] = []
        self.are_leaving = False

    @property
    def address(self) -> Address:
        """Where rank 0 hears processes that come later."""
        assert self._lifelines is not None
        return self._lifelines.address

    def living(self) -> list[Peer]:
        """Those that are not gone."""
        return [peer for peer in self.all if not peer.lost]

    def serving_as(self, machine: int) -> Peer | None:
        """The process that is a machine now."""
        return next((peer for peer in self.living() if peer.machine == machine), None)

    def idle_spare(self) -> Peer | None:
        """A process that is no machine, and can become one."""
        return next((peer for peer in self.all if not peer.machine and peer.is_idle), None)

    def hear_whereabouts(self, peer: Peer) -> None:
        """A process that came later has said where it runs."""
        peer.host, peer.process, called = peer.object(OBJECT)
        peer.starting = False
        assert self._lifelines is not None
        self._lifelines.accept([peer.rank] if called else [], more=True)

    def order(
        self, peer: Peer, kind: int, store: int = 0, step: int = 0, content: bytes = b""
    ) -> None:
        """Send an order that is not a job."""
        header = np.array([kind, store, step, 0, 0, len(content)], dtype=np.int64)
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
                if peer.lost:
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
        if peer.lost:
            return
        peer.lost = True
        if peer.job is not None:
            _unfinished.append(peer.job)
        machine, peer.joining = peer.joining or peer.machine, 0
        log.error("rank %d on %s is lost: %s", peer.rank, peer.host, error)
        self._on_loss(peer, machine)

    def close(self) -> None:
        """End all connections."""
        if self._lifelines is not None:
            self._lifelines.close()


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

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: object) -> bool:
        if kind is None or not issubclass(kind, MPI.Exception):
            return False
        self._peers.lose(self._peer, error)
        return True
