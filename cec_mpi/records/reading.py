"""Lines of ``steps.jsonl`` read back: each has to be what a run writes, and becomes a whole step.

What a step is follows from the fields of a dataclass and their types, so that whoever adds a
field has said here what it looks like.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from cec_mpi.errors import InputError
from cec_mpi.files.regular import NotAFileError, open_regular
from cec_mpi.records.lines import DEFAULTS
from cec_mpi.records.step import HINTS, MOST, MOST_MACHINES, VERSION, Within
from cec_mpi.text import shown

_OF_MACHINES = {"available"} | {name for name, hint in HINTS.items() if get_origin(hint) is list}
_OF_MACHINES -= {"events"}  # all others have an entry for each machine of the store
LONGEST_LINE = 1 << 25  # bytes: a step of a hundred thousand machines takes a fifth
MOST_OBJECTS = 1 << 17  # of a line: each event is one, and may take 25 times its bytes when read


@dataclass(frozen=True)
class Lines:
    """What a record of steps holds.

    Attributes
    ----------
    header : dict
        The first one.
    steps : list of dict
        With all fields; what is as in the step before is the same object.
    end : int
        Bytes up to the end of the last line that has one.
    size : int
        Bytes of the file.
    """

    header: dict[str, Any]
    steps: list[dict[str, Any]]
    end: int
    size: int


def read_lines(path: Path) -> Lines:
    """Read all lines that have an end, and check each.

    Raises
    ------
    InputError
        Names the file, the line, what was found and what was expected.
    """
    header: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    end = size = 0
    for line, content in _checked(path):
        size += len(line)
        end = size if content else end
        if content.get("kind") == "step":
            steps.append(content)
        elif content.get("kind") == "header":
            header = header or content
    if not header:
        raise InputError(f"{path} is not a record of steps: it has no header")
    return Lines(header, steps, end, size)


def check_lines(path: Path) -> None:
    """Check each line that has an end, and keep none.

    Raises
    ------
    InputError
        As `read_lines`.
    """
    if not sum(bool(content) for _, content in _checked(path)):
        raise InputError(f"{path} is not a record of steps: it has no header")


def _checked(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Lines and what they say: nothing of a last one that was cut off."""
    reader = LineReader()
    number = 0
    try:
        for line in _lines(path):
            number += 1
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                yield line, {}
                break
            yield line, reader.take(line)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except WrongLineError as error:
        raise InputError(f"{path}, line {number} {error}") from None


class WrongLineError(Exception):
    """What is wrong with a line, as the end of a sentence."""


class LineReader:
    """Checks one line after the other, and gives each step back with all its fields."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None  # None before a header, empty after one
        self._step = -1

    def take(self, line: bytes) -> dict[str, Any]:
        """What a line with an end says; its ``kind`` is one of those that a run writes.

        Raises
        ------
        WrongLineError
            No run writes such a line, or not there.
        """
        content = _parsed(line)
        kind = content.get("kind")
        if kind == "header":
            _check_version(content)
            self._last = {}
        elif self._last is None:
            raise WrongLineError("is no header of a record of steps")
        elif kind == "step":
            content = self._last = _whole(content, self._last, self._step)
            self._step = content["step"]
        elif kind == "progress":
            expected = _expected(content.get("known"), dict[str, float])
            if expected:
                found = shown(content.get("known"))
                raise WrongLineError(f'has "known" {found}: expected {expected}')
        elif kind != "checkpoint":
            raise WrongLineError("is neither a header nor a step, progress or a checkpoint")
        return content


def _check_version(header: dict[str, Any]) -> None:
    version = header.get("version", 1)
    if type(version) is not int or version != VERSION:
        raise WrongLineError(
            f"begins records of version {shown(version)}: expected version {VERSION}"
        )


def _lines(path: Path) -> Iterator[bytes]:
    with os.fdopen(open_regular(path), "rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            yield line


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) >= LONGEST_LINE:
        raise WrongLineError(f"has {len(line)} bytes or more: expected one JSON object")
    if line.count(b"{") > MOST_OBJECTS:
        raise WrongLineError(
            f"has more than {MOST_OBJECTS} braces: expected a step with fewer events"
        )
    try:
        content = json.loads(line, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise WrongLineError(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise WrongLineError(f"is {shown(content)}: expected one JSON object")
    return content


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _whole(content: dict[str, Any], last: dict[str, Any], number: int) -> dict[str, Any]:
    """A step with all its fields; `last` is the one before, and `number` the last one's."""
    step: dict[str, Any] = {"kind": "step"}
    for name, hint in HINTS.items():
        if name not in content:
            if name in DEFAULTS:
                step[name] = DEFAULTS[name] or type(DEFAULTS[name])()
            elif name in last and name != "step":
                step[name] = last[name]
            else:
                raise WrongLineError(f'has no "{name}": expected a step as this version records it')
            continue
        step[name] = content[name]
        expected = _expected(step[name], hint)
        if expected:
            raise WrongLineError(f'has "{name}" {shown(step[name])}: expected {expected}')
    if step["step"] <= number:
        raise WrongLineError(
            f"is step {step['step']} after step {number}: expected ascending numbers"
        )
    if not _OF_MACHINES.isdisjoint(content):
        _check_machines(step)
    return step


def _check_machines(step: dict[str, Any]) -> None:
    lengths = {name: len(step[name]) for name in HINTS if name in _OF_MACHINES}
    available = step["available"]
    del lengths["available"]
    machines = min(lengths.values())
    if not machines or len(set(lengths.values())) > 1:
        found = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise WrongLineError(f"has {found}: expected one of each for each machine")
    if machines > MOST_MACHINES:
        raise WrongLineError(f"has {machines} machines: expected at most {MOST_MACHINES}")
    if any(not 1 <= n <= machines for n in available) or len(set(available)) < len(available):
        raise WrongLineError(
            f'has "available" {shown(available)}: expected different machines of 1..{machines}'
        )
    for bounds in step["assignment"]:
        if len(bounds) % 2 or any(a >= b for a, b in pairwise(bounds)):
            raise WrongLineError(
                f'has "assignment" with {shown(bounds)}: expected bounds of intervals, ascending'
            )


def _expected(value: object, hint: Any) -> str:
    """What was expected in the place of a value; empty where the value is right."""
    if hint is Any:
        return ""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [_expected(value, each) for each in inner]
        return "" if "" in wanted else " or ".join(wanted)
    if origin is Annotated:
        return _expected_within(value, inner[1])
    if origin in (list, tuple):
        if not isinstance(value, list):
            return "a list"
        return next((f"a list of {found}" for v in value if (found := _expected(v, inner[0]))), "")
    if origin is dict:
        if not isinstance(value, dict):
            return "an object"
        wanted = [found for each in value.values() if (found := _expected(each, inner[1]))]
        return f"an object with {wanted[0]} for each name" if wanted else ""
    return _EXPECTED[hint](value)


def _expected_within(value: object, found: Within) -> str:
    if _expected_number(value):
        return f"a number of{found.unit}" if found.unit else "a finite number"
    assert isinstance(value, int | float)
    within = value == 0 or found.least <= value <= found.most
    return "" if within else f"0 or from {found.least} to {found.most}{found.unit}"


def _expected_number(value: object) -> str:
    try:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        right = right and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float reaches
        right = False
    return "" if right else "a finite number"


def _expected_whole(value: object) -> str:
    right = type(value) is int and 0 <= value < MOST
    return "" if right else "a whole number of at least 0 and below 2^53"


_EXPECTED: dict[Any, Callable[[object], str]] = {
    NoneType: lambda value: "" if value is None else "null",
    bool: lambda value: "" if isinstance(value, bool) else "true or false",
    int: _expected_whole,
    float: _expected_number,
    str: lambda value: "" if isinstance(value, str) else "text",
}


class Following:
    """Reads a record of steps that is perhaps still written.

    A last line without an end is waited for. A file that has been replaced, or that is shorter
    than it was, is read anew.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    is_there : bool
        Whether there was such a file when it was read last.
    behind : int
        Bytes that are still to be read.
    changed : float
        When the file was written last, in seconds since the epoch; 0 without a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._reader = LineReader()
        self._file: tuple[int, int] | None = None
        self._rest = b""
        self._read = self._number = 0
        self.is_there = False
        self.behind = 0
        self.changed = 0.0

    def new(self, most: int = 1 << 24) -> tuple[bool, list[dict[str, Any]]]:
        """What is new since it was asked last.

        Parameters
        ----------
        most : int
            Bytes, about, that are read at once; `behind` says what is left.

        Returns
        -------
        anew : bool
            The file is another one than before: what was read of it counts no more.
        lines : list of dict
            As a run writes them: each with its ``kind``.

        Raises
        ------
        InputError
            The file cannot be read, or a line is none of such a record.
        """
        try:
            with os.fdopen(open_regular(self._path), "rb", buffering=0) as stream:
                found = os.fstat(stream.fileno())
                file = found.st_dev, found.st_ino
                anew = self.is_there and (file != self._file or found.st_size < self._read)
                if anew:
                    self._forget()
                self.is_there, self._file = True, file
                stream.seek(self._read)
                data = stream.read(most)
        except FileNotFoundError:
            anew = self.is_there
            self._forget()
            return anew, []
        except NotAFileError as error:
            raise InputError(f"{self._path} is {error.kind}: expected a file") from None
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        self._read += len(data)
        self.behind, self.changed = max(0, found.st_size - self._read), found.st_mtime
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise InputError(
                f"{self._path}, line {self._number + len(lines) + 1} has more than "
                f"{LONGEST_LINE} bytes: expected one JSON object"
            )
        return anew, [self._taken(line) for line in lines]

    def _taken(self, line: bytes) -> dict[str, Any]:
        self._number += 1
        try:
            return self._reader.take(line + b"\n")
        except WrongLineError as error:
            raise InputError(f"{self._path}, line {self._number} {error}") from None
