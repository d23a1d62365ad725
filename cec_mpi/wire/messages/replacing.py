"""Who takes the place of a machine that has no process: a spare, or one that is started."""

from __future__ import annotations

import logging
import pickle
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from cec_mpi.errors import MachineError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.roster.changes import Lost
from cec_mpi.roster.roster import Roster, State
from cec_mpi.terminal import say
from cec_mpi.wire.messages.peer import Peer
from cec_mpi.wire.messages.peers import Peers
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import Kind, Order

if TYPE_CHECKING:
    from cec_mpi.wire.messages.ranks import Ranks

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.5  # after a loss, before a process is started
_MOST_STARTS = 3  # of processes for one machine
_MOST_TOLD = 10  # reasons, of which the others are in the log alone


class Replacements:
    """Machines without a process, and processes that are about to become one of them.

    Parameters
    ----------
    peers : Peers
    allowed : bool
        The session goes on without lost machines; else nobody takes a place.
    ranks : Ranks or None
        Those of the launcher; they may be started when there are no spares.
    roster : Roster
        Of them.

    Attributes
    ----------
    openings : dict
        Of each store that is served: what a process is told that opens it.
    paused : bool
        Nobody takes a place now.
    """

    def __init__(self, peers: Peers, allowed: bool, ranks: Ranks | None, roster: Roster) -> None:
        self.openings: dict[int, tuple[Opening, Emulation | None]] = {}
        self.paused = False
        self._peers = peers
        self._allowed = allowed
        self._ranks = ranks
        self._roster = roster
        self._starts: Counter[int] = Counter()  # of processes, for each machine
        self._starts_soon = False
        self._lost_at = 0.0  # when, the last time
        self._told: set[str] = set()  # why processes could not join

    def joining(self) -> set[int]:
        """Machines that spares, or processes that are started for it, are about to become."""
        return self._roster.machines(State.STARTING, State.JOINING) | {*self._to_be_started()}

    def note_loss(self) -> None:
        """A process is gone, which the launcher has to deal with."""
        self._lost_at = time.monotonic()

    def go_on(self) -> None:
        """Places are taken again."""
        self.paused = False
        self.fill()

    def fill(self) -> None:
        """Have spares become machines that have no process."""
        if self._can_replace and (vacant := self._roster.vacant):
            for spare in self._peers.spares():
                is_spare = spare.process.state is State.SPARE  # one that is lost fills places, too
                machine = self._fitting(spare, vacant) if is_spare else 0
                if machine:
                    self._join(spare, machine)

    def hand_over(self, peer: Peer) -> None:
        """Have a spare become the machine of a process that was given up, if there is one."""
        if not self._can_replace:
            return
        machine = peer.process.machine
        for spare in self._peers.spares():
            if self._fitting(spare, [machine]):
                self._roster.hand_over(peer.rank)
                self._join(spare, machine)
                return

    def look_around(self) -> None:
        """Take what newcomers have said, and give places away; never waits."""
        self.fill()
        if self._starts_soon:
            self.start_processes(soon=True)
        for peer in self._peers.living():
            process = peer.process
            if process.is_joining:
                self._look_at(peer)
                if process.is_joining and time.monotonic() - process.since > peer.join_seconds:
                    self._exclude(peer, f"rank {peer.rank} does not open its shard")

    def start_processes(self, soon: bool = False) -> None:
        """Start a process for each machine that has none, where the session does so.

        Not before the launcher has dealt with the last loss: it can hang in the attempt. A start
        takes some tenths of a second, in which no answer is seen.

        Parameters
        ----------
        soon : bool
            If it is too early now, `look_around` does it when it is time.
        """
        self._starts_soon = soon
        if time.monotonic() - self._lost_at > _SETTLE_SECONDS:
            for machine in self._to_be_started():
                self._start(machine)

    def open_rest(self, peer: Peer) -> None:
        """Have a machine open the stores that it has missed, before it is one again."""
        self._roster.join(peer.rank, peer.process.machine)
        self._open_next(peer)

    def _fitting(self, peer: Peer, vacant: Iterable[int]) -> int:
        """The one of these machines that a process had best become; 0 where it can be none."""
        able = [n for n in vacant if self._has_room(peer, n)]
        return peer.choose(able) if able else 0

    def _has_room(self, peer: Peer, machine: int) -> bool:
        room = peer.process.room
        return all(
            opening.placement.counts[machine - 1] <= room.most(opening.manifest.shard_bytes)
            for opening, _ in self.openings.values()
            if machine <= opening.placement.machines
        )

    @property
    def _can_replace(self) -> bool:
        return self._allowed and bool(self.openings) and not self.paused

    def _to_be_started(self) -> list[int]:
        """Machines that get a process of their own."""
        if self._ranks is None or self._ranks.program is None or not self._can_replace:
            return []
        return [n for n in self._roster.vacant if self._starts[n] < _MOST_STARTS]

    def _start(self, machine: int) -> None:
        """Start a process that is to become a machine."""
        assert self._ranks is not None
        self._starts[machine] += 1
        if self._starts[machine] == _MOST_STARTS:
            log.error("machine %d is started for the last time", machine)
        try:
            comm = self._ranks.start(self._roster.next_rank)
        except MachineError as error:
            warnings.warn(str(error), stacklevel=2)
            self._ranks.program = None
            return
        self._peers.add(self._ranks.peer(self._roster.start(machine), comm))

    def _join(self, peer: Peer, machine: int) -> None:
        """Have a process open the shards of a machine."""
        log.info("rank %d is to become machine %d", peer.rank, machine)
        self._roster.join(peer.rank, machine)
        peer.stores_left = list(self.openings)
        self._open_next(peer)

    def _open_next(self, peer: Peer) -> None:
        store = peer.stores_left[0]
        opening, _ = self.openings[store]
        machine = peer.process.machine
        part = machine if machine <= opening.placement.machines else 0
        # Nothing is measured again, and faults on order were those of the lost process.
        inject = ",".join(w for w in opening.options.inject.split(",") if w.startswith("random"))
        options = replace(opening.options, measured=False, inject=inject)
        opening = replace(opening.for_one(peer.seat, part), options=options)
        self._peers.order(peer, Order(Kind.OPEN, store), pickle.dumps(opening))

    def _look_at(self, peer: Peer) -> None:
        with self._peers.watching(peer):
            if not peer.has_sent():
                return
            if peer.process.state is State.STARTING:
                assert self._ranks is not None
                self._ranks.hear_whereabouts(peer)
                machine = peer.process.machine
                self._roster.arrive(peer.rank)
                if self._can_replace:  # else it came too late: it is a spare
                    self._join(peer, machine)
                return
            opened = peer.object()
            if not isinstance(opened, Opened):  # as a report that nobody has waited for any more
                log.warning("rank %d says what it is not asked", peer.rank)
                return
            if opened.problem:
                self._tell(peer, opened.problem)
                self._peers.send_object(peer, MachineError(opened.problem))
                if not peer.is_lost:
                    self._exclude(peer, opened.problem)
                return
            store = peer.stores_left.pop(0)
            if store in self.openings:
                self._peers.send_object(peer, self.openings[store][1])
            else:
                self._peers.send_object(peer, MachineError("the store was closed meanwhile"))
            if peer.is_lost:
                return
            if peer.stores_left:
                self._open_next(peer)
            else:
                self._roster.joined(peer.rank)

    def _tell(self, peer: Peer, problem: str) -> None:
        """Say why a process cannot join; those of the job have told it themselves."""
        log.error("a process cannot join: %s", problem)
        if not peer.is_of_the_job and problem not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(problem)
            say(f"a machine cannot join: {problem}")

    def _exclude(self, peer: Peer, reason: str) -> None:
        """A process cannot become its machine: another is to."""
        self._peers.exclude(peer, reason, Lost)
        self.fill()
