"""A run as a report shows it, read in one pass over its records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.report.absences import Absences
from cec_mpi.report.assignments import Assignments
from cec_mpi.report.bins import MAX_BINS, MachineBins
from cec_mpi.report.chunks import NUMBER_FIELDS, Chunk, Floats, read_chunks
from cec_mpi.report.live.descriptions import describe_host
from cec_mpi.report.states import describe_event
from cec_mpi.report.time_totals import TimeTotals
from cec_mpi.runtime.records.directory import STEPS, SUMMARY, read_summary
from cec_mpi.runtime.records.events import Event
from cec_mpi.runtime.records.step import Checkpoint, Progress, Unfinished, Waiting, parse_timestamp
from cec_mpi.store.files.durable import has_lock_file, is_locked
from cec_mpi.store.files.paths import as_path, directory_problem

_FIELDS = (
    *NUMBER_FIELDS,
    "load_seconds",
    "stall_seconds",
    "shortage_seconds",
    "payload_bytes",
    "available",
    "time",
)

DONE, STOPPED, INTERRUPTED, RUNNING = "done", "stopped", "interrupted", "running"


class Run:
    """A run, read from its directory.

    Parameters
    ----------
    name : str
        Path of the directory.
    requested_steps : set of int
        Steps whose assignments the page must show.
    max_bins : int
        Maximum number of bins; a run with more steps has several steps in a bin.

    Attributes
    ----------
    headers : list of dict
        Header of each part of the run.
    summary : dict
        Summary; empty if the run has not finished.
    state : str
        `DONE`, `STOPPED` (with a checkpoint after its last step), `INTERRUPTED` or `RUNNING`.
    step_columns : dict of (T,) ndarray
        Values of each step: `NUMBER_FIELDS`, ``load_seconds`` (delay by reading),
        ``payload_bytes``, ``available`` (number of machines), ``stall_seconds`` and
        ``shortage_seconds`` (see `TimeTotals`), and ``time`` (of its end, in seconds since the
        start of the run, without the time between parts).
    events : list of (int, int, int, str)
        Step, kind, machine and text of each event, in the order of steps.
    progress : list of (int, dict)
        Number of steps, and the numbers that the task recorded after them.
    checkpoints, resumptions : list of int
        Number of steps before each checkpoint, and before each resumption.
    waits : dict of int to Waiting
        Last wait for machines after this number of steps.
    """

    def __init__(
        self, name: str, requested_steps: frozenset[int] = frozenset(), max_bins: int = MAX_BINS
    ) -> None:
        self.name, path = name, as_path(name)
        if problem := directory_problem(path):
            raise InputError(f"{name} {problem}: expected the directory of the results of a run")
        self.headers: list[dict[str, Any]] = []
        self.bins, self.time_totals = MachineBins(max_bins), TimeTotals()
        self.assignments = Assignments(requested_steps)
        self.absences = Absences()
        self.events: list[tuple[int, int, int, str]] = []
        self._placements: dict[tuple[int, int, int, str, str], None] = {}
        self.progress: list[tuple[int, dict[str, float]]] = []
        self.checkpoints: list[int] = []
        self.waits: dict[int, Waiting] = {}
        self.resumptions: list[int] = []
        self._columns = [dict.fromkeys(_FIELDS, np.empty(0))]  # of chunks
        self.last_timestamp = ""
        self._earlier_seconds = self._last_seconds = 0.0  # durations: of earlier parts, and so far
        is_running = is_locked(path)
        try:
            os.lstat(path / STEPS)
        except FileNotFoundError:
            if not is_running:
                raise InputError(f"{name} contains no run: expected {STEPS} in it") from None
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror}") from None
        for chunk in read_chunks(path / STEPS):
            self._add_chunk(chunk)
        summary = None if is_running else read_summary(path)
        if summary is None and not is_running and os.path.lexists(path / SUMMARY):
            raise InputError(f"{path / SUMMARY} cannot be read: expected the summary of a run")
        self.summary = summary or {}
        self.step_columns: dict[str, Floats] = {
            name: np.concatenate([columns[name] for columns in self._columns]) for name in _FIELDS
        }
        for step, waiting in self.waits.items():
            if step < self.steps:
                self.time_totals.add_wait(float(self.step_columns["waited_seconds"][step]), waiting)
        has_stopped = self.checkpoints[-1:] == [self.steps] and not has_lock_file(path)
        final_state = DONE if self.summary else STOPPED if has_stopped else INTERRUPTED
        self.state = RUNNING if is_running else final_state

    @property
    def header(self) -> dict[str, Any]:
        """Header of the first part."""
        return self.headers[0]

    @property
    def steps(self) -> int:
        """Number of steps, including steps that were repeated after a resumption."""
        return len(self.step_columns["step"])

    @property
    def machines(self) -> int:
        """Number of machines of the store; the largest number if the store grew between parts."""
        return self.bins.machines or int(self.header["machines"])

    def _add_chunk(self, chunk: Chunk) -> None:
        if chunk.begins_part:
            if self.headers:
                self.resumptions.append(chunk.steps_before)
                self._earlier_seconds = self._last_seconds
            self.headers.append(chunk.header)
            for placement in _initial_placements(chunk.header):
                self._record_host(*placement)
            for name in ("started", "machines", "recovery", "rows_per_shard"):
                if name not in chunk.header:
                    raise InputError(f'{self.name}: a header in {STEPS} has no field "{name}"')
        if chunk.steps:
            self._add_steps(chunk)
        for steps, note in chunk.notes:
            if isinstance(note, Checkpoint):
                self.checkpoints.append(steps)
            elif isinstance(note, Progress):
                self.progress.append((steps, note.values))
            elif isinstance(note, Unfinished) and steps:
                self._add_events(note.events, self._last_step)
                self.absences.add_unfinished(note.events, self._last_step)
            elif isinstance(note, Waiting):
                self.waits[steps] = note

    def _add_steps(self, chunk: Chunk) -> None:
        rows = chunk.header["rows_per_shard"]
        self.absences.add(chunk)
        self.bins.add(chunk, rows)
        self.time_totals.add(chunk, chunk.header["recovery"], rows)
        total_bytes, available = np.zeros((2, chunk.steps))
        for stretch, seconds_per_row in zip(
            chunk.stretches, self.time_totals.seconds_per_row, strict=True
        ):
            steps, step = slice(stretch.begin, stretch.end), stretch.first_step
            total_bytes[steps] = step["payload_bytes"]
            available[steps] = len(step["available"])
            self._add_events(step["events"], step["step"])
            self.assignments.add(chunk.steps_before, stretch, seconds_per_row)
        self.last_timestamp = chunk.timestamps[-1]
        self._last_step = int(chunk.step_columns["step"][-1])
        columns = {
            "load_seconds": self.time_totals.read_seconds,
            "stall_seconds": self.time_totals.stall_seconds,
            "shortage_seconds": self.time_totals.shortage_seconds,
            "payload_bytes": total_bytes,
            "available": available,
            "time": self._times_since_start(chunk),
        }
        self._columns.append(chunk.step_columns | columns)

    def _add_events(self, events: Sequence[Event], step: int) -> None:
        for event in events:
            self.events.append((step, *describe_event(event)))
            self._record_host(*map(event.get, ("joined", "rank", "host", "device")))

    def _record_host(self, machine: Any, rank: Any, host: Any, device: Any) -> None:
        """Record the host and device of a machine, unless the fields are invalid."""
        if type(machine) is type(rank) is int and isinstance(host, str):
            self._placements[len(self.headers), machine, rank, host, device or ""] = None

    @property
    def hosts(self) -> dict[int, list[str]]:
        """Hosts of each machine, in the order of use; the master is machine 0."""
        machine_counts = Counter((part, rank) for part, _, rank, _, _ in self._placements)
        hosts: dict[int, list[str]] = {}
        for part, machine, rank, host, device in self._placements:
            text = describe_host(rank, host, machine_counts[part, rank], device)
            if text not in hosts.setdefault(machine, []):
                hosts[machine].append(text)
        return hosts

    def _times_since_start(self, chunk: Chunk) -> Floats:
        start = parse_timestamp(chunk.header["started"])
        ends = np.array(list(map(parse_timestamp, chunk.timestamps)))
        times = np.maximum(self._earlier_seconds + ends - start, self._last_seconds)
        times = np.asarray(np.round(np.maximum.accumulate(times), 3), np.float64)
        self._last_seconds = float(times[-1])
        return times


def _initial_placements(header: dict[str, Any]) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield each machine with its initial rank, host and device in a part of a run."""
    hosts, machines, devices = map(header.get, ("hosts", "machine_of_rank", "devices"))
    if machines and hosts:
        for rank, machine in enumerate(machines):
            device = devices[rank] if devices and rank < len(devices) else ""
            yield machine, rank, hosts[rank if rank < len(hosts) else 0], device
