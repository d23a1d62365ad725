"""Lines of records as chunks: steps as arrays, and what changed between them.

A chunk follows from its lines alone, so that several can be made at once: what no line of it says
is as in the chunk before, and put in by `cec_mpi.report.reading.stream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, nan
from operator import itemgetter
from struct import Struct
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cec_mpi.records.reading import LONGEST_LINE, MOST_OBJECTS
from cec_mpi.records.step import VERSION
from cec_mpi.report.reading.fields import (
    LISTED,
    NUMBERS,
    Floats,
    Ints,
    OddError,
    check_numbers,
    check_seconds,
    check_types,
)

_STEPS, _CELLS = 512, 1 << 20  # of a chunk: steps, and steps by machines
_FEW = 8  # steps, where their machines are not known: it may be many
_NOTHING: dict[str, Any] = {"waited_ticks": 0, "plan_changed": False, "events": []}
_CHANGES = (*LISTED, "store")
_IN_STRETCHES = frozenset(_CHANGES)
_BEFORE = {**dict.fromkeys(NUMBERS, -inf), "time": None}  # of what is as in the chunk before
_SAME: tuple[float, ...] = ()  # seconds that are as in the step before
_NUMBER = frozenset((int, float))
_pack_numbers = Struct(f"{len(NUMBERS)}d").pack_into
_numbers_of = itemgetter(*NUMBERS)


@dataclass
class Stretch:
    """Steps one after the other in which nothing changed but times.

    Attributes
    ----------
    begin, end : int
        Which steps of the chunk.
    step : dict
        Of its first one: ``step``, ``store``, and the fields of `LISTED` as they say.
    """

    begin: int
    end: int
    step: dict[str, Any]


@dataclass
class Chunk:
    """Some hundred steps, all of one part of a run.

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
    notes : list of (int, dict)
        Lines of progress and of checkpoints, after so many steps of the run.
    """

    header: dict[str, Any]
    begins: bool
    first: int = 0
    numbers: dict[str, Floats] = field(default_factory=dict)
    times: list[str] = field(default_factory=list)
    seconds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    stretches: list[Stretch] = field(default_factory=list)
    notes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

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


def chunks_of(data: bytes) -> Iterator[Chunk]:
    """Chunks of lines that have an end, which say nothing of what is as before them.

    Raises
    ------
    one of ODD
        A line is not what a run writes.
    """
    taken = _Taken({}, False)
    for line in data.split(b"\n")[:-1]:
        size = len(line)
        if size >= LONGEST_LINE or (size > MOST_OBJECTS and line.count(b"{") > MOST_OBJECTS):
            raise OddError("it has a line that is too long")
        content = orjson.loads(line)
        kind = content["kind"]
        if kind == "step":
            seconds = content.pop("seconds", _SAME)
            if not taken.has_room(seconds):
                yield taken.chunk()
                taken = _Taken(taken.header, False, taken.state)
            taken.take(content, seconds, _is_doubtful(line))
        elif kind == "header":
            if type(content.get("version")) is not int or content["version"] != VERSION:
                raise OddError("it has another version")
            repr(content)  # whatever is said of it later can be said
            yield taken.chunk()
            taken = _Taken(content, True)
        elif kind in ("progress", "checkpoint"):
            if kind == "progress" and not _NUMBER.issuperset(map(type, content["known"].values())):
                raise OddError("it has progress that is no number")
            taken.notes.append((len(taken.times), content))
        else:
            raise OddError(f"it has a line of the kind {kind!r}")
    yield taken.chunk()


def _is_doubtful(line: bytes) -> bool:
    """Whether true or false may be among its numbers.

    Most of a line is its first list: there a letter is found sooner than a word.
    """
    begin = line.find(b"[")
    end = line.find(b"]", begin)
    return (
        line.find(b"t", begin, end) >= 0
        or line.find(b"f", begin, end) >= 0
        or line.find(b"true", end) >= 0
        or line.find(b"false", end) >= 0
        or line.find(b"true", 0, begin) >= 0
        or line.find(b"false", 0, begin) >= 0
    )


class _Taken:
    """Steps that are to be a chunk.

    Parameters
    ----------
    header : dict
        Of its part, empty where that is not known.
    begins : bool
        Whether its first step is the first of a part, and has every field.
    state : dict
        Fields of the step before it, as far as they are known.
    """

    def __init__(
        self, header: dict[str, Any], begins: bool, state: dict[str, Any] | None = None
    ) -> None:
        self.header = header
        self.state = {**({} if begins else _BEFORE), **(state or {}), **_NOTHING}
        self.times: list[str | None] = []
        self.notes: list[tuple[int, dict[str, Any]]] = []
        self._begins, self._most, self._machines = begins, _STEPS, 0
        self._shapes: dict[Any, bool] = {}
        self._stretches: list[Stretch] = []
        self._numbers = bytearray(8 * len(NUMBERS) * _STEPS)
        self._seconds = bytearray()

    def has_room(self, seconds: Sequence[float]) -> bool:
        """Whether a step with these seconds can be taken: all of a chunk have as many, or none."""
        count = len(self.times)
        machines = len(seconds) or self._machines
        return not count or (count < self._most and machines == self._machines)

    def take(self, content: dict[str, Any], seconds: Sequence[float], doubtful: bool) -> None:
        """Take a step; `doubtful` where true or false may be among its numbers."""
        state, count = self.state, len(self.times)
        if seconds is _SAME:
            self._most = self._most if self._machines else min(self._most, _FEW)
            size = 8 * self._machines
            self._seconds[size * count : size * (count + 1)] = self._seconds[
                size * (count - 1) : size * count
            ]
        else:
            if (
                type(seconds) is not list
                or not seconds
                or (doubtful and bool in map(type, seconds))
            ):
                raise OddError("it has something else where seconds are")
            if not count:
                self._machines = len(seconds)
                self._most = max(1, min(_STEPS, _CELLS // max(self._machines, 1)))
                self._seconds = bytearray(8 * self._machines * self._most)
                self._pack = Struct(f"{self._machines}d").pack_into
            self._pack(self._seconds, 8 * self._machines * count, *seconds)
        shape = (*content, *map(type, content.values()))  # most lines are like one before
        if shape not in self._shapes:
            check_types(content)
            self._shapes[shape] = None in content.values()
        if self._shapes[shape]:
            content = {name: nan if each is None else each for name, each in content.items()}
        eventful = bool(state["events"])
        state.update(_NOTHING)
        changed = not _IN_STRETCHES.isdisjoint(content)
        if changed:
            for name in LISTED.keys() & content.keys():
                content[name] = LISTED[name](content[name], doubtful)
        state.update(content)
        if changed or eventful or not count:
            step = {name: state[name] for name in _CHANGES if name in state}
            self._stretches.append(Stretch(count, count + 1, {"step": content["step"], **step}))
        else:
            self._stretches[-1].end = count + 1
        _pack_numbers(self._numbers, 8 * len(NUMBERS) * count, *_numbers_of(state))
        self.times.append(state["time"])

    def chunk(self) -> Chunk:
        """What it has so far."""
        count = len(self.times)
        table = np.frombuffer(self._numbers, np.float64, count * len(NUMBERS))
        table = table.reshape(count, len(NUMBERS)).T.copy()
        check_numbers(table)
        seconds = np.frombuffer(self._seconds, np.float64, count * self._machines)
        check_seconds(seconds)
        return Chunk(
            self.header,
            self._begins,
            numbers=dict(zip(NUMBERS, table, strict=True)),
            times=self.times,  # type: ignore[arg-type]
            seconds=seconds.reshape(count, self._machines),
            stretches=self._stretches,
            notes=self.notes,
        )
