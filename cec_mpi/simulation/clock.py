"""A simulated clock that jumps to the next scheduled action."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count

from cec_mpi.core.elastic.states import WAIT_MARGIN
from cec_mpi.errors import MachineError
from cec_mpi.runtime.processes.waiting import JumpingClock


class SimulatedClock(JumpingClock):
    """A clock with scheduled actions, whose sleeps take no real time.

    Examples
    --------
    >>> clock = SimulatedClock()
    >>> clock.schedule(2.0, lambda: print("done"))
    >>> clock.jump(5.0)
    >>> clock.monotonic()
    2.0
    >>> for action in clock.pop_due_actions():
    ...     action()
    done
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._scheduled: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def monotonic(self) -> float:
        """Return the simulated seconds since the start."""
        return self._now

    def sleep(self, seconds: float, /) -> None:
        """Advance the clock by this many seconds."""
        self._now += seconds

    def schedule(self, moment: float, action: Callable[[], object]) -> None:
        """Schedule an action for this moment."""
        heapq.heappush(self._scheduled, (moment, next(self._order), action))

    def pop_due_actions(self) -> Iterator[Callable[[], object]]:
        """Yield and remove the actions that are due, in order."""
        while self._scheduled and self._scheduled[0][0] <= self._now:
            yield heapq.heappop(self._scheduled)[2]

    def jump(self, until: float) -> None:
        """Advance to the next action, or to this time if no action is earlier.

        The clock advances by at least `WAIT_MARGIN`, unless an action is earlier.

        Raises
        ------
        MachineError
            No action is scheduled, and `until` is infinite.
        """
        next_moment = self._scheduled[0][0] if self._scheduled else math.inf
        if next_moment <= self._now:
            return
        moment = min(next_moment, max(until, self._now + WAIT_MARGIN))
        if moment == math.inf:
            raise MachineError("the run waits for a machine that never answers (see --deadline)")
        self._now = moment
