"""Steps of a record in chunks of arrays, with the stretches in which only times changed."""

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
from cec_mpi.runtime.records.step import Bounds, Header, StepRecord

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUMBERS = (
    "step",
    "tick",
    "waited_ticks",
    "waited_seconds",
    "adjoint",
    "columns",
    "predicted_makespan",
    "measured_makespan",
    "bound",
    "hindsight_makespan",
    "announce_seconds",
    "share_seconds",
    "collect_seconds",
    "decode_seconds",
    "plan_changed",
    "condition",
    "cancellation",
)
"""Fields of a step that are numbers; null is NaN."""


def _ints(found: Sequence[int]) -> Ints:
    return np.fromiter(found, np.int64, len(found))


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "rows": _ints,
    "available": _ints,
    "load_seconds": lambda found: np.fromiter(found, np.float64, len(found)),
    "load_bytes": _ints,
    "assignment": Bounds.of,
    "bytes": lambda found: sum(found.values()),
    "away": lambda found: found,
}
"""Fields with which another stretch begins, and what they become; ``bytes`` are their sum."""

MOST_STEPS = 512
_MOST_CELLS = 1 << 20  # of a chunk: steps by machines
_numbers_of = attrgetter(*NUMBERS)
_changes_of = attrgetter(*_CHANGES)


@dataclass
class Stretch:
    """Consecutive steps in which nothing but times changed.

    Attributes
    ----------
    begin, end : int
        Which steps of the chunk.
    step : dict
        Of its first one: ``step``, and the fields that begin a stretch.
    """

    begin: int
    end: int
    step: dict[str, Any]


@dataclass
class Chunk:
    """Some hundred steps of one part of a run.

    Attributes
    ----------
    header : dict
        Of its part.
    begins : bool
        Whether it is the first of its part.
    first : int
        How many steps of the run came before.
    numbers : dict of (K,) ndarray
        By the names of `NUMBERS`.
    times : list of str
    seconds : (K, N) ndarray
    stretches : list of Stretch
    delays : list of (int, dict of int to float)
        Steps of the chunk, and which machines delayed them for how many seconds.
    unanswered : list of (int, list of int)
        Steps of the chunk that did not wait for the answers of machines.
    notes : list of (int, Note)
        After so many steps of the run.
    """

    header: dict[str, Any]
    begins: bool
    first: int = 0
    numbers: dict[str, Floats] = field(default_factory=dict)
    times: list[str] = field(default_factory=list)
    seconds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    stretches: list[Stretch] = field(default_factory=list)
    delays: list[tuple[int, dict[int, float]]] = field(default_factory=list)
    unanswered: list[tuple[int, list[int]]] = field(default_factory=list)
    notes: list[tuple[int, Note]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many it has."""
        return len(self.times)

    @cached_property
    def begins_of(self) -> Ints:
        """(S,) where its stretches begin."""
        return np.array([stretch.begin for stretch in self.stretches], np.int64)

    @cached_property
    def stretch_of(self) -> Ints:
        """(K,) the stretch of each step."""
        lengths = np.diff(self.begins_of, append=self.steps)
        return np.repeat(np.arange(len(self.stretches)), lengths)

    @cached_property
    def rows(self) -> Floats:
        """(S, N) rows by stretch and machine."""
        return np.array([stretch.step["rows"] for stretch in self.stretches], np.float64)

    @cached_property
    def here(self) -> NDArray[np.bool_]:
        """(S, N) which machines are available."""
        here = np.zeros(self.rows.shape, np.bool_)
        for mine, stretch in zip(here, self.stretches, strict=True):
            mine[stretch.step["available"] - 1] = True
        return here


class _ChunkBuilder:
    """Builds a chunk from the steps of a part of a run.

    Parameters
    ----------
    header : dict
        Of the part.
    most_steps : int
    before : _ChunkBuilder or None
        The chunk before it, perhaps of another part.
    """

    def __init__(
        self, header: dict[str, Any], most_steps: int, before: _ChunkBuilder | None
    ) -> None:
        first = 0 if before is None else before.end
        continued = before if before is not None and before.header is header else None
        self._chunk = Chunk(header, continued is None, first)
        self._last: StepRecord | None = None if continued is None else continued._last
        self._fields: dict[str, Any] = {} if continued is None else continued._fields
        self._numbers: list[tuple[float | None, ...]] = []
        self._seconds = array("d")
        self._most, self._machines = most_steps, 0

    @property
    def header(self) -> dict[str, Any]:
        """The header of its part."""
        return self._chunk.header

    @property
    def end(self) -> int:
        """Number of steps of the run up to here."""
        return self._chunk.first + self._chunk.steps

    def can_take(self, step: StepRecord) -> bool:
        """Whether the chunk is empty, or has space for a step of as many machines as the others."""
        count = len(self._chunk.times)
        return not count or (count < self._most and len(step.seconds) == self._machines)

    def add(self, step: StepRecord) -> None:
        """Add a step."""
        chunk, last = self._chunk, self._last
        at = len(chunk.times)
        if not at:
            self._machines = len(step.seconds)
            self._most = min(self._most, _MOST_CELLS // self._machines)
        changes = last is None or not all(map(is_, _changes_of(step), _changes_of(last)))
        if changes:
            self._fields = self._fields | {
                name: convert(getattr(step, name))
                for name, convert in _CHANGES.items()
                if last is None or getattr(step, name) is not getattr(last, name)
            }
        if changes or not at or step.events or (last is not None and last.events):
            fields = {"step": step.step, **self._fields, "events": step.events}
            chunk.stretches.append(Stretch(at, at + 1, fields))
        else:
            chunk.stretches[-1].end = at + 1
        if step.delays:
            chunk.delays.append((at, step.delays))
        if step.unanswered:
            chunk.unanswered.append((at, step.unanswered))
        chunk.times.append(step.time)
        self._numbers.append(_numbers_of(step))
        self._seconds.fromlist(step.seconds)
        self._last = step

    def note(self, note: Note) -> None:
        """Add a line between steps."""
        self._chunk.notes.append((self.end, note))

    def finish(self) -> Chunk:
        """Return the chunk."""
        chunk = self._chunk
        table = np.array(self._numbers, np.float64).reshape(-1, len(NUMBERS)).T.copy()
        chunk.numbers = dict(zip(NUMBERS, table, strict=True))
        if chunk.times:
            chunk.seconds = np.frombuffer(self._seconds).reshape(-1, self._machines)
        return chunk


def read_chunks(path: Path, most_steps: int = MOST_STEPS) -> Iterator[Chunk]:
    """Yield the steps of a run in chunks, at least one for each part, perhaps without steps.

    A last line that was cut off is ignored, because a run may be writing it.

    Raises
    ------
    InputError
        Names the file, the line, the field, what was found and what was expected.
    """
    builder: _ChunkBuilder | None = None  # once there is a header, with which a record begins
    for line in iterate_lines(path):
        if isinstance(line, StepRecord):
            assert builder is not None
            if not builder.can_take(line):
                yield builder.finish()
                builder = _ChunkBuilder(builder.header, most_steps, builder)
            builder.add(line)
        elif isinstance(line, Header):
            if builder is not None:
                yield builder.finish()
            builder = _ChunkBuilder(line.about, most_steps, builder)
        else:
            assert builder is not None
            builder.note(line)
    assert builder is not None
    yield builder.finish()
