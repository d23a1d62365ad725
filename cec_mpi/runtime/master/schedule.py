"""The schedule of steps and ticks, which waits for enough machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cec_mpi.core.elastic.losses import RESOLUTION
from cec_mpi.core.plan.coded import CodedPlacement
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.availability.models import (
    Availability,
    FunctionAvailability,
    ListedAvailability,
    is_settled,
    seconds_between,
    validate_machines,
)
from cec_mpi.runtime.master.step import Step
from cec_mpi.runtime.processes.waiting import Clock, no_deadline, sleep_at_most
from cec_mpi.runtime.records.step import AbsenceReason, AbsenceTable
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.times import AVAILABILITY_POLL_SECONDS, SHUTDOWN_NOTICE_SECONDS
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.runtime.roster import ShortageCallback

_NO_ANSWER = (-1, ())
_MAX_TICKS = 1_000_000  # for which a step waits, if ticks take no time


class Schedule:
    """Gives each step its number, its tick and its available machines.

    Parameters
    ----------
    availability : Availability
    present : tuple of int
        Machines that take part; the others are never available.
    roster : Roster, optional
        Says which of them can be asked; by default all.
    tick_seconds : float, optional
        Length of a tick; by default each step is a tick.
    wait : bool
        Whether to wait for the next tick if too few machines are available.
    step, tick : int
        Number and tick of the first step.
    clock : Clock

    Attributes
    ----------
    roster : Roster or None
    waits : bool
        Whether it waits for the next tick if too few machines are available.
    check_cancelled : callable
        Called before each step and while waiting; an exception ends the run.
    """

    def __init__(
        self,
        availability: Availability,
        present: tuple[int, ...],
        roster: Roster | None = None,
        *,
        tick_seconds: float | None = None,
        wait: bool = False,
        step: int = 0,
        tick: int = 0,
        clock: Clock = time,
    ) -> None:
        self._clock = clock
        self._given = self._availability = availability.restrict_to(present)
        self._present = frozenset(present)
        self.roster = roster
        self._tick_seconds = tick_seconds
        self.waits = wait
        self._step = step
        self._tick = tick
        self._start: float | None = None
        self._away: dict[int, tuple[AbsenceReason, int]] = {}  # of the last step
        # The tick for which the availability was asked last, and its answer.
        self._answer: tuple[int, tuple[int, ...]] = _NO_ANSWER
        self.check_cancelled: Callable[[], None] = lambda: None
        self.on_shortage: ShortageCallback = lambda missing, available, away: None

    @property
    def available(self) -> tuple[int, ...]:
        """The machines that are available to the next step, as far as is known."""
        waits = self._tick_seconds is not None and self._start is None  # for the first step
        return self._without_lost(self._query(0 if waits else self._current()))

    @property
    def static_available(self) -> tuple[int, ...] | None:
        """As `available`; None if the availability is a function or a command."""
        return None if isinstance(self._availability, FunctionAvailability) else self.available

    def states(self, machines: int) -> dict[int, str]:
        """Return "available", or why it is away, for each of a store's machines that takes part.

        A function that gives the availability is not called: its last answer counts.
        """
        static = self.static_available
        available = self._without_lost(self._answer[1]) if static is None else static
        listed = self.listed_last
        return {
            n: "available" if n in available else self._absence_reason(n, n in listed)
            for n in sorted(self._present)
            if n <= machines
        }

    def choose(self, machines: Iterable[int] | None) -> None:
        """Make these machines available from now on; None for the initial availability.

        Raises
        ------
        InputError
            A machine does not take part.
        """
        self._answer = _NO_ANSWER
        if machines is None:
            self._availability = self._given
            return
        chosen = validate_machines("available", machines, self._present)
        self._availability = ListedAvailability([chosen])

    def listed(self, step: Step) -> set[int]:
        """Return the machines that are available in a step, including those that have left."""
        return self.listed_at(step.tick)

    def listed_at(self, tick: int) -> set[int]:
        """Return the machines that are available at a tick, including those that have left."""
        return set(self._query(tick))

    @property
    def listed_last(self) -> frozenset[int]:
        """The machines that the availability has listed last, including those that have left."""
        return frozenset(self._answer[1])

    def next_change(self) -> float:
        """Return when the next tick begins, in seconds of the clock, if ticks have a duration."""
        if self._tick_seconds is None or self._start is None:
            return no_deadline()
        return self._start + (self._current() + 1) * self._tick_seconds + RESOLUTION

    def next(
        self,
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        spare: int = 0,
        may_join: bool = False,
    ) -> Step:
        """Return the next step, not planned yet; sleeps until a tick with enough machines.

        It stays the next step until `commit` is called.

        Parameters
        ----------
        recovery : int
            Number of machines that the step needs, L.
        placement : CodedPlacement or ReplicaPlacement
            Which machines are enough.
        spare : int
            Number of arbitrary machines that the step must tolerate losing.
        may_join : bool
            Whether the caller waits for machines that join if these are too few.

        Raises
        ------
        InfeasibleError
            Too few machines are available, and the schedule does not wait, or no later
            tick has enough.
        """
        machines, begin = placement.machines, self._clock.monotonic()
        self.check_cancelled()
        tick, waited = self._current(), 0
        needed = recovery, placement, spare
        while placement.tolerated_losses(recovery, available := self._at(tick, machines)) < spare:
            most = min(self._availability.max_available(tick), len(self._present - self._gone))
            is_possible = placement.max_tolerated_losses(recovery, most) >= spare
            if not self.waits or not is_possible or is_settled(self._availability, tick):
                if not may_join:
                    self._await_shutdown_notice()
                    self._answer = _NO_ANSWER  # the caller may try the same step again
                raise InfeasibleError(self._shortage_message(tick, available, *needed))
            if waited >= _MAX_TICKS:
                message = self._shortage_message(tick, available, *needed)
                raise InfeasibleError(f"{message}; waited {plural(waited, 'tick')}")
            self._report_shortage(available, *needed)
            tick += 1
            waited += 1
            self._sleep_until(tick)
            self.check_cancelled()
        waited_seconds = self._clock.monotonic() - begin if waited else 0.0
        return Step(self._step, tick, waited, available, self._clock, waited_seconds)

    def _report_shortage(
        self,
        available: tuple[int, ...],
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        spare: int,
    ) -> None:
        """Report what the next step waits for, and why machines are away."""
        missing = placement.count_missing(recovery + spare, available)
        others = sorted(self._present.difference(available))
        away = {n: self._absence_reason(n, False) for n in others if n <= placement.machines}
        self.on_shortage(max(1, missing), available, away)

    def commit(self, step: Step, machines: int) -> None:
        """Note that a step of a store with this number of machines has begun."""
        self._step, self._tick = step.number + 1, step.tick + 1
        step.away = self._absent_machines(step, machines)

    def _absent_machines(self, step: Step, machines: int) -> AbsenceTable:
        """Return the unavailable machines by reason, with the step since which each is away."""
        missing = self._present.difference(step.available)
        listed = self.listed(step) if missing else set()
        before, self._away = self._away, {}
        found: AbsenceTable = {}
        for n in sorted(missing):
            why = self._absence_reason(n, n in listed)
            since = before[n][1] if n in before else step.number
            self._away[n] = why, since
            if n <= machines:
                found.setdefault(why, {})[n] = since
        return found

    def _absence_reason(self, machine: int, is_listed: bool) -> AbsenceReason:
        """Return why a machine is not available."""
        if self.roster is not None and machine not in self.roster.available:
            change = self.roster.unavailable.get(machine)
            return "not joined" if change is None else change.record_word
        return "late" if is_listed else "preempted"

    def _at(self, tick: int, machines: int) -> tuple[int, ...]:
        available = self._without_lost(self._query(tick))
        if available and available[-1] > machines:
            return tuple(n for n in available if n <= machines)
        return available

    def _query(self, tick: int) -> tuple[int, ...]:
        """Return the machines that are listed at a tick; a function is called once a tick."""
        cached_tick, machines = self._answer
        if cached_tick != tick or seconds_between(self._availability):  # which change within a tick
            machines = self._availability.at(tick)
            self._answer = tick, machines
        return machines

    def _without_lost(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        gone = self._gone
        return tuple(n for n in machines if n not in gone) if gone else machines

    @property
    def _gone(self) -> frozenset[int]:
        """Machines that take part and cannot be asked."""
        return frozenset() if self.roster is None else self._present - self.roster.available

    def _current(self) -> int:
        if self._tick_seconds is None:
            return self._tick
        now = self._clock.monotonic()
        if self._start is None:
            self._start = now
        return int((now - self._start) / self._tick_seconds)

    def _sleep_until(self, tick: int) -> None:
        """Sleep until a tick begins; if ticks are steps, until it can have other machines."""
        due = self._clock.monotonic() + seconds_between(self._availability)
        if self._tick_seconds is not None and self._start is not None:
            due = self._start + tick * self._tick_seconds
        while (left := due - self._clock.monotonic()) > 0:
            self.check_cancelled()
            sleep_at_most(self._clock, left, AVAILABILITY_POLL_SECONDS)

    def _await_shutdown_notice(self) -> None:
        """Let `check_cancelled` end the run if machines have left because the whole job must end.

        A batch system warns one process after the other, and may warn this one last.
        """
        due = self._clock.monotonic() + SHUTDOWN_NOTICE_SECONDS
        while self._gone and self._clock.monotonic() < due:
            self.check_cancelled()
            self._clock.sleep(AVAILABILITY_POLL_SECONDS)

    def _shortage_message(
        self,
        tick: int,
        available: tuple[int, ...],
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        spare: int,
    ) -> str:
        found = ", ".join(map(str, available)) if available else "none"
        gone = ", ".join(map(str, sorted(self._gone)))
        left = f"; unavailable: {gone}" if gone else ""
        most = self._availability.max_available(tick)
        can_wait = not self.waits and placement.max_tolerated_losses(recovery, most) >= spare
        hint = " (--wait, or wait=True in Python, waits for more machines)" if can_wait else ""
        needed = placement.describe_need(recovery + spare, available)
        return (
            f"{plural(len(available), 'machine', 'is', 'are')} available at tick {tick} ({found}): "
            f"{needed}{left}{hint}"
        )
