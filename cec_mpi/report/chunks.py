"""Chunks of recorded steps as arrays, divided into stretches in which only times change."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, is_
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.runtime.records.reading import Note, iterate_lines
from cec_mpi.runtime.records.step import Header, IntervalBounds, StepRecord

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUMBER_FIELDS = (
    "step",
    "tick",
    "waited_ticks",
    "waited_seconds",
    "adjoint",
    "columns",
    "predicted_makespan",
    "measured_makespan",
    "makespan_bound",
    "hindsight_makespan",
    "announce_seconds",
    "share_seconds",
    "collect_seconds",
    "decode_seconds",
    "plan_changed",
    "condition_number",
    "cancellation",
)
"""Fields of a step that are numbers; null becomes NaN."""


def _to_ints(values: Sequence[int]) -> Ints:
    return np.fromiter(values, np.int64, len(values))


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "rows": _to_ints,
    "available": _to_ints,
    "load_seconds": lambda values: np.fromiter(values, np.float64, len(values)),
    "load_bytes": _to_ints,
    "assignment": IntervalBounds.from_lists,
    "payload_bytes": lambda values: sum(values.values()),
    "absent_since": lambda values: values,
}
"""Fields whose change begins a stretch, with functions that convert their values."""

MAX_STEPS = 512  # per chunk
_MAX_CELLS = 1 << 20  # steps times machines, per chunk
_get_numbers = attrgetter(*NUMBER_FIELDS)
_get_stretch_fields = attrgetter(*_CONVERTERS)


@dataclass
class Stretch:
    """Consecutive steps that share the fields of `_CONVERTERS`, such as rows and assignment.

    Attributes
    ----------
    begin, end : int
        Indices in the chunk of its first step, and one past its last step.
    first_step : dict
        ``step``, ``events``, and the fields whose change begins a stretch.
    """

    begin: int
    end: int
    first_step: dict[str, Any]


@dataclass
class Chunk:
    """Up to several hundred steps of one part of a run.

    A part begins with the start of the run or a resumption.

    Attributes
    ----------
    header : dict
        Header of the part.
    begins_part : bool
        Whether it is the first chunk of its part.
    steps_before : int
        Number of earlier steps of the run.
    step_columns : dict of (K,) ndarray
        Values of the fields `NUMBER_FIELDS`.
    timestamps : list of str
        Time of the end of each step.
    compute_seconds : (K, N) ndarray
        Seconds that each machine computed in each step.
    stretches : list of Stretch
    delays : list of (int, dict of int to float)
        Indices of steps, and the seconds by which machines delayed them.
    unanswered : list of (int, list of int)
        Indices of steps, and the machines whose answers they did not wait for.
    notes : list of (int, Note)
        Number of earlier steps of the run, and the note.
    """

    header: dict[str, Any]
    begins_part: bool
    steps_before: int = 0
    step_columns: dict[str, Floats] = field(default_factory=dict)
    timestamps: list[str] = field(default_factory=list)
    compute_seconds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    stretches: list[Stretch] = field(default_factory=list)
    delays: list[tuple[int, dict[int, float]]] = field(default_factory=list)
    unanswered: list[tuple[int, list[int]]] = field(default_factory=list)
    notes: list[tuple[int, Note]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Number of steps, K."""
        return len(self.timestamps)

    @property
    def machines(self) -> int:
        """Number of machines, N."""
        return int(self.compute_seconds.shape[1])

    @cached_property
    def stretch_starts(self) -> Ints:
        """First step of each stretch, of shape (S,)."""
        return np.array([stretch.begin for stretch in self.stretches], np.int64)

    @cached_property
    def stretch_index(self) -> Ints:
        """Stretch of each step, of shape (K,)."""
        lengths = np.diff(self.stretch_starts, append=self.steps)
        return np.repeat(np.arange(len(self.stretches)), lengths)

    @cached_property
    def rows(self) -> Floats:
        """Rows by stretch and machine, of shape (S, N)."""
        return np.array([stretch.first_step["rows"] for stretch in self.stretches], np.float64)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Whether each machine is available, of shape (S, N)."""
        available = np.zeros(self.rows.shape, np.bool_)
        for row, stretch in zip(available, self.stretches, strict=True):
            row[stretch.first_step["available"] - 1] = True
        return available


class _ChunkBuilder:
    """Builds a chunk from the steps of a part of a run.

    Parameters
    ----------
    header : dict
        Header of the part.
    max_steps : int
    previous : _ChunkBuilder or None
        Builder of the previous chunk, which may belong to another part.
    """

    def __init__(
        self, header: dict[str, Any], max_steps: int, previous: _ChunkBuilder | None
    ) -> None:
        steps_before = 0 if previous is None else previous.steps_so_far
        if previous is not None and previous.header is not header:
            previous = None  # a new part repeats all fields
        self._chunk = Chunk(header, previous is None, steps_before)
        self._last: StepRecord | None = None if previous is None else previous._last
        self._fields: dict[str, Any] = {} if previous is None else previous._fields
        self._numbers: list[tuple[float | None, ...]] = []
        self._compute_seconds = array("d")
        self._max_steps, self._machines = max_steps, 0

    @property
    def header(self) -> dict[str, Any]:
        """Header of the part."""
        return self._chunk.header

    @property
    def steps_so_far(self) -> int:
        """Number of steps of the run up to the end of the chunk."""
        return self._chunk.steps_before + self._chunk.steps

    def can_add(self, step: StepRecord) -> bool:
        """Return whether the chunk is empty, or has space and the same number of machines."""
        count = len(self._chunk.timestamps)
        return not count or (
            count < self._max_steps and len(step.compute_seconds) == self._machines
        )

    def add(self, step: StepRecord) -> None:
        """Add a step."""
        chunk, last = self._chunk, self._last
        index = len(chunk.timestamps)
        if not index:
            self._machines = len(step.compute_seconds)
            self._max_steps = min(self._max_steps, _MAX_CELLS // self._machines)
        has_changed = last is None or not all(
            map(is_, _get_stretch_fields(step), _get_stretch_fields(last))
        )
        if has_changed:
            self._fields = self._fields | {
                name: convert(getattr(step, name))
                for name, convert in _CONVERTERS.items()
                if last is None or getattr(step, name) is not getattr(last, name)
            }
        if has_changed or not index or step.events or (last is not None and last.events):
            fields = {"step": step.step, **self._fields, "events": step.events}
            chunk.stretches.append(Stretch(index, index + 1, fields))
        else:
            chunk.stretches[-1].end = index + 1
        if step.delays:
            chunk.delays.append((index, step.delays))
        if step.unanswered:
            chunk.unanswered.append((index, step.unanswered))
        chunk.timestamps.append(step.time)
        self._numbers.append(_get_numbers(step))
        self._compute_seconds.fromlist(step.compute_seconds)
        self._last = step

    def add_note(self, note: Note) -> None:
        """Add a note, which lies between steps."""
        self._chunk.notes.append((self.steps_so_far, note))

    def finish(self) -> Chunk:
        """Return the chunk."""
        chunk = self._chunk
        table = np.array(self._numbers, np.float64).reshape(-1, len(NUMBER_FIELDS)).T.copy()
        chunk.step_columns = dict(zip(NUMBER_FIELDS, table, strict=True))
        if chunk.timestamps:
            chunk.compute_seconds = np.frombuffer(self._compute_seconds).reshape(-1, self._machines)
        return chunk


def read_chunks(path: Path, max_steps: int = MAX_STEPS) -> Iterator[Chunk]:
    """Yield the steps of a run in chunks: at least one for each part, possibly empty.

    An incomplete last line is ignored, because the run may still be writing it.

    Raises
    ------
    InputError
        A line is invalid. The message names the file, line and field.
    """
    builder: _ChunkBuilder | None = None  # set at the header, which is the first line
    for line in iterate_lines(path):
        if isinstance(line, StepRecord):
            assert builder is not None
            if not builder.can_add(line):
                yield builder.finish()
                builder = _ChunkBuilder(builder.header, max_steps, builder)
            builder.add(line)
        elif isinstance(line, Header):
            if builder is not None:
                yield builder.finish()
            builder = _ChunkBuilder(line.content, max_steps, builder)
        else:
            assert builder is not None
            builder.add_note(line)
    assert builder is not None
    yield builder.finish()
