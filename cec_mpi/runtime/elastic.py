"""Which tick the next step belongs to, and waiting for one with enough machines."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cec_mpi.availability import Availability
from cec_mpi.errors import InfeasibleError

__all__ = ["Moment", "Schedule"]

_MOST_TICKS = 1_000_000  # that a step waits for, where ticks cost no time


@dataclass(frozen=True)
class Moment:
    """When a step is made, and with whom."""

    tick: int
    waited: int
    available: tuple[int, ...]


class Schedule:
    """Gives each step its tick and its available machines.

    Parameters
    ----------
    availability : Availability
    present : tuple of int
        Machines that take part at all; the others are preempted for good.
    needed : int
        Machines that a step needs.
    tick_seconds : float, optional
        Wall-clock length of a tick; by default each step is a tick.
    wait : bool
        Wait for the next tick when too few machines are available.
    """

    def __init__(
        self,
        availability: Availability,
        present: tuple[int, ...],
        needed: int,
        *,
        tick_seconds: float | None = None,
        wait: bool = False,
    ) -> None:
        self._availability = availability.among(present)
        self._needed = needed
        self._tick_seconds = tick_seconds
        self._wait = wait
        self._next = 0
        self._start: float | None = None

    def next(self) -> Moment:
        """The moment of the next step; sleeps through ticks that have to be waited for.

        Raises
        ------
        InfeasibleError
            Too few machines are available, and none are waited for or will ever come.
        """
        tick, waited = self._current(), 0
        while len(available := self._availability.at(tick)) < self._needed:
            if not self._wait or self._availability.most_from(tick) < self._needed:
                raise InfeasibleError(self._complaint(tick, available))
            if waited >= _MOST_TICKS:
                raise InfeasibleError(f"{self._complaint(tick, available)}; waited {waited} ticks")
            tick += 1
            waited += 1
            self._sleep_until(tick)
        self._next = tick + 1
        return Moment(tick, waited, available)

    def _current(self) -> int:
        if self._tick_seconds is None:
            return self._next
        now = time.monotonic()
        if self._start is None:
            self._start = now
        return int((now - self._start) / self._tick_seconds)

    def _sleep_until(self, tick: int) -> None:
        if self._tick_seconds is not None and self._start is not None:
            due = self._start + tick * self._tick_seconds
            time.sleep(max(0.0, due - time.monotonic()))

    def _complaint(self, tick: int, available: tuple[int, ...]) -> str:
        found = ", ".join(map(str, available)) if available else "none"
        hint = "" if self._wait else " (--wait waits for the next tick)"
        return (
            f"{len(available)} machines are available at tick {tick} ({found}): "
            f"a step needs {self._needed}{hint}"
        )
