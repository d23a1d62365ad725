"""The schedule of steps and ticks, and the wait for a tick with enough machines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cec_mpi.core.elastic.states import WAIT_MARGIN
from cec_mpi.core.plan.placement import CodedPlacement
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.availability.models import (
    Availability,
    FunctionAvailability,
    ListedAvailability,
    is_constant_after,
    polling_interval,
    validate_machines,
)
from cec_mpi.runtime.master.step import Step
from cec_mpi.runtime.processes.waiting import Clock, sleep_at_most
from cec_mpi.runtime.records.step import AbsenceReason, AbsenceTable
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.times import AVAILABILITY_POLL_SECONDS, SHUTDOWN_NOTICE_SECONDS
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.runtime.roster import ShortageCallback

_NO_QUERY = (-1, ())
_MAX_TICKS = 1_000_000  # before a waiting step fails


class Schedule:
    """Determines the number, the tick and the available machines of each step.

    Parameters
    ----------
    availability : Availability
    participants : tuple of int
        Machines that take part in the run; others are never available.
    roster : Roster, optional
        Tracks which of them are reachable; by default all are.
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
    on_shortage : callable
        Called while a step waits for machines: see `Recorder.record_wait`.
    """

    def __init__(
        self,
        availability: Availability,
        participants: tuple[int, ...],
        roster: Roster | None = None,
        *,
        tick_seconds: float | None = None,
        wait: bool = False,
        step: int = 0,
        tick: int = 0,
        clock: Clock = time,
    ) -> None:
        self._clock = clock
        self._initial_availability = self._availability = availability.restrict_to(participants)
        self._participants = frozenset(participants)
        self.roster = roster
        self._tick_seconds = tick_seconds
        self.waits = wait
        self._step = step
        self._tick = tick
        self._start: float | None = None  # of tick 0, by the clock
        self._absences: dict[int, tuple[AbsenceReason, int]] = {}  # of the last step
        self._last_query: tuple[int, tuple[int, ...]] = _NO_QUERY  # tick and its listed machines
        self.check_cancelled: Callable[[], None] = lambda: None
        self.on_shortage: ShortageCallback = lambda missing, available, reasons: None

    @property
    def available(self) -> tuple[int, ...]:
        """The machines that are available now."""
        before_start = self._tick_seconds is not None and self._start is None
        return self._select_reachable(self._query(0 if before_start else self._current_tick()))

    @property
    def static_available(self) -> tuple[int, ...] | None:
        """The same as `available`, but None if the availability is a function or a command."""
        return None if isinstance(self._availability, FunctionAvailability) else self.available

    def states(self, machine_count: int) -> dict[int, str]:
        """Return "available" or the reason for absence for each participant in 1..N.

        If the availability is a function, its last result is used.
        """
        static = self.static_available
        available = self._select_reachable(self._last_query[1]) if static is None else static
        listed = self.last_listed
        return {
            n: "available" if n in available else self._absence_reason(n, n in listed)
            for n in sorted(self._participants)
            if n <= machine_count
        }

    def set_available(self, machines: Iterable[int] | None) -> None:
        """Make these machines available from now on; None for the initial availability.

        Raises
        ------
        InputError
            A machine does not take part.
        """
        self._last_query = _NO_QUERY
        if machines is None:
            self._availability = self._initial_availability
            return
        chosen = validate_machines("available", machines, self._participants)
        self._availability = ListedAvailability([chosen])

    def listed_machines(self, tick: int) -> set[int]:
        """Return the machines that the availability lists for a tick, even unreachable ones."""
        return set(self._query(tick))

    @property
    def last_listed(self) -> frozenset[int]:
        """The machines that the availability last listed, even unreachable ones."""
        return frozenset(self._last_query[1])

    def next_change(self) -> float:
        """Return the time of the next tick; infinity if ticks have no duration or none began."""
        if self._tick_seconds is None or self._start is None:
            return math.inf
        return self._start + (self._current_tick() + 1) * self._tick_seconds + WAIT_MARGIN

    def next_step(
        self,
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        extra_answers: int = 0,
        caller_waits: bool = False,
    ) -> Step:
        """Wait for a tick with enough machines, and return the next step without a plan.

        Its number is used again unless `commit` is called.

        Parameters
        ----------
        recovery : int
            L, the number of answers from which each row is decoded.
        placement : CodedPlacement or ReplicaPlacement
            Determines which sets of machines suffice.
        extra_answers : int
            Number of answers that each row needs beyond L.
        caller_waits : bool
            Whether the caller waits for further machines to join.

        Raises
        ------
        InfeasibleError
            Too few machines are available, and the schedule does not wait, or no later
            tick has enough.
        """
        begin = self._clock.monotonic()
        self.check_cancelled()
        tick, waited_ticks = self._current_tick(), 0
        requirement = recovery, placement, extra_answers
        while True:
            available = self._find_available(tick, placement.machines)
            if placement.tolerated_losses(recovery, available) >= extra_answers:
                break
            reachable = len(self._participants - self._unreachable)
            max_available = min(self._availability.max_available(tick), reachable)
            is_possible = placement.max_tolerated_losses(recovery, max_available) >= extra_answers
            if not self.waits or not is_possible or is_constant_after(self._availability, tick):
                if not caller_waits:
                    self._await_shutdown_notice()
                    self._last_query = _NO_QUERY  # in case the caller tries the step again
                raise InfeasibleError(self._shortage_message(tick, available, *requirement))
            if waited_ticks >= _MAX_TICKS:
                message = self._shortage_message(tick, available, *requirement)
                raise InfeasibleError(f"{message}; waited {plural(waited_ticks, 'tick')}")
            self._report_shortage(available, *requirement)
            tick += 1
            waited_ticks += 1
            self._sleep_until(tick)
            self.check_cancelled()
        seconds = self._clock.monotonic() - begin if waited_ticks else 0.0
        return Step(self._step, tick, waited_ticks, available, self._clock, seconds)

    def _report_shortage(
        self,
        available: tuple[int, ...],
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        extra_answers: int,
    ) -> None:
        """Report the number of missing machines, and the reasons for absences."""
        missing = placement.count_missing(recovery + extra_answers, available)
        absent = sorted(self._participants.difference(available))
        reasons = {n: self._absence_reason(n, False) for n in absent if n <= placement.machines}
        self.on_shortage(max(1, missing), available, reasons)

    def commit(self, step: Step, machine_count: int) -> None:
        """Advance past a step that has begun; `machine_count` is N."""
        self._step, self._tick = step.number + 1, step.tick + 1
        step.absent_since = self._record_absences(step, machine_count)

    def _record_absences(self, step: Step, machine_count: int) -> AbsenceTable:
        """Record the absent machines of a step, and return the first step of each absence."""
        absent = self._participants.difference(step.available)
        listed = self.listed_machines(step.tick) if absent else set()
        earlier, self._absences = self._absences, {}
        table: AbsenceTable = {}
        for n in sorted(absent):
            reason = self._absence_reason(n, n in listed)
            since = earlier[n][1] if n in earlier else step.number
            self._absences[n] = reason, since
            if n <= machine_count:
                table.setdefault(reason, {})[n] = since
        return table

    def _absence_reason(self, machine: int, is_listed: bool) -> AbsenceReason:
        """Return why a machine is not available."""
        if self.roster is not None and machine not in self.roster.available:
            change = self.roster.unavailable.get(machine)
            return "not joined" if change is None else change.kind
        return "late" if is_listed else "preempted"

    def _find_available(self, tick: int, machine_count: int) -> tuple[int, ...]:
        available = self._select_reachable(self._query(tick))
        if available and available[-1] > machine_count:
            return tuple(n for n in available if n <= machine_count)
        return available

    def _query(self, tick: int) -> tuple[int, ...]:
        """Return the machines that the availability lists for a tick."""
        cached_tick, machines = self._last_query
        if cached_tick != tick or polling_interval(self._availability):  # may change within a tick
            machines = self._availability.at(tick)
            self._last_query = tick, machines
        return machines

    def _select_reachable(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        unreachable = self._unreachable
        return tuple(n for n in machines if n not in unreachable) if unreachable else machines

    @property
    def _unreachable(self) -> frozenset[int]:
        """Participants that cannot get requests."""
        return frozenset() if self.roster is None else self._participants - self.roster.available

    def _current_tick(self) -> int:
        if self._tick_seconds is None:
            return self._tick
        now = self._clock.monotonic()
        if self._start is None:
            self._start = now
        return int((now - self._start) / self._tick_seconds)

    def _sleep_until(self, tick: int) -> None:
        """Sleep until a tick begins or, if ticks have no duration, until the next poll."""
        due = self._clock.monotonic() + polling_interval(self._availability)
        if self._tick_seconds is not None and self._start is not None:
            due = self._start + tick * self._tick_seconds
        while (remaining := due - self._clock.monotonic()) > 0:
            self.check_cancelled()
            sleep_at_most(self._clock, remaining, AVAILABILITY_POLL_SECONDS)

    def _await_shutdown_notice(self) -> None:
        """Call `check_cancelled` for a while if machines have left.

        A batch system that ends the job may have notified their processes before this one.
        """
        due = self._clock.monotonic() + SHUTDOWN_NOTICE_SECONDS
        while self._unreachable and self._clock.monotonic() < due:
            self.check_cancelled()
            self._clock.sleep(AVAILABILITY_POLL_SECONDS)

    def _shortage_message(
        self,
        tick: int,
        available: tuple[int, ...],
        recovery: int,
        placement: CodedPlacement | ReplicaPlacement,
        extra_answers: int,
    ) -> str:
        numbers = ", ".join(map(str, available)) or "none"
        unreachable = ", ".join(map(str, sorted(self._unreachable)))
        absent = f"; not reachable: {unreachable}" if unreachable else ""
        max_available = self._availability.max_available(tick)
        can_wait = placement.max_tolerated_losses(recovery, max_available) >= extra_answers
        hint = ""
        if can_wait and not self.waits:
            hint = " (--wait, or wait=True in Python, waits for more machines)"
        needed = placement.describe_need(recovery + extra_answers, available)
        return (
            f"{plural(len(available), 'machine', 'is', 'are')} available at tick {tick} "
            f"({numbers}): {needed}{absent}{hint}"
        )
