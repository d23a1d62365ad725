"""Who takes the place of a machine that has no process: a spare, or one that is started."""

from __future__ import annotations

import logging
import pickle
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from cec_mpi.errors import MachineError
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import Opened, Opening
from cec_mpi.runtime.jobs import OBJECT, OPEN, Event, Joined, Lost
from cec_mpi.runtime.peers import Peer, Peers
from cec_mpi.runtime.spawning import Greeting, start_process

__all__ = ["Replacements"]

log = logging.getLogger(__name__)

_JOIN_SECONDS = 10.0  # that a spare has to open shards
_SETTLE_SECONDS = 0.5  # after a loss, before a process is started
_MOST_STARTS = 3  # of processes for one machine


class Replacements:
    """Machines without a process, and processes that are about to become one of them.

    Parameters
    ----------
    peers : Peers
    allowed : bool
        The session goes on without lost machines; else nobody takes a place.
    spawns : bool
        Start processes when there are no spares.
    tell : callable
        Called with each event.

    Attributes
    ----------
    openings : dict
        Of each store that is served: what a process is told that opens it.
    paused : bool
        Nobody takes a place now.
    """

    def __init__(
        self, peers: Peers, allowed: bool, spawns: bool, tell: Callable[[Event], None]
    ) -> None:
        self.openings: dict[int, tuple[Opening, Emulation | None]] = {}
        self.paused = False
        self._peers = peers
        self._allowed = allowed
        self._spawns = spawns
        self._tell = tell
        self._vacant: list[int] = []  # machines without a process
        self._starts: Counter[int] = Counter()  # of processes, for each machine
        self._starts_soon = False
        self._lost_at = 0.0  # when, the last time

    def joining(self) -> list[int]:
        """Machines that spares, or processes that are started for it, are about to become."""
        joining = [peer.joining for peer in self._peers.living() if peer.joining]
        return joining + self._to_be_started()

    def note_loss(self) -> None:
        """A process is gone, which the launcher has to deal with."""
        self._lost_at = time.monotonic()

    def without(self, machine: int, reason: str) -> None:
        """A machine is lost, and has no process: one takes its place, if there is one."""
        if machine:
            self._tell(Lost(machine, reason))
            self.vacate(machine)

    def vacate(self, machine: int) -> None:
        """A machine has no process: one takes its place, now or later."""
        self._vacant.append(machine)
        self.fill()

    def fill(self) -> None:
        """Have spares become machines that have no process."""
        while self._vacant and (spare := self._spare()) is not None:
            self._join(spare, self._vacant.pop(0))

    def give_to_spare(self, machine: int) -> bool:
        """Have a spare become this machine, if there is one."""
        spare = self._spare()
        if spare is not None:
            self._join(spare, machine)
        return spare is not None

    def look_around(self) -> None:
        """Take what newcomers have said, and give places away; never waits."""
        self.fill()
        if self._starts_soon:
            self.start_processes(soon=True)
        for peer in self._peers.living():
            if peer.joining and peer.job is None:
                self._look_at(peer)
                if peer.joining and time.monotonic() - peer.asked > _JOIN_SECONDS:
                    self._give_up(peer, f"rank {peer.rank} does not open its shard")

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
        peer.joining, peer.machine = peer.machine, 0
        peer.asked = time.monotonic()
        self._open_next(peer)

    def _spare(self) -> Peer | None:
        """A process that can become another machine now."""
        return self._peers.idle_spare() if self._can_replace else None

    @property
    def _can_replace(self) -> bool:
        return self._allowed and bool(self.openings) and not self.paused

    def _to_be_started(self) -> list[int]:
        """Machines that get a process of their own."""
        if not (self._spawns and self._can_replace):
            return []
        return [n for n in self._vacant if self._starts[n] < _MOST_STARTS]

    def _start(self, machine: int) -> None:
        """Start a process that is to become a machine."""
        self._starts[machine] += 1
        if self._starts[machine] == _MOST_STARTS:
            log.error("machine %d is started for the last time", machine)
        rank = len(self._peers.all) + 1
        try:
            comm = start_process(Greeting(rank, self._peers.address))
        except MachineError as error:
            warnings.warn(str(error), stacklevel=2)
            self._spawns = False
            return
        self._vacant.remove(machine)
        peer = Peer(rank, comm, 0, starting=True, joining=machine, asked=time.monotonic())
        self._peers.all.append(peer)

    def _join(self, peer: Peer, machine: int) -> None:
        """Have a process open the shards of a machine."""
        log.info("rank %d is to become machine %d", peer.rank, machine)
        peer.joining, peer.asked = machine, time.monotonic()
        peer.stores_left = list(self.openings)
        self._open_next(peer)

    def _open_next(self, peer: Peer) -> None:
        store = peer.stores_left[0]
        opening, emulation = self.openings[store]
        machines = [0] * len(self._peers.all)
        if peer.joining in opening.machines or peer.joining <= opening.manifest.code.machines:
            machines[peer.rank - 1] = peer.joining
        # Nothing is measured again, and faults on order were those of the lost process.
        base = None if emulation is None else emulation.base
        inject = ",".join(w for w in opening.options.inject.split(",") if w.startswith("random"))
        options = replace(opening.options, emulate_base=base, inject=inject)
        opening = replace(opening.for_machines(machines), options=options)
        self._peers.order(peer, OPEN, store, content=pickle.dumps(opening))

    def _look_at(self, peer: Peer) -> None:
        with self._peers.watching(peer):
            if not peer.has_sent(OBJECT):
                return
            if peer.starting:
                self._peers.hear_whereabouts(peer)
                machine, peer.joining = peer.joining, 0
                if self._can_replace:
                    self._join(peer, machine)
                else:  # it came too late: it is a spare
                    self._vacant.append(machine)
                return
            opened: Opened = peer.object(OBJECT)
            if opened.problem:
                log.error("a spare cannot join: %s", opened.problem)
                self._peers.send_object(peer, MachineError(opened.problem))
                self._give_up(peer, opened.problem)
                return
            store = peer.stores_left.pop(0)
            if store in self.openings:
                self._peers.send_object(peer, self.openings[store][1])
            else:
                self._peers.send_object(peer, MachineError("the store was closed meanwhile"))
            if peer.stores_left:
                self._open_next(peer)
            else:
                peer.machine, peer.joining = peer.joining, 0
                self._tell(Joined(peer.machine, peer.rank))

    def _give_up(self, peer: Peer, reason: str) -> None:
        """Leave out a process that cannot become its machine."""
        peer.left_out, machine, peer.joining = True, peer.joining, 0
        self.without(machine, reason)
