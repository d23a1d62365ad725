"""Read ``steps.jsonl``: check each line, and complete it from the previous lines."""

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
    MACHINE_FIELDS,
    VERSION,
    Checkpoint,
    Header,
    IntervalBounds,
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

MAX_LINE_BYTES = 1 << 25  # five times the line of a step with 100,000 machines
MAX_OBJECTS = 1 << 17  # JSON objects in a line; in memory, they may take 25 times its size
_get_checked_fields = attrgetter(
    *(n for n in MACHINE_FIELDS if n != "compute_seconds"), "available", "absent_since"
)
_DEFAULT_VALUES: tuple[Any, ...] = tuple(DEFAULTS.get(name, UNSET) for name in FIELDS)
_REQUIRED_COUNT = len(FIELDS) - len(DEFAULTS)  # the fields without defaults come first

Note = Progress | Checkpoint | Unfinished | Waiting
"""A line between two steps: values of the task, a checkpoint, events or a wait."""

Line = Header | StepRecord | Note


class _AnyHeader(Struct, tag="header", tag_field="kind"):
    """A header of any version; only headers of this version fit the schema `Header`."""

    version: Any = 1


_line_decoder = msgspec.json.Decoder(_AnyHeader | StepLine | Note)
_header_decoder = msgspec.json.Decoder(Header)


class InvalidLineError(Exception):
    """A line is invalid.

    A message from `LineReader.read` begins with the number of the line. Any other message is the
    rest of such a sentence, for example "is not a header of a record of steps".
    """


LINE_ERRORS = InvalidLineError, msgspec.DecodeError, ValueError, RecursionError
"""Errors of invalid lines."""


def decode_line(line: bytes) -> Any:
    """Decode a line to a `Header`, a `Note` or a `StepLine`.

    Raises
    ------
    one of LINE_ERRORS
        The line is invalid.
    """
    if len(line) >= MAX_LINE_BYTES:
        raise InvalidLineError(f"has {len(line)} bytes or more: expected one JSON object")
    if len(line) > MAX_OBJECTS and line.count(b"{") > MAX_OBJECTS:
        raise InvalidLineError(
            f"has more than {MAX_OBJECTS} braces: expected a step with fewer events"
        )
    content = _line_decoder.decode(line)
    if isinstance(content, _AnyHeader):
        if type(content.version) is not int or content.version != VERSION:
            raise InvalidLineError(
                f"begins records of version {shorten(content.version)}: expected version {VERSION}"
            )
        header = _header_decoder.decode(line)
        if header.started is not UNSET:
            parse_timestamp(header.started)
        header.content = msgspec.json.decode(line)
        return header
    if isinstance(content, Unfinished | StepLine) and content.events is not UNSET:
        check_events(content.events)
    if isinstance(content, Waiting | StepLine) and content.time is not UNSET:
        parse_timestamp(content.time)
    return content


def _error_text(error: Exception) -> str:
    """Return the message of an error, to follow the line number."""
    if type(error) is msgspec.DecodeError:
        return f" is not JSON: {error}"
    problem, _, field = str(error).partition(" - at `$.")
    if not field:
        return f": {problem}"
    return f', field "{field.removesuffix("`")}": {problem[:1].lower()}{problem[1:]}'


class LineReader:
    """Checks lines in order, and completes the fields of each step."""

    def __init__(self) -> None:
        self._has_header = False
        self._last: StepRecord | None = None  # since the last header
        self._previous_values = _DEFAULT_VALUES  # for fields that a line omits
        self._last_number = -1
        self._line_number = 0

    def read(self, line: bytes) -> Line:
        """Return the content of a complete line.

        Unchanged fields of a step are the same objects as in the previous step.

        Raises
        ------
        InvalidLineError
            The line is invalid, or contradicts the previous lines; the message has its number.
        """
        self._line_number += 1
        try:
            content = decode_line(line)
            if self._has_header and isinstance(content, StepLine):
                return self._complete_step(content)
            if isinstance(content, Header):
                self._has_header, self._last, self._previous_values = True, None, _DEFAULT_VALUES
            elif not self._has_header:
                raise InvalidLineError("is not a header of a record of steps")
        except InvalidLineError as error:
            raise InvalidLineError(f"line {self._line_number} {error}") from None
        except LINE_ERRORS as error:
            raise InvalidLineError(f"line {self._line_number}{_error_text(error)}") from None
        return content  # type: ignore[no-any-return]

    def _complete_step(self, line: Any) -> StepRecord:
        """Return a step, including the fields that its line omits."""
        values = [
            old if new is UNSET else new
            for new, old in zip(astuple(line), self._previous_values, strict=True)
        ]
        if line.step is UNSET or (self._last is None and UNSET in values):
            missing = FIELDS[values.index(UNSET)] if UNSET in values else "step"
            raise InvalidLineError(f'has no "{missing}": expected a step of version {VERSION}')
        record = StepRecord(*values)
        if record.step <= self._last_number:
            raise InvalidLineError(
                f"is step {record.step} after step {self._last_number}: expected ascending step "
                "numbers"
            )
        self._check_machines(record)
        self._last_number, self._last = record.step, record
        self._previous_values = (*values[:_REQUIRED_COUNT], *_DEFAULT_VALUES[_REQUIRED_COUNT:])
        return record

    def _check_machines(self, record: StepRecord) -> None:
        last = self._last
        if (
            last is not None
            and len(record.compute_seconds) == len(last.compute_seconds)
            and all(map(is_, _get_checked_fields(record), _get_checked_fields(last)))
        ):
            return
        lengths = {name: len(getattr(record, name)) for name in MACHINE_FIELDS}
        check_machines(lengths, record.available, record.absent_since)
        if last is None or record.assignment is not last.assignment:
            IntervalBounds.from_lists(record.assignment)  # raises if they are invalid


@dataclass(frozen=True)
class RunRecords:
    """Content of ``steps.jsonl``.

    Attributes
    ----------
    header : dict
        The first header.
    steps : list of StepRecord
        Unchanged fields are the same objects as in the previous step.
    unfinished_events : list of Event
        Events in steps that were not completed.
    end : int
        Size in bytes up to the end of the last complete line.
    size : int
        Size of the file in bytes.
    """

    header: dict[str, Any]
    steps: list[StepRecord]
    unfinished_events: list[Event]
    end: int
    size: int


def read_records(path: Path) -> RunRecords:
    """Read and check all lines; an incomplete last line is skipped.

    Raises
    ------
    InputError
        The message names the file, the line and the field, and the found and expected values.
    """
    header: dict[str, Any] = {}
    steps: list[StepRecord] = []
    unfinished_events: list[Event] = []
    end = size = 0
    for line, content in _checked_lines(path):
        size += len(line)
        end = size if content is not None else end
        if isinstance(content, StepRecord):
            steps.append(content)
        elif isinstance(content, Unfinished):
            unfinished_events += content.events
        elif isinstance(content, Header):
            header = header or content.content
    return RunRecords(header, steps, unfinished_events, end, size)


def iterate_lines(path: Path) -> Iterator[Line]:
    """Yield the content of each line; an incomplete last line is skipped.

    Raises
    ------
    InputError
        See `read_records`.
    """
    return (content for _, content in _checked_lines(path) if content is not None)


def _checked_lines(path: Path) -> Iterator[tuple[bytes, Line | None]]:
    """Yield lines with their content; that of an incomplete last line is None."""
    reader, content = LineReader(), None
    try:
        for line in _iterate_raw_lines(path):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                yield line, None
                break
            content = reader.read(line)
            yield line, content
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except InvalidLineError as error:
        raise InputError(f"{path}, {error}") from None
    if content is None:
        raise InputError(f"{path} is not a record of steps: it has no header")


def _iterate_raw_lines(path: Path) -> Iterator[bytes]:
    with os.fdopen(open_regular(path), "rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            yield line


class RecordFollower:
    """Reads a ``steps.jsonl`` that may still be written.

    An incomplete last line is read later. A file that was replaced or became shorter is read again
    from its beginning.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    exists : bool
        Whether the file existed when it was last read.
    unread_bytes : int
        Bytes that remain to be read.
    modified_at : float
        Modification time in seconds since the epoch; 0 without a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reset()

    def _reset(self) -> None:
        self._reader = LineReader()
        self._file_id: tuple[int, int] | None = None
        self._incomplete_line = b""
        self._read_bytes = 0
        self.exists = False
        self.unread_bytes = 0
        self.modified_at = 0.0

    def read_new(self, limit: int = 1 << 24) -> tuple[bool, list[Line]]:
        """Return the lines added since the last call.

        Parameters
        ----------
        limit : int
            Maximum number of bytes to read; `unread_bytes` is the rest.

        Returns
        -------
        is_replaced : bool
            Whether the file was replaced, shortened or removed, so that earlier lines are invalid.
        lines : list of Header, StepRecord or Note

        Raises
        ------
        InputError
            The file cannot be read, or a line is invalid.
        """
        try:
            with os.fdopen(open_regular(self._path), "rb", buffering=0) as stream:
                status = os.fstat(stream.fileno())
                file_id = status.st_dev, status.st_ino
                is_replaced = self.exists and (
                    file_id != self._file_id or status.st_size < self._read_bytes
                )
                if is_replaced:
                    self._reset()
                self.exists, self._file_id = True, file_id
                stream.seek(self._read_bytes)
                data = stream.read(limit)
        except FileNotFoundError:
            is_replaced = self.exists
            self._reset()
            return is_replaced, []
        except NotAFileError as error:
            raise InputError(f"{self._path} is {error.kind}: expected a file") from None
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        self._read_bytes += len(data)
        self.unread_bytes = max(0, status.st_size - self._read_bytes)
        self.modified_at = status.st_mtime
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        if len(self._incomplete_line) > MAX_LINE_BYTES:
            raise InputError(
                f"{self._path} has a line of more than {MAX_LINE_BYTES} bytes: expected a JSON "
                "object"
            )
        try:
            return is_replaced, [self._reader.read(line + b"\n") for line in lines]
        except InvalidLineError as error:
            raise InputError(f"{self._path}, {error}") from None
