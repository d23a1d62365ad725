"""All processes that serve a session, and how it shows which are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cec_mpi.processes.waiting import Patience
from cec_mpi.roster.changes import WARNED, Excluded, Gone, Left
from cec_mpi.roster.roster import Process, Roster
from cec_mpi.wire.messages.peer import GoneError, Group, Peer
from cec_mpi.wire.orders import Order

log = logging.getLogger(__name__)


class Peers:
    """All processes that serve a session, those that are gone too.

    Parameters
    ----------
    first : sequence of Peer
        Those that serve from the beginning.
    groups : sequence of Group
        That say which are gone.
    roster : Roster
        Of these processes.
    on_loss : callable
        Called with one that is gone.

    Attributes
    ----------
    all : dict of int to Peer
        By rank, ascending.
    are_leaving : bool
        That processes end is no loss any more.
    """

    def __init__(
        self,
        first: Sequence[Peer],
        groups: Sequence[Group],
        roster: Roster,
        on_loss: Callable[[Peer], None],
    ) -> None:
        self.all = {peer.rank: peer for peer in first}
        self._groups = groups
        self._roster = roster
        self._on_loss = on_loss
        self.are_leaving = False

    def add(self, peer: Peer) -> None:
        """A process has come."""
        self.all[peer.rank] = peer

    def living(self) -> list[Peer]:
        """Those that are not gone."""
        return [peer for peer in self.all.values() if not peer.is_lost]

    def serving_as(self, machine: int) -> Peer | None:
        """The process that is a machine now."""
        return self._at(self._roster.serving_as(machine))

    def spares(self) -> list[Peer]:
        """Processes that can become machines now."""
        return [self.all[process.rank] for process in self._roster.spares()]

    def that_can_open(self) -> list[Peer]:
        """Processes of the job that can open a store now."""
        return [peer for peer in self.living() if peer.is_of_the_job and peer.process.is_free]

    def warned(self) -> Iterator[Peer]:
        """Those that have said that they have to leave; who joins is heard when it has joined."""
        self.help_along()
        for peer in self.living():
            if not peer.process.is_joining:
                with self.watching(peer):
                    if peer.was_warned():
                        yield peer

    def order(self, peer: Peer, order: Order, content: bytes = b"") -> None:
        """Send an order that is not a job, and bytes that belong to it."""
        with self.watching(peer):
            peer.order(order, content)

    def exclude(self, peer: Peer, reason: str, change: type[Gone]) -> None:
        """Ask a process no more; who has not said that it leaves is told to."""
        self._roster.exclude(peer.rank, reason, change)
        if change is not Left:
            with self.watching(peer):
                peer.dismiss(reason, for_good=change is Excluded)

    def send_object(self, peer: Peer, content: object) -> None:
        """Send what a process waits for."""
        with self.watching(peer):
            peer.send_object(content)

    def help_along(self) -> None:
        """Let what was sent go its way, and hear who is new."""
        for group in self._groups:
            group.help_along()

    def replies(self, peers: Iterable[Peer], limit: float = float("inf")) -> dict[int, Any]:
        """An object of each of these; lost ones say nothing, nor those that are silent so long."""
        waited = {peer.rank: peer for peer in peers}
        replies: dict[int, Any] = {}
        patience, due = Patience(), time.monotonic() + limit
        while waited and time.monotonic() < due:
            for rank, peer in list(waited.items()):
                with self.watching(peer):
                    if peer.has_sent():
                        replies[rank] = peer.object()
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
        if not self.are_leaving:
            for group in self._groups:
                for peer, how in group.gone():
                    self.lose(peer, how)

    def watching(self, peer: Peer) -> _Watching:
        """A `GoneError` inside the ``with`` means that this process is gone."""
        return _Watching(self, peer)

    def lose(self, peer: Peer, error: object) -> None:
        """A process is gone."""
        if peer.is_lost:
            return
        if peer.job is not None:
            peer.keep_unfinished(peer.job)
        if peer.has_left and peer.job is None:
            self._roster.exclude(peer.rank, WARNED, Left)
        else:
            log.error("rank %d on %s is lost: %s", peer.rank, peer.host, error)
        self._roster.lose(peer.rank, f"process {peer.pid} on {peer.host} is gone")
        if not peer.is_of_the_job:  # there may be any number of them
            self._roster.forget(peer.rank)
            del self.all[peer.rank]
        self._on_loss(peer)

    def close(self) -> None:
        """End all connections."""
        for group in self._groups:
            group.close()

    def _at(self, process: Process | None) -> Peer | None:
        return None if process is None else self.all[process.rank]


class _Watching:
    __slots__ = ("_peer", "_peers")

    def __init__(self, peers: Peers, peer: Peer) -> None:
        self._peers, self._peer = peers, peer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if kind is None or not issubclass(kind, GoneError):
            return False
        self._peers.lose(self._peer, error)
        return True
