"""What people are told while a session waits for machines."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cec_mpi.machine.emulation import Emulation
from cec_mpi.roster.roster import Roster, State
from cec_mpi.terminal import say
from cec_mpi.text import plural
from cec_mpi.wire.opening import Opening

_SOON = 0.5  # seconds in which a shortage may be over, and nobody has to hear of it
_LOOK_SECONDS = 0.05  # between two looks


class Shortage:
    """Says how many machines are missing, whenever that has changed.

    Parameters
    ----------
    roster : Roster
        Of the processes that are machines.
    spare : int
        Machines that a step has to be able to miss, for answers to be compared.
    """

    def __init__(self, roster: Roster, spare: int) -> None:
        self._roster = roster
        self._spare = spare
        self._since: float | None = None
        self._said = 0  # shards that were missing
        self._next_look = 0.0

    def look(self, openings: Mapping[int, tuple[Opening, Emulation | None]]) -> None:
        """Say what is missing for the store that needs most, if that is news."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        here = sorted(self._roster.machines(State.IDLE, State.COMPUTING, State.LATE))
        missing, shards = 0, False
        for opening, _ in openings.values():
            placement = opening.placement
            able = [n for n in here if n <= placement.machines]
            largest = sorted((placement.counts[n - 1] for n in able), reverse=True)
            spare = max(sum(largest[: self._spare]), self._spare)
            needed = opening.manifest.code.recovery + spare
            missing = max(missing, needed - placement.count(able))
            shards = shards or not placement.is_plain
        if not missing:
            self._since, self._said = None, 0
            return
        self._since = self._since or now
        if missing == self._said or now - self._since < _SOON:
            return
        self._said = missing
        more = plural(missing, "more shard" if shards else "more machine")
        say(f"waiting for {more} ({plural(len(here), 'machine')} here)")
