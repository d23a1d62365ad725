"""Records read in a stream: whole chunks of steps as arrays, and what changed between them.

`cec_mpi.records.reading` checks each field of each line, which takes longer than all that a report
does with them. Here numbers are checked as they become arrays, and only where something is odd are
the lines read again by it, which says what is wrong and where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.regular import open_regular
from cec_mpi.records.reading import LONGEST_LINE, check_lines
from cec_mpi.records.step import VERSION

Floats = NDArray[np.float64]

NUMBERS = (
    "step",
    "tick",
    "waited_ticks",
    "store",
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
    "error_bound",
)
"""Fields of a step that are numbers; null is NaN."""

_CHUNK = 512  # steps
_NOTHING: dict[str, Any] = {"waited_ticks": 0, "plan_changed": False, "events": ()}
_SOMETHING = frozenset(_NOTHING)
_IN_STRETCHES = frozenset(
    ("rows", "available", "load_seconds", "load_bytes", "assignment", "bytes", "store", *_NOTHING)
)
_TYPES = frozenset((int, float, bool, type(None)))


@dataclass
class Stretch:
    """Steps one after the other in which nothing changed but times.

    Attributes
    ----------
    begin, end : int
        Which steps of the chunk.
    step : dict
        The fields of its first one.
    """

    begin: int
    end: int
    step: dict[str, Any]


@dataclass
class Chunk:
    """Some hundred steps, all of one part of a run.

    Attributes
    ----------
    first : int
        How many steps of the run came before.
    header : dict
        Of its part.
    begins : bool
        Whether it is the first of its part.
    numbers : dict of (K,) ndarray
        By the names of `NUMBERS`.
    times : list of str
    seconds : (K, N) ndarray
    stretches : list of Stretch
    notes : list of (int, dict)
        Lines of progress and of checkpoints, after so many steps of the run.
    """

    first: int
    header: dict[str, Any]
    begins: bool
    numbers: dict[str, Floats] = field(default_factory=dict)
    times: list[str] = field(default_factory=list)
    seconds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    stretches: list[Stretch] = field(default_factory=list)
    notes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return len(self.times)


class _OddError(Exception):
    """A line is not what a run writes, as far as can be seen here."""


_ODD = (_OddError, struct_error, ValueError, TypeError, KeyError, AttributeError, RecursionError)


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Chunks of the steps of a run, each part with at least one, maybe without steps.

    A last line that was cut off is passed over: a run may be writing it.

    Raises
    ------
    InputError
        Names the file, the line, what was found and what was expected.
    """
    try:
        with os.fdopen(open_regular(path), "rb", buffering=1 << 20) as stream:
            yield from _chunks(stream)
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except _ODD as problem:
        check_lines(path)
        raise InputError(f"{path} is no record of steps that can be read: {problem}") from None


def _chunks(stream: Any) -> Iterator[Chunk]:
    taken: _Taken | None = None
    begins, done, last = True, 0, -1
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise _OddError("it has a line that is too long")
        if line[-1:] != b"\n":
            break
        content = orjson.loads(line)
        kind = content["kind"]
        if kind == "header":
            if content.get("version") != VERSION:
                raise _OddError("it has another version")
            repr(content)  # whatever is said of it later can be said
            if taken is not None:
                yield taken.chunk()
                done += len(taken.times)
                last = taken.state.get("step", last)
            begins, taken = True, _Taken(content, done, True, {}, last)
        elif taken is None:
            raise _OddError("it has no header")
        elif kind == "step":
            taken.take(content)
            if len(taken.times) == _CHUNK:
                yield taken.chunk()
                done += _CHUNK
                state = taken.state
                begins, taken = False, _Taken(taken.header, done, False, state, state["step"])
        elif kind in ("progress", "checkpoint"):
            if kind == "progress" and not _NUMBER.issuperset(map(type, content["known"].values())):
                raise _OddError("it has progress that is no number")
            taken.notes.append((done + len(taken.times), content))
        else:
            raise _OddError(f"it has a line of the kind {kind!r}")
    if taken is None:
        raise _OddError("it has no header")
    if taken.times or taken.notes or begins:
        yield taken.chunk()


class _Taken:
    """Steps that are to be a chunk."""

    def __init__(
        self,
        header: dict[str, Any],
        first: int,
        begins: bool,
        state: dict[str, Any],
        after: int,
    ) -> None:
        self.header, self.state = header, {**_NOTHING, **state}
        self._something = True
        self.times: list[str] = []
        self.notes: list[tuple[int, dict[str, Any]]] = []
        self._first, self._begins, self._after = first, begins, after
        self._numbers: list[Any] = []
        self._stretches: list[Stretch] = []
        self._width = len(state["seconds"]) if state else 0
        self._pack = Struct(f"{self._width}d").pack_into
        self._buffer = bytearray(8 * self._width * _CHUNK)

    def take(self, content: dict[str, Any]) -> None:
        state = self.state
        if self._something:
            state.update(_NOTHING)
        state.update(content)
        count = len(self.times)
        self._something = False
        if not count or not _IN_STRETCHES.isdisjoint(content):
            self._something = not _SOMETHING.isdisjoint(content)
            self._begin(count, dict(state))
        elif self._stretches[-1].step["events"]:
            self._stretches.append(Stretch(count, count + 1, dict(state)))
        else:
            self._stretches[-1].end = count + 1
        self._pack(self._buffer, 8 * self._width * count, *state["seconds"])
        self._numbers += _numbers_of(state)
        self.times.append(state["time"])

    def _begin(self, count: int, state: dict[str, Any]) -> None:
        """Take what changes in this step."""
        if not count and len(state["seconds"]) != self._width:
            self._width = len(state["seconds"])
            self._pack = Struct(f"{self._width}d").pack_into
            self._buffer = bytearray(8 * self._width * _CHUNK)
        _check(state, self._width)
        self._stretches.append(Stretch(count, count + 1, state))

    def chunk(self) -> Chunk:
        count = len(self.times)
        raw = np.array(self._numbers)
        if raw.dtype.kind != "f" and not _TYPES.issuperset(map(type, self._numbers)):
            raise _OddError("it has text or lists where numbers are")
        table = raw.astype(np.float64).reshape(count, len(NUMBERS)).T
        seconds = np.frombuffer(self._buffer, np.float64, count * self._width)
        if count:
            if not table[0].max() < _MOST_STEPS:
                raise _OddError("it has a step with a number that can be none")
            if not (np.diff(table[0], prepend=self._after) > 0).all():
                raise _OddError("its steps are not in ascending order")
            if not seconds.min(initial=0.0) >= 0 or not seconds.max(initial=0.0) < _MOST_SECONDS:
                raise _OddError("it has seconds that can be none")
            unknown = np.isnan(table)
            if unknown[_KNOWN].any():
                raise _OddError("it has null where a number is")
            if not (unknown | ((table >= 0) & (table < _BOUNDS))).all():
                raise _OddError("it has numbers that can be none")
        return Chunk(
            self._first,
            self.header,
            self._begins,
            dict(zip(NUMBERS, table, strict=True)),
            self.times,
            seconds.reshape(count, self._width),
            self._stretches,
            self.notes,
        )


_numbers_of = itemgetter(*NUMBERS)
_MOST_SECONDS, _LARGEST, _MOST_STEPS, _MOST_ROWS = 1e30, 1e300, 2**53, 2**48
_NUMBER = frozenset((int, float))
_CAN_BE_NULL = {"predicted_makespan", "bound", "hindsight_makespan", "condition", "error_bound"}
_KNOWN = [at for at, name in enumerate(NUMBERS) if name not in _CAN_BE_NULL]
_BOUNDS = np.array(
    [_LARGEST if name in ("condition", "error_bound") else _MOST_SECONDS for name in NUMBERS]
)[:, np.newaxis]


def _check(state: dict[str, Any], machines: int) -> None:
    """That what changed has a form that can be counted with; `check_lines` says more."""
    lengths = {len(state[name]) for name in ("rows", "load_seconds", "load_bytes", "assignment")}
    available = state["available"]
    numbers = np.array([state["rows"], state["load_seconds"], state["load_bytes"]])
    if numbers.dtype.kind not in "iuf":
        raise _OddError("it has text or other things where numbers are")
    if lengths != {machines} or not machines:
        raise _OddError("its lists differ in length")
    known = type(available) is list and set(available) <= set(range(1, machines + 1))
    if not known or len(set(available)) < len(available):
        raise _OddError("it has machines that there are not")
    if not ((numbers >= 0) & (numbers < _MOST_SECONDS)).all():
        raise _OddError("it has rows or loads that can be none")
    if not isinstance(state["time"], str) or not all(type(e) is dict for e in state["events"]):
        raise _OddError("it has no time, or an event that is none")
    for bounds in state["assignment"]:
        if len(bounds) % 2 or not all(type(each) is int for each in bounds):
            raise _OddError("it has an assignment that is none")
        if any(a >= b for a, b in pairwise(bounds)) or not all(
            0 <= each <= _MOST_ROWS for each in (bounds[:1] + bounds[-1:])
        ):
            raise _OddError("it has an assignment that is none")
    if not 0 <= sum(state["bytes"].values()) < _LARGEST:
        raise _OddError("it has bytes that can be none")
