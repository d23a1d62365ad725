"""Record a run: a line of ``steps.jsonl`` for each step, and totals.

Times are in seconds, loads in rows. A makespan is the time of the slowest machine.
"""

from __future__ import annotations

import math
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from msgspec.structs import asdict

from cec_mpi.core.elastic.events import MachineEvent
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.directory import STEPS
from cec_mpi.runtime.records.events import KINDS_BY_NAME, Event, event_record, kind_and_machine
from cec_mpi.runtime.records.lines import LineFormatter
from cec_mpi.runtime.records.reading import RunRecords, read_records
from cec_mpi.runtime.records.step import (
    AbsenceReason,
    Checkpoint,
    Progress,
    StepRecord,
    Unfinished,
    Waiting,
)
from cec_mpi.runtime.times import RECORDS_FLUSH_SECONDS
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.replacing import open_in_place
from cec_mpi.store.files.saving import convert_to_results_error

if TYPE_CHECKING:
    from cec_mpi.runtime.processes.waiting import Clock

_FLUSH_CHARACTERS = 4000  # less than the buffer of a stream, so that no line is split
_MAX_EXACT = 10_000  # numbers for which the median is exact
_BINS_PER_OCTAVE = 128  # for more numbers
_OCTAVES = 40  # below 1, and above 1


class RunningMedian:
    """Median of numbers: exact for up to 10,000 numbers, within 0.3 % for more.

    More numbers are counted in bins, each of which is 0.54 % wider than the previous one. Numbers
    outside 1e-12 to 1e12 are clipped. The result does not depend on the order of the numbers.

    Examples
    --------
    >>> lengths = RunningMedian()
    >>> lengths.value
    >>> for length in (3.0, 1.0, 2.5):
    ...     lengths.add(length)
    >>> lengths.value
    2.5
    """

    def __init__(self) -> None:
        self._numbers = array("d")
        self._counts = array("q")

    def add(self, number: float) -> None:
        """Add a nonnegative number."""
        number = min(number, 2.0**_OCTAVES)
        if self._counts:
            self._counts[_bin_index(number)] += 1
            return
        self._numbers.append(number)
        if len(self._numbers) > _MAX_EXACT:
            self._counts = array("q", bytes(8 * 2 * _OCTAVES * _BINS_PER_OCTAVE))
            for earlier_number in self._numbers:
                self._counts[_bin_index(earlier_number)] += 1
            self._numbers = array("d")

    @property
    def value(self) -> float | None:
        """Median; None without numbers."""
        if self._counts:
            last = sum(self._counts) - 1
            return (self._number_at_rank(last // 2) + self._number_at_rank(last - last // 2)) / 2
        return median(self._numbers) if self._numbers else None

    def _number_at_rank(self, rank: int) -> float:
        """Return the approximate number at a rank."""
        cumulative = accumulate(self._counts)
        index = next(index for index, count in enumerate(cumulative) if count > rank)
        return math.exp2((index + 0.5) / _BINS_PER_OCTAVE - _OCTAVES)


def _bin_index(number: float) -> int:
    minimum = 2.0**-_OCTAVES
    octaves = math.log2(min(max(number, minimum), 1 / minimum)) + _OCTAVES
    return min(int(octaves * _BINS_PER_OCTAVE), 2 * _OCTAVES * _BINS_PER_OCTAVE - 1)


class Recorder:
    """Counts the steps of a session, and writes them to a stream if it has one.

    Parameters
    ----------
    on_step : callable, optional
        Called with each `StepRecord`.
    earlier_run : RunRecords, optional
        Records of the run that this run continues.
    clock : Clock
        Clock of the hub.

    Attributes
    ----------
    header : dict
        Fields of the header line; others can be added before `write_to`.
    steps : int
        Number of steps, including earlier runs.
    next_step, next_tick : int
        First step and tick of this run, after those of the earlier run.
    events : Counter of (str, int)
        Number of events by kind and machine.
    earlier_events : Counter of (str, int)
        The part of `events` from earlier runs.
    seen_machines : set of int
        Machines that were available in any step of this run.
    is_stopped : callable
        Returns whether a signal has stopped the run. Machines that leave then are not recorded.
    """

    def __init__(
        self,
        on_step: Callable[[StepRecord], None] | None = None,
        earlier_run: RunRecords | None = None,
        clock: Clock = time,
    ) -> None:
        self._on_step = [] if on_step is None else [on_step]
        self._clock = clock
        self._stream: IO[str] | None = None
        self._unflushed_chars, self._flush_at = 0, 0.0
        self._path = Path(STEPS)
        self._formatter = LineFormatter()
        self._clocks_at_start = self._read_clocks()
        self._formatted_second = -1, ""  # seconds since the epoch, and their text
        self.header: dict[str, Any] = {}
        self.steps = 0
        self.plan_changes = 0
        self.waited_ticks = 0
        self.next_step = self.next_tick = 0
        self.events: Counter[tuple[str, int]] = Counter()
        self.seen_machines: set[int] = set()
        self.is_stopped: Callable[[], bool] = lambda: False
        self._available: tuple[int, ...] = ()
        self._pending_events: list[Event] = []
        self._last_wait: object = None  # content of the last wait; None after a step
        self._on_wait: list[Callable[[Waiting], None]] = []
        self._compute_seconds = 0.0
        self._makespans, self._prediction_ratios = RunningMedian(), RunningMedian()
        self._hindsight_ratios = RunningMedian()
        for step in earlier_run.steps if earlier_run is not None else ():
            self._count_step(step)
            self._count_events(step.events)
            self.next_step, self.next_tick = step.step + 1, step.tick + 1
        self._count_events(earlier_run.unfinished_events if earlier_run is not None else ())
        self.earlier_events = self.events.copy()

    def __repr__(self) -> str:
        return f"<Recorder of {self.steps} steps>"

    def set_header(self, content: dict[str, Any]) -> None:
        """Set the content of the header, and read the clocks for `timestamp`."""
        self._clocks_at_start = self._read_clocks()
        self.header = {"started": self.timestamp(), **content}

    def timestamp(self) -> str:
        """Return the time of the header in UTC, plus the monotonic time since then."""
        epoch_seconds, monotonic_seconds = self._clocks_at_start
        now = epoch_seconds + self._clock.monotonic() - monotonic_seconds
        second, milliseconds = divmod(int(now * 1000), 1000)
        if second != self._formatted_second[0]:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._formatted_second = second, text
        return f"{self._formatted_second[1]}.{milliseconds:03}+00:00"

    def _read_clocks(self) -> tuple[float, float]:
        return time.time(), self._clock.monotonic()

    def write_to(self, stream: IO[str]) -> None:
        """Write the header now, and then each step, as one JSON object per line."""
        self._stream = stream
        self._path = Path(getattr(stream, "name", STEPS))
        self._write(self._formatter.header(self.header))
        self.flush()

    def watch(self, callback: Callable[[StepRecord | Waiting], None]) -> None:
        """Call a function with each step, and with each `Waiting` for machines, from now on."""
        self._on_step.append(callback)
        self._on_wait.append(callback)

    def unwatch(self, callback: Callable[[StepRecord | Waiting], None]) -> None:
        """Stop calling a function that was passed to `watch`."""
        self._on_step.remove(callback)
        self._on_wait.remove(callback)

    def add_event(self, event: MachineEvent) -> None:
        """Add an event, which is written even if its step is not completed."""
        self._pending_events.append(event_record(event))

    def record_step(self, record: StepRecord) -> None:
        """Record a step, with the events since the previous step."""
        if record.events or self._pending_events:
            record.events[:] = self._filter_events([*self._pending_events, *record.events])
            self._pending_events = []
            self._flush_at = 0.0
        self._count_step(record)
        self._count_events(record.events)
        self._last_wait = None
        if record.available != self._available:
            self._available = record.available
            self.seen_machines.update(record.available)
        if self._stream is not None:
            self._write(self._formatter.step(record))
        for callback in self._on_step:
            callback(record)

    def finish(self) -> None:
        """Write the events of an incomplete last step."""
        events, self._pending_events = self._filter_events(self._pending_events), []
        self._count_events(events)
        if events and self._stream is not None:
            self._write(self._formatter.note(Unfinished(events)))
        self.flush()

    def flush_if_due(self) -> None:
        """Flush lines if the last flush was at least `RECORDS_FLUSH_SECONDS` ago."""
        if self._unflushed_chars and self._clock.monotonic() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Flush all lines to the operating system, so that they survive this process."""
        if self._stream is not None:
            with convert_to_results_error(self._path):
                self._stream.flush()
            self._unflushed_chars = 0
            self._flush_at = self._clock.monotonic() + RECORDS_FLUSH_SECONDS

    def _filter_events(self, events: Sequence[Event]) -> list[Event]:
        """Return the events, without those of machines that leave because the run was stopped."""
        stopped = self.is_stopped()
        return [event for event in events if not (stopped and "left" in event)]

    def summary(self) -> dict[str, Any]:
        """Return totals of all steps."""
        hindsight_ratio = self._hindsight_ratios.value
        return {
            "steps": self.steps,
            "waited_ticks": self.waited_ticks,
            "plan_changes": self.plan_changes,
            "events": count_by_kind(self.events),
            "compute_seconds": self._compute_seconds,
            "median_makespan": self._makespans.value,
            "median_measured_over_predicted": self._prediction_ratios.value,
            "median_regret": None if hindsight_ratio is None else hindsight_ratio - 1,
        }

    def _count_step(self, step: StepRecord) -> None:
        self.steps += 1
        self.plan_changes += step.plan_changed
        self.waited_ticks += step.waited_ticks
        measured = step.measured_makespan
        self._compute_seconds += measured
        self._makespans.add(measured)
        if step.predicted_makespan:
            self._prediction_ratios.add(measured / step.predicted_makespan)
        if step.hindsight_makespan:
            self._hindsight_ratios.add(measured / step.hindsight_makespan)

    def _count_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events[kind_and_machine(event)] += 1

    def record_progress(self, **values: float) -> None:
        """Record the values that the task reports after a step, except infinities and NaN."""
        if self._stream is not None:
            floats = {name: float(value) for name, value in values.items()}
            finite = {name: value for name, value in floats.items() if math.isfinite(value)}
            self._write(self._formatter.note(Progress(finite)))

    def record_wait(
        self, missing: int, available: Iterable[int], absence_reasons: Mapping[int, AbsenceReason]
    ) -> None:
        """Record a wait of the next step, unless the last record of this wait is equal."""
        content = missing, tuple(available), dict(absence_reasons)
        if content == self._last_wait:
            return
        self._last_wait = content
        wait = Waiting(
            time=self.timestamp(), missing=missing, available=content[1], absence_reasons=content[2]
        )
        if self._stream is not None:
            self._write(self._formatter.note(wait))
            self.flush()
        for callback in self._on_wait:
            callback(wait)

    def record_checkpoint(self) -> None:
        """Record that a later run can continue from the last step."""
        if self._stream is not None:
            self._write(self._formatter.note(Checkpoint()))
            self.flush()

    def _write(self, line: str) -> None:
        """Write a line; whole lines are flushed in batches."""
        assert self._stream is not None
        with convert_to_results_error(self._path):
            self._stream.write(line)
        self._unflushed_chars += len(line)
        if self._unflushed_chars > _FLUSH_CHARACTERS or self._clock.monotonic() >= self._flush_at:
            self.flush()


def count_by_kind(events: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """Return the number of events of each kind."""
    counts = dict.fromkeys(KINDS_BY_NAME, 0)
    for (kind, _), count in events.items():
        counts[kind] = counts.get(kind, 0) + count
    return counts


def resume_steps(path: str | os.PathLike[str]) -> RunRecords:
    """Read the records of a run that is continued, and remove an incomplete last line.

    Steps after the checkpoint are included; they are computed again, with new step numbers.

    Raises
    ------
    InputError
        The file is missing, or its content is not a record of steps.
    """
    path = as_path(path)
    try:
        records = read_records(path)
        if records.end < records.size:
            with os.fdopen(open_in_place(path), "r+b") as file:
                file.truncate(records.end)
    except OSError as error:
        raise InputError(f"{path} cannot be continued: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{error}: use --overwrite to start from the beginning") from None
    return records


def read_steps(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first header and all steps of a ``steps.jsonl``, as dicts with all fields.

    Raises
    ------
    InputError
        The file is missing, its content is not a record of steps, or its last line is incomplete.
    """
    records = read_records(as_path(path))
    if records.end < records.size:
        raise InputError(f"{path} cannot be read: its last line is incomplete")
    return records.header, [_as_dict(step) for step in records.steps]


def _as_dict(step: StepRecord) -> dict[str, Any]:
    return {"kind": "step", **asdict(step), "available": list(step.available)}
