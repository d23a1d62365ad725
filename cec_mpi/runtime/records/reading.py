"""Reading ``steps.jsonl``: each line is checked, and completed by those before it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter, is_
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import astuple

from cec_mpi.errors import InputError
from cec_mpi.runtime.records.events import Event
from cec_mpi.runtime.records.step import (
    DEFAULTS,
    FIELDS,
    PER_MACHINE,
    VERSION,
    Bounds,
    Checkpoint,
    Header,
    Progress,
    StepLine,
    StepRecord,
    Unfinished,
    Waiting,
    check_events,
    check_machines,
    parse_timestamp,
)
from cec_mpi.store.files.regular import NotAFileError, open_regular
from cec_mpi.text import shorten

MAX_LINE_BYTES = 1 << 25  # bytes: a step of a hundred thousand machines takes a fifth
MAX_OBJECTS = 1 << 17  # of a line: each event is one, and may take 25 times its bytes when read
_machines_of = attrgetter(*(n for n in PER_MACHINE if n != "seconds"), "available", "away")
_DEFAULT_VALUES: tuple[Any, ...] = tuple(DEFAULTS.get(name, UNSET) for name in FIELDS)
_REQUIRED = len(FIELDS) - len(DEFAULTS)  # the fields without defaults come first

Note = Progress | Checkpoint | Unfinished | Waiting
"""A line between steps."""

Line = Header | StepRecord | Note


class _AnyHeader(Struct, tag="header", tag_field="kind"):
    """A header of any version: only those of this one are read by their schema."""

    version: Any = 1


_lines = msgspec.json.Decoder(_AnyHeader | StepLine | Note)
_headers = msgspec.json.Decoder(Header)


class InvalidLineError(Exception):
    """An error in a line; the message follows the number of the line."""


LINE_ERRORS = InvalidLineError, msgspec.DecodeError, ValueError, RecursionError
"""Errors of a line that no run writes."""


def decode_line(line: bytes) -> Any:
    """Return a line as a `Header`, a `Note` or a `StepLine`.

    Raises
    ------
    one of LINE_ERRORS
        No run writes such a line.
    """
    if len(line) >= MAX_LINE_BYTES:
        raise InvalidLineError(f"has {len(line)} bytes or more: expected one JSON object")
    if len(line) > MAX_OBJECTS and line.count(b"{") > MAX_OBJECTS:
        raise InvalidLineError(
            f"has more than {MAX_OBJECTS} braces: expected a step with fewer events"
        )
    found = _lines.decode(line)
    if isinstance(found, _AnyHeader):
        if type(found.version) is not int or found.version != VERSION:
            raise InvalidLineError(
                f"begins records of version {shorten(found.version)}: expected version {VERSION}"
            )
        header = _headers.decode(line)
        if header.started is not UNSET:
            parse_timestamp(header.started)
        header.about = msgspec.json.decode(line)
        return header
    if isinstance(found, Unfinished | StepLine) and found.events is not UNSET:
        check_events(found.events)
    if isinstance(found, Waiting | StepLine) and found.time is not UNSET:
        parse_timestamp(found.time)
    return found


def _describe(error: Exception) -> str:
    """Return what is wrong with a line, after its number."""
    if type(error) is msgspec.DecodeError:
        return f" is not JSON: {error}"
    problem, _, field = str(error).partition(" - at `$.")
    if not field:
        return f": {problem}"
    return f', field "{field.removesuffix("`")}": {problem[:1].lower()}{problem[1:]}'


class LineReader:
    """Checks lines in their order, and completes the fields of each step."""

    def __init__(self) -> None:
        self._has_header = False
        self._last: StepRecord | None = None  # of the part of the last header
        self._before = _DEFAULT_VALUES  # its fields, or their defaults
        self._step = -1
        self._number = 0

    def take(self, line: bytes) -> Line:
        """Return the content of a complete line.

        In a step, fields that have not changed are the objects of the step before.

        Raises
        ------
        InvalidLineError
            The line is invalid at this point; the message has its number.
        """
        self._number += 1
        try:
            found = decode_line(line)
            if self._has_header and isinstance(found, StepLine):
                return self._complete_step(found)
            if isinstance(found, Header):
                self._has_header, self._last, self._before = True, None, _DEFAULT_VALUES
            elif not self._has_header:
                raise InvalidLineError("is no header of a record of steps")
        except InvalidLineError as error:
            raise InvalidLineError(f"line {self._number} {error}") from None
        except LINE_ERRORS as error:
            raise InvalidLineError(f"line {self._number}{_describe(error)}") from None
        return found  # type: ignore[no-any-return]

    def _complete_step(self, line: Any) -> StepRecord:
        """Return a step with the fields that its line leaves out."""
        values = [
            old if new is UNSET else new
            for new, old in zip(astuple(line), self._before, strict=True)
        ]
        if line.step is UNSET or (self._last is None and UNSET in values):
            missing = FIELDS[values.index(UNSET)] if UNSET in values else "step"
            raise InvalidLineError(
                f'has no "{missing}": expected a step as this version records it'
            )
        record = StepRecord(*values)
        if record.step <= self._step:
            raise InvalidLineError(
                f"is step {record.step} after step {self._step}: expected ascending numbers"
            )
        self._check_machines(record)
        self._step, self._last = record.step, record
        self._before = (*values[:_REQUIRED], *_DEFAULT_VALUES[_REQUIRED:])
        return record

    def _check_machines(self, record: StepRecord) -> None:
        last = self._last
        if (
            last is not None
            and len(record.seconds) == len(last.seconds)
            and all(map(is_, _machines_of(record), _machines_of(last)))
        ):
            return
        lengths = {name: len(getattr(record, name)) for name in PER_MACHINE}
        check_machines(lengths, record.available, record.away)
        if last is None or record.assignment is not last.assignment:
            Bounds.of(record.assignment)


@dataclass(frozen=True)
class Lines:
    """Content of a record of steps.

    Attributes
    ----------
    header : dict
        The first one.
    steps : list of StepRecord
        Unchanged fields are the same objects as in the previous step.
    unfinished : list of Event
        What happened in steps that did not end.
    end : int
        Bytes up to the end of the last line that has one.
    size : int
        Bytes of the file.
    """

    header: dict[str, Any]
    steps: list[StepRecord]
    unfinished: list[Event]
    end: int
    size: int


def read_lines(path: Path) -> Lines:
    """Read and check all lines; an incomplete last line is skipped.

    Raises
    ------
    InputError
        With the file, the line, the field, what was found and what was expected.
    """
    header: dict[str, Any] = {}
    steps: list[StepRecord] = []
    unfinished: list[Event] = []
    end = size = 0
    for line, found in _checked(path):
        size += len(line)
        end = size if found is not None else end
        if isinstance(found, StepRecord):
            steps.append(found)
        elif isinstance(found, Unfinished):
            unfinished += found.events
        elif isinstance(found, Header):
            header = header or found.about
    return Lines(header, steps, unfinished, end, size)


def iterate_lines(path: Path) -> Iterator[Line]:
    """Yield the content of each line; an incomplete last line is skipped.

    Raises
    ------
    InputError
        As `read_lines`.
    """
    return (found for _, found in _checked(path) if found is not None)


def _checked(path: Path) -> Iterator[tuple[bytes, Line | None]]:
    """Yield lines and what they say, None for a last one that was cut off."""
    reader, found = LineReader(), None
    try:
        for line in _read(path):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                yield line, None
                break
            found = reader.take(line)
            yield line, found
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except InvalidLineError as error:
        raise InputError(f"{path}, {error}") from None
    if found is None:
        raise InputError(f"{path} is not a record of steps: it has no header")


def _read(path: Path) -> Iterator[bytes]:
    with os.fdopen(open_regular(path), "rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            yield line


class RecordFollower:
    """Reads a record of steps that may still be written.

    A last line without an end is read later. A file that was replaced, or became shorter, is read
    again from its beginning.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    exists : bool
        Whether the file existed when it was read last.
    unread_bytes : int
        Bytes that are still to be read.
    modified_at : float
        When the file was written last, in seconds since the epoch; 0 without a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._reader = LineReader()
        self._file: tuple[int, int] | None = None
        self._rest = b""
        self._read = 0
        self.exists = False
        self.unread_bytes = 0
        self.modified_at = 0.0

    def read_new(self, most: int = 1 << 24) -> tuple[bool, list[Line]]:
        """Return the lines added since the last call.

        Parameters
        ----------
        most : int
            About this many bytes are read; `unread_bytes` is the rest.

        Returns
        -------
        is_replaced : bool
            Whether the file was replaced, so that earlier lines are void.
        lines : list of Header, StepRecord or Note

        Raises
        ------
        InputError
            The file cannot be read, or no run writes such a line.
        """
        try:
            with os.fdopen(open_regular(self._path), "rb", buffering=0) as stream:
                found = os.fstat(stream.fileno())
                file = found.st_dev, found.st_ino
                is_replaced = self.exists and (file != self._file or found.st_size < self._read)
                if is_replaced:
                    self._forget()
                self.exists, self._file = True, file
                stream.seek(self._read)
                data = stream.read(most)
        except FileNotFoundError:
            is_replaced = self.exists
            self._forget()
            return is_replaced, []
        except NotAFileError as error:
            raise InputError(f"{self._path} is {error.kind}: expected a file") from None
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        self._read += len(data)
        self.unread_bytes, self.modified_at = max(0, found.st_size - self._read), found.st_mtime
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{self._path} has a line above {MAX_LINE_BYTES} bytes: expected a JSON object"
            )
        try:
            return is_replaced, [self._reader.take(line + b"\n") for line in lines]
        except InvalidLineError as error:
            raise InputError(f"{self._path}, {error}") from None
