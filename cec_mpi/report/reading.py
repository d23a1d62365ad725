"""Reading records in chunks: steps as arrays, and what changed.

A piece of the file becomes chunks by its lines alone; what they do not say is as in the chunk
before. If something is not what a run writes, `cec_mpi.records.reading` reads the lines again, and
says what is wrong and where.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, nan
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.regular import open_regular
from cec_mpi.records.reading import (
    LONGEST_LINE,
    WRONG,
    Note,
    check_lines,
    decoded,
)
from cec_mpi.records.step import DEFAULTS, FIELDS, PER_MACHINE, Bounds, Header, check_machines

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Piece = tuple[int, int]

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
    "events": lambda found: found,
}
"""Fields with which another stretch begins, and what they become; ``bytes`` are their sum."""

_LENGTHS = [name for name in PER_MACHINE if name != "seconds"]
_CELLS = 1 << 20  # of a chunk: steps by machines
_FEW = 8  # steps, where their machines are not known: it may be many
_LOOK = 1 << 16  # bytes in which the end of a line is looked for
_DEFAULTS = {name: DEFAULTS[name] for name in DEFAULTS if name in {*NUMBERS, *_CHANGES}}
_BEFORE = {**dict.fromkeys(NUMBERS, -inf), "time": None}  # of what is as in the chunk before
_SAME: tuple[float, ...] = ()  # seconds that are as in the step before
_pack_numbers = Struct(f"{len(NUMBERS)}d").pack_into
_numbers_of = itemgetter(*NUMBERS)


class Sizes(NamedTuple):
    """How a record is cut.

    Attributes
    ----------
    steps : int
        Most steps of a chunk.
    piece : int
        Bytes that are read at once, about.
    """

    steps: int = 512
    piece: int = 1 << 22


SIZES = Sizes()


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


def chunks_of(data: bytes, most: int) -> list[Chunk]:
    """Return chunks of so many steps at most, of whole lines, without fields of the lines before.

    Raises
    ------
    one of WRONG
        A line is not what a run writes.
    """
    found = []
    taken = _Taken({}, False, most)
    for line in data.split(b"\n")[:-1]:
        told = decoded(line)
        if isinstance(told, Header):
            found.append(taken.chunk())
            taken = _Taken(told.about, True, most)
        elif isinstance(told, Note):
            taken.notes.append((len(taken.times), told))
        else:
            step = {name: value for name in FIELDS if (value := getattr(told, name)) is not UNSET}
            seconds = step.pop("seconds", _SAME)
            if not taken.has_room(seconds):
                found.append(taken.chunk())
                taken = _Taken(taken.header, False, most, taken.state)
            taken.take(step, seconds)
    return [*found, taken.chunk()]


class _Taken:
    """Collects the steps of a chunk.

    Parameters
    ----------
    header : dict
        Of its part, empty where that is not known.
    begins : bool
        Whether its first step is the first of a part, and has every field.
    most : int
        Steps that it has room for.
    state : dict
        Fields of the step before it, as far as they are known.
    """

    def __init__(
        self, header: dict[str, Any], begins: bool, most: int, state: dict[str, Any] | None = None
    ) -> None:
        self.header = header
        self.state = {**({} if begins else _BEFORE), **(state or {}), **_DEFAULTS}
        self.times: list[str | None] = []
        self.notes: list[tuple[int, Note]] = []
        self._begins, self._most, self._machines = begins, most, 0
        self._stretches: list[Stretch] = []
        self._delays: list[tuple[int, dict[int, float]]] = []
        self._unanswered: list[tuple[int, list[int]]] = []
        self._numbers = bytearray(8 * len(NUMBERS) * most)
        self._seconds = bytearray()

    def has_room(self, seconds: Sequence[float]) -> bool:
        """Return whether the chunk can take a step with these seconds."""
        count = len(self.times)
        machines = len(seconds) or self._machines
        return not count or (count < self._most and machines == self._machines)

    def take(self, told: dict[str, Any], seconds: Sequence[float]) -> None:
        """Take a step: what its line says."""
        state, count = self.state, len(self.times)
        if seconds is _SAME:
            self._most = self._most if self._machines else min(self._most, _FEW)
            size = 8 * self._machines
            self._seconds[size * count : size * (count + 1)] = self._seconds[
                size * (count - 1) : size * count
            ]
        else:
            if not seconds:
                raise ValueError("it has a step without machines")
            if not count:
                self._machines = len(seconds)
                self._most = max(1, min(self._most, _CELLS // max(self._machines, 1)))
                self._seconds = bytearray(8 * self._machines * self._most)
                self._pack = Struct(f"{self._machines}d").pack_into
            self._pack(self._seconds, 8 * self._machines * count, *seconds)
        if "delays" in told:
            self._delays.append((count, told.pop("delays")))
        if "unanswered" in told:
            self._unanswered.append((count, told.pop("unanswered")))
        eventful = bool(state["events"])
        state.update(_DEFAULTS)
        changed = not _CHANGES.keys().isdisjoint(told)
        for name, value in told.items():
            state[name] = nan if value is None else value
        if changed:
            for name in _CHANGES.keys() & told.keys():
                state[name] = _CHANGES[name](told[name])
        if changed or eventful or not count:
            step = {name: state[name] for name in _CHANGES if name in state}
            self._stretches.append(Stretch(count, count + 1, {"step": told["step"], **step}))
        else:
            self._stretches[-1].end = count + 1
        _pack_numbers(self._numbers, 8 * len(NUMBERS) * count, *_numbers_of(state))
        self.times.append(state["time"])

    def chunk(self) -> Chunk:
        """Return the chunk so far."""
        count = len(self.times)
        table = np.frombuffer(self._numbers, np.float64, count * len(NUMBERS))
        table = table.reshape(count, len(NUMBERS)).T.copy()
        seconds = np.frombuffer(self._seconds, np.float64, count * self._machines)
        return Chunk(
            self.header,
            self._begins,
            numbers=dict(zip(NUMBERS, table, strict=True)),
            times=self.times,  # type: ignore[arg-type]
            seconds=seconds.reshape(count, self._machines),
            stretches=self._stretches,
            delays=self._delays,
            unanswered=self._unanswered,
            notes=self.notes,
        )


def read_chunks(path: Path, sizes: Sizes = SIZES) -> Iterator[Chunk]:
    """Chunks of the steps of a run, each part with at least one, maybe without steps.

    A last line that was cut off is ignored, because a run may be writing it.

    Raises
    ------
    InputError
        Names the file, the line, the field, what was found and what was expected.
    """
    joiner = _Joiner()
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
            file = stream.fileno()
            for piece in _pieces(file, sizes.piece):
                for chunk in chunks_of(_read(file, piece), sizes.steps):
                    joiner.join(chunk)
                    if chunk.steps or chunk.notes or chunk.begins:
                        yield chunk
        if joiner.header is None:
            raise ValueError("it has no header")
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (*WRONG, KeyError) as problem:
        check_lines(path)
        raise InputError(f"{path} is no record of steps that can be read: {problem}") from None


def _pieces(file: int, length: int) -> list[Piece]:
    """Return where pieces of a file begin and end, at ends of lines."""
    size = os.fstat(file).st_size
    pieces = []
    begin = 0
    while begin < size:
        end = _after_line(file, begin + length, size)
        pieces.append((begin, end))
        begin = end
    return pieces


def _after_line(file: int, at: int, size: int) -> int:
    """Return where the line ends that contains a byte."""
    for begin in range(at, min(at + LONGEST_LINE, size), _LOOK):
        found = os.pread(file, _LOOK, begin).find(b"\n")
        if found >= 0:
            return begin + found + 1
    if at + LONGEST_LINE < size:
        raise ValueError("it has a line that is too long")
    return size


def _read(file: int, piece: Piece) -> bytes:
    begin, end = piece
    data = os.pread(file, end - begin, begin)
    if len(data) < end - begin:
        raise ValueError("it was cut off while it was read")
    return data


class _Joiner:
    """Completes chunks by the fields of those before.

    Attributes
    ----------
    header : dict or None
        Of the part so far.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] | None = None
        self._steps, self._number = 0, -1.0
        self._time = ""
        self._numbers: dict[str, float] = {}
        self._row: Floats = np.empty(0)
        self._state: dict[str, Any] = {}

    def join(self, chunk: Chunk) -> None:
        """Complete a chunk, which follows those before.

        Raises
        ------
        ValueError, KeyError
            The steps before it are missing.
        """
        if chunk.begins:
            self.header, self._state, self._numbers = chunk.header, {}, {}
            self._row = np.empty(0)
        if self.header is None:
            if chunk.steps or chunk.notes:
                raise ValueError("it has no header")
            return
        chunk.header, chunk.first = self.header, self._steps
        chunk.notes = [(self._steps + after, note) for after, note in chunk.notes]
        if not chunk.steps:
            return
        for name, values in chunk.numbers.items():
            if values[0] == -np.inf:
                values[values == -np.inf] = self._numbers[name]
            self._numbers[name] = values[-1]
        if not (np.diff(chunk.numbers["step"], prepend=self._number) > 0).all():
            raise ValueError("its steps are not in ascending order")
        if not chunk.seconds.shape[1]:
            chunk.seconds = np.repeat(self._row[np.newaxis], chunk.steps, axis=0)
        if chunk.times[0] is None:
            chunk.times = [self._time if each is None else each for each in chunk.times]
        for stretch in chunk.stretches:
            self._state = {**self._state, **stretch.step}
            if missing := _CHANGES.keys() - self._state.keys():
                raise KeyError(min(missing))
            step = stretch.step = self._state
            lengths = {name: len(step[name]) for name in _LENGTHS if name != "assignment"}
            lengths |= {"assignment": len(step["assignment"].ends)}
            lengths |= {"seconds": chunk.seconds.shape[1]}
            check_machines(lengths, step["available"], step["away"])
        self._steps += chunk.steps
        self._number, self._time = chunk.numbers["step"][-1], chunk.times[-1]
        self._row = chunk.seconds[-1]
