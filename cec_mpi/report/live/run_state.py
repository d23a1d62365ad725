"""The current state of a run, from its records."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from cec_mpi.report.live.descriptions import describe_host, describe_machine_event
from cec_mpi.runtime.records.events import Event, kind_and_machine
from cec_mpi.runtime.records.reading import Line
from cec_mpi.runtime.records.step import (
    Header,
    Progress,
    StepRecord,
    Unfinished,
    Waiting,
    parse_timestamp,
)

_MAX_RECENT = 64  # steps for medians and the rate
_MIN_SLOW_SECONDS = 2.0  # after longer steps, the time since the last step is shown


class RunState:
    """The state of a run, from its header and its steps.

    Adding a step is cheap, because statistics are computed on access.

    Parameters
    ----------
    header : mapping
        First line of the records.

    Attributes
    ----------
    header : mapping
    completed_steps : int
        Number of steps since the header.
    last_step : StepRecord or None
    last_event : tuple of (int, str) or None
        Step and description of the last event.
    last_events : dict of int to (int, str)
        Step and description of the last event of each machine.
    is_over : bool
        Whether the run has ended.
    seconds_since_step : float
        Seconds since the last step, or since the start of the run.
    is_slow : bool
        Whether a step took more than 2 seconds.
    progress : dict of str to float
        Numbers that the task reported.
    shortage : Waiting or None
        The wait of the next step for machines; None if enough machines are available.
    unfinished_events : list of Event
        Events of a last step that did not end.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.last_event: tuple[int, str] | None = None
        self.last_events: dict[int, tuple[int, str]] = {}
        self.is_over = self.is_slow = False
        self.seconds_since_step = 0.0
        self.begin(header)

    def begin(self, header: Mapping[str, Any]) -> None:
        """Begin a part of a run, with its own header."""
        self.header = header
        self.completed_steps = 0
        self._joined_hosts: dict[int, tuple[int, str, str]] = {}  # rank, host and device
        self._joined_pids: dict[int, int] = {}
        self.last_step: StepRecord | None = None
        self.recent_steps: deque[StepRecord] = deque(maxlen=_MAX_RECENT)
        self.shortage: Waiting | None = None
        self.unfinished_events: list[Event] = []
        self.progress: dict[str, float] = {}

    def add(self, line: Line) -> None:
        """Add a line of the records."""
        if isinstance(line, Header):
            self.begin(line.content)
        elif isinstance(line, StepRecord):
            self.completed_steps += 1
            self.last_step, self.shortage = line, None
            self.recent_steps.append(line)
            self._add_events(line.events, line.step)
        elif isinstance(line, Progress):
            self.progress.update(line.values)
        elif isinstance(line, Waiting):
            self.shortage = line
        elif isinstance(line, Unfinished):
            self.unfinished_events += line.events
            self._add_events(line.events, 0 if self.last_step is None else self.last_step.step + 1)

    def _add_events(self, events: Sequence[Event], step: int) -> None:
        for event in events:
            kind, machine = kind_and_machine(event)
            self.last_event = self.last_events[machine] = step, describe_machine_event(event)
            if kind == "joined":
                self._joined_pids[machine] = event.get("pid", 0)
                if "host" in event:
                    rank, device = event.get("rank", 0), event.get("device", "")
                    self._joined_hosts[machine] = rank, event["host"], device

    def set_seconds_since_step(self, seconds: float) -> None:
        """Set `seconds_since_step`, and `is_slow` if a step takes more than 2 seconds."""
        self.seconds_since_step = seconds
        self.is_slow = self.is_slow or seconds >= _MIN_SLOW_SECONDS

    @property
    def planned_steps(self) -> int | None:
        """Number of steps of this part of the run; None if unknown."""
        return self.header.get("planned_steps")

    @property
    def machines(self) -> int:
        """Number of machines of the store; 0 before the first step."""
        return len(self.last_step.rows) if self.last_step is not None else 0

    @property
    def participants(self) -> Sequence[int]:
        """Machines that take part in the run."""
        return self.header.get("participants") or range(1, self.machines + 1)

    @property
    def rate(self) -> float | None:
        """Recent steps per second; None after fewer than two steps."""
        if len(self.recent_steps) < 2:
            return None
        first, last = self.recent_steps[0], self.recent_steps[-1]
        seconds = parse_timestamp(last.time) - parse_timestamp(first.time)
        return (len(self.recent_steps) - 1) / seconds if seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end of the last planned step; None if unknown."""
        rate = self.rate
        if self.planned_steps is None or not rate or self.is_over:
            return None
        steps_left = self.planned_steps - self.completed_steps
        return max(0.0, steps_left - min(1.0, self.seconds_since_step * rate)) / rate

    @property
    def median_makespan(self) -> float | None:
        """Median makespan of recent steps, in seconds."""
        return (
            median(step.measured_makespan for step in self.recent_steps)
            if self.recent_steps
            else None
        )

    @property
    def hosts(self) -> dict[int, str]:
        """Host, device and, if its process serves several machines, rank of each machine."""
        hosts, devices = (self._header_by_machine(name) for name in ("hosts", "devices"))
        ranks = {n: rank for rank, n in enumerate(self.header.get("machine_of_rank") or [])}
        placements = {n: (ranks[n], host, devices.get(n, "")) for n, host in hosts.items()}
        placements |= self._joined_hosts
        machine_counts = Counter(rank for rank, _, _ in placements.values())
        return {
            n: describe_host(rank, host, machine_counts[rank], device)
            for n, (rank, host, device) in placements.items()
        }

    @property
    def pids(self) -> dict[int, int]:
        """Process ID of each machine; 0 if unknown."""
        return self._header_by_machine("pids") | self._joined_pids

    def _header_by_machine(self, name: str) -> dict[int, Any]:
        """Return a field of the header with a value for each rank, as a dict by machine."""
        machines, values = (self.header.get(key) or [] for key in ("machine_of_rank", name))
        if len(values) == 1:  # all machines are in one process
            values = values * len(machines)
        return dict(zip(machines, values, strict=False))

    def available_fraction(self, machine: int) -> float:
        """Return the fraction of recent steps in which a machine was available."""
        steps = sum(machine in step.available for step in self.recent_steps)
        return steps / len(self.recent_steps) if self.recent_steps else 0.0

    def rows_per_second(self, machine: int) -> float | None:
        """Return the median speed of a machine in recent steps."""
        rates = [
            step.rows[machine - 1] / step.compute_seconds[machine - 1]
            for step in self.recent_steps
            if len(step.rows) >= machine and step.compute_seconds[machine - 1] > 0
        ]
        return median(rates) if rates else None
