"""How the master leaves: who hears is told, and who does not is ended."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from cec_mpi.processes.waiting import Patience
from cec_mpi.wire.messages.peer import Peer
from cec_mpi.wire.messages.peers import Peers
from cec_mpi.wire.orders import Kind, Order, Stop

log = logging.getLogger(__name__)

_HEAR_SECONDS = 2.0  # that the master waits for machines to say that they hear
_BYE_SECONDS = 5.0  # and for them to leave


class Parted(NamedTuple):
    """How processes have left.

    Attributes
    ----------
    all_have_left : bool
        Those of the job have: none is gone or stuck.
    out_of_reach : bool
        One is stuck on another node, and only the launcher can end it.
    """

    all_have_left: bool
    out_of_reach: bool


def part(
    peers: Peers, look: Callable[[], object], error: BaseException | None, lost_any: bool
) -> Parted:
    """Tell all to leave, and see that those of the job do.

    Parameters
    ----------
    peers : Peers
    look : callable
        Takes what has come from them.
    error : BaseException or None
        What the master leaves with.
    lost_any : bool
        A process of the job is gone or stuck.
    """
    try:
        hear = all_that_hear(peers, look)
        lost_any = lost_any or len(hear) < len(_of_the_job(peers))
        peers.help_along()  # who has come since the last step is told, too
        peers.are_leaving = True
        for peer in peers.living():
            if peer in hear or not peer.is_of_the_job:
                stop = Stop(error, lost_any and peer.is_of_the_job)
                peers.order(peer, Order(Kind.STOP), stop.packed())
        stuck = all_that_stay(peers, hear)
        ends = [ended(peer) for peer in stuck]
    finally:  # interrupted, too
        peers.close()
    return Parted(not (lost_any or stuck), not all(ends))


def all_that_hear(peers: Peers, look: Callable[[], object]) -> list[Peer]:
    """Processes of the job that answer, if need be after they were woken up.

    Parameters
    ----------
    peers : Peers
    look : callable
        Takes what has come from them.
    """
    hear: list[Peer] = []
    silent = _of_the_job(peers)
    for attempt in range(2):
        if attempt:
            _wake(silent)
        patience, due = Patience(), time.monotonic() + _HEAR_SECONDS
        while time.monotonic() < due and any(_is_busy(p) and not p.is_lost for p in silent):
            look()
            patience.pause()
        asked = [peer for peer in silent if not peer.is_lost and not _is_busy(peer)]
        for peer in asked:
            if not peer.pinged:
                peers.order(peer, Order(Kind.EXPLAIN))
                peer.pinged = True
        answered = peers.replies(asked, _HEAR_SECONDS)
        hear += [peer for peer in asked if peer.rank in answered]
        silent = [peer for peer in silent if not peer.is_lost and peer not in hear]
        if not silent:
            break
    return [peer for peer in hear if not peer.is_lost]


def all_that_stay(peers: Peers, told: list[Peer]) -> list[Peer]:
    """Processes of the job that live, and do not say that they leave as they were told."""
    gone = peers.replies(told, _BYE_SECONDS)
    return [peer for peer in _of_the_job(peers) if peer.rank not in gone]


def ended(peer: Peer) -> bool:
    """End a process of this job, if it is in reach: it would keep the launcher waiting."""
    if peer.host != socket.gethostname():
        return False
    log.error("rank %d does not answer: process %d is ended", peer.rank, peer.pid)
    with suppress(ProcessLookupError):
        os.kill(peer.pid, signal.SIGKILL)
    return True


def _of_the_job(peers: Peers) -> list[Peer]:
    return [peer for peer in peers.living() if peer.is_of_the_job]


def _is_busy(peer: Peer) -> bool:
    return peer.job is not None or peer.process.is_joining


def _wake(peers: list[Peer]) -> None:
    """Let processes go on that somebody has stopped."""
    for peer in peers:
        if peer.host == socket.gethostname():
            with suppress(ProcessLookupError):
                os.kill(peer.pid, signal.SIGCONT)
