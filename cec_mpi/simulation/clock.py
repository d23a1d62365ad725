"""A clock that jumps to what happens next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from cec_mpi.core.elastic.losses import RESOLUTION
from cec_mpi.errors import MachineError
from cec_mpi.runtime.processes.waiting import JumpingClock, never


class SimulatedClock(JumpingClock):
    """A clock on which sleeping takes no time, with what is to happen.

    Examples
    --------
    >>> clock = SimulatedClock()
    >>> clock.schedule(2.0, lambda: print("it happens"))
    >>> clock.jump(5.0)
    >>> clock.monotonic()
    2.0
    >>> for happen in clock.due():
    ...     happen()
    it happens
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._coming: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return self._now

    def sleep(self, seconds: float, /) -> None:
        """Let this number of seconds pass."""
        self._now += seconds

    def schedule(self, moment: float, happen: Callable[[], object]) -> None:
        """Have something happen at a moment."""
        heapq.heappush(self._coming, (moment, next(self._numbers), happen))

    def due(self) -> Iterator[Callable[[], object]]:
        """Yield what happens up to now, in order; each once."""
        while self._coming and self._coming[0][0] <= self._now:
            yield heapq.heappop(self._coming)[2]

    def jump(self, until: float) -> None:
        """See `JumpingClock.jump`.

        Raises
        ------
        MachineError
            Nothing will happen any more.
        """
        coming = self._coming[0][0] if self._coming else never()
        if coming <= self._now:
            return
        moment = min(coming, max(until, self._now + RESOLUTION))
        if moment == never():
            raise MachineError("the run waits for a machine that never answers (see --deadline)")
        self._now = moment
