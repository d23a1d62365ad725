"""The state of a run as its records show it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from cec_mpi.report.live.words import event_words, host_words
from cec_mpi.runtime.records.events import Event, kind_and_machine
from cec_mpi.runtime.records.reading import Line
from cec_mpi.runtime.records.step import Header, Progress, StepRecord, Unfinished, Waiting

_RECENT = 64  # steps that medians and the rate are of
_LONG = 2.0  # seconds of a step that are worth showing


class Seen:
    """A run, as its header and its steps show it.

    Taking a step is cheap: figures are computed when they are read.

    Parameters
    ----------
    header : mapping
        The first line of its records.

    Attributes
    ----------
    header : mapping
    made : int
        Steps since that header.
    last : StepRecord or None
        The last step.
    event : tuple of (int, str) or None
        The step of the last event, counted from 1, and what happened.
    happened : dict of int to (int, str)
        The same as `event` for each machine.
    is_over : bool
        No more steps are to come.
    waiting : float
        Seconds since the last step, or since the run began, as far as whoever shows it knows.
    is_slow : bool
        Whether a step took seconds.
    known : dict of str to float
        What the task has said of how far it is.
    short : Waiting or None
        What the next step waits for, if too few machines are available.
    unfinished : list of Event
        What happened in a last step that did not end.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.event: tuple[int, str] | None = None
        self.happened: dict[int, tuple[int, str]] = {}
        self.is_over = self.is_slow = False
        self.waiting = 0.0
        self.begin(header)

    def begin(self, header: Mapping[str, Any]) -> None:
        """Begin a part of a run, which has its own header."""
        self.header = header
        self.made = 0
        self._settled: dict[int, tuple[int, str]] = {}  # rank and host of each that joined
        self.last: StepRecord | None = None
        self.recent: deque[StepRecord] = deque(maxlen=_RECENT)
        self.short: Waiting | None = None
        self.unfinished: list[Event] = []
        self.known: dict[str, float] = {}

    def read(self, line: Line) -> None:
        """Take a line of the records."""
        if isinstance(line, Header):
            self.begin(line.about)
        elif isinstance(line, StepRecord):
            self.take(line)
        elif isinstance(line, Progress):
            self.known.update(line.known)
        elif isinstance(line, Waiting):
            self.short = line
        elif isinstance(line, Unfinished):
            self.unfinished += line.events
            self._happen(line.events, 0 if self.last is None else self.last.step + 1)

    def take(self, step: StepRecord) -> None:
        """Take the next step."""
        self.made += 1
        self.last, self.short = step, None
        self.recent.append(step)
        self._happen(step.events, step.step)

    def _happen(self, events: Sequence[Event], step: int) -> None:
        for event in events:
            kind, machine = kind_and_machine(event)
            self.event = self.happened[machine] = step, event_words(event)
            if kind == "joined" and "host" in event:
                self._settled[machine] = event.get("rank", 0), event["host"]

    def wait(self, seconds: float) -> None:
        """Set the seconds since the last step."""
        self.waiting = seconds
        self.is_slow = self.is_slow or seconds >= _LONG

    @property
    def planned(self) -> int | None:
        """How many steps this part of the run makes; None if that is unknown."""
        return self.header.get("planned_steps")

    @property
    def machines(self) -> int:
        """Of the store."""
        return len(self.last.rows) if self.last is not None else 0

    @property
    def taking_part(self) -> Sequence[int]:
        """Numbers of the machines that take part."""
        return self.header.get("taking_part") or range(1, self.machines + 1)

    @property
    def rate(self) -> float | None:
        """Recent steps per second; None if fewer than two were made."""
        if len(self.recent) < 2:
            return None
        seconds = _seconds_between(self.recent[0].time, self.recent[-1].time)
        return (len(self.recent) - 1) / seconds if seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last step; None if their number is unknown."""
        rate = self.rate
        if self.planned is None or not rate or self.is_over:
            return None
        left = self.planned - self.made - min(1.0, self.waiting * rate)
        return max(0.0, left) / rate

    @property
    def makespan(self) -> float | None:
        """The median makespan of recent steps, in seconds."""
        return median(step.measured_makespan for step in self.recent) if self.recent else None

    @property
    def hosts(self) -> dict[int, str]:
        """The host of each machine, with its rank if it carries several."""
        machines, hosts = (self.header.get(name) for name in ("machine_of_rank", "hosts"))
        placed = dict(self._settled)
        if machines and hosts:
            hosts = hosts if len(hosts) > 1 else hosts * len(machines)  # all are in one process
            placed = dict(zip(machines, enumerate(hosts), strict=False)) | placed
        carried = Counter(rank for rank, _ in placed.values())
        return {n: host_words(*at, carried[at[0]]) for n, at in placed.items()}

    def availability(self, machine: int) -> float:
        """Return the share of recent steps in which a machine was available."""
        there = sum(machine in step.available for step in self.recent)
        return there / len(self.recent) if self.recent else 0.0

    def rows_per_second(self, machine: int) -> float | None:
        """Return the median speed of a machine in recent steps."""
        rates = [
            step.rows[machine - 1] / step.seconds[machine - 1]
            for step in self.recent
            if len(step.rows) >= machine and step.seconds[machine - 1] > 0
        ]
        return median(rates) if rates else None


def _seconds_between(first: str, last: str) -> float:
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
