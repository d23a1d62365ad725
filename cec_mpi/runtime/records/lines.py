"""Format lines of ``steps.jsonl``: only changed fields, and times rounded to nanoseconds.

With all fields, a step of 500 machines would take 20 kB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict, fields

from cec_mpi.runtime.records.events import Seconds
from cec_mpi.runtime.records.reading import Note
from cec_mpi.runtime.records.step import DEFAULTS, FIELDS, VERSION, StepLine, StepRecord

_TYPES = {field.name: field.type for field in fields(StepRecord)}
_TIME_LISTS = [name for name, type_ in _TYPES.items() if type_ == list[Seconds]]
_TIMES = [name for name, type_ in _TYPES.items() if type_ == Seconds]
_WITHOUT_DEFAULT = [name for name in FIELDS if name not in DEFAULTS]
_MIN_NUMPY_LENGTH = 64  # of a list, for NumPy to be faster
_MAX_ROUNDED_SECONDS = 2.0**20  # longer times have hardly any digits beyond nanoseconds


class LineFormatter:
    """Formats the lines of one part of a run: a header, then the changes of each step."""

    def __init__(self) -> None:
        self._previous: dict[str, Any] = {}

    def header(self, content: Mapping[str, Any]) -> str:
        """Return the first line of a part; the next step has all fields."""
        self._previous = {}
        return _format_line({"kind": "header", "version": VERSION, **content})

    def step(self, record: StepRecord) -> str:
        """Return the line of a step."""
        content = asdict(record)
        for name in _TIMES:
            content[name] = _round(content[name])
        for name in _TIME_LISTS:
            content[name] = _round_all(content[name])
        content["delays"] = {n: _round(seconds) for n, seconds in record.delays.items()}
        previous, self._previous = self._previous, content
        changed = {
            name: content[name]
            for name in _WITHOUT_DEFAULT
            if content[name] != previous.get(name, UNSET)
        }
        changed |= {
            name: content[name] for name, value in DEFAULTS.items() if content[name] != value
        }
        return _format_line(StepLine(**changed))

    def note(self, note: Note) -> str:
        """Return a line between steps."""
        return _format_line(note)


def _format_line(content: Any) -> str:
    try:
        text = msgspec.json.encode(content)
    except UnicodeEncodeError:  # escape bytes of paths that are not UTF-8
        text = msgspec.json.encode(_escape(msgspec.to_builtins(content)))
    return f"{text.decode()}\n"


def _escape(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode(errors="backslashreplace").decode()
    if isinstance(content, dict):
        return {_escape(name): _escape(value) for name, value in content.items()}
    return [_escape(value) for value in content] if isinstance(content, list) else content


def _round(seconds: float) -> float:
    if not 0 <= seconds < _MAX_ROUNDED_SECONDS:
        return seconds
    return round(seconds * 1e9) / 1e9


def _round_all(seconds: Sequence[float]) -> list[float]:
    if len(seconds) < _MIN_NUMPY_LENGTH:
        largest = max(seconds, default=0.0)
        if largest < _MAX_ROUNDED_SECONDS:  # times are not negative
            return [round(value * 1e9) / 1e9 for value in seconds] if largest else list(seconds)
        return [_round(value) for value in seconds]
    array = np.asarray(seconds, np.float64)
    largest = array.max()
    return np.round(array, 9).tolist() if largest < _MAX_ROUNDED_SECONDS else array.tolist()  # type: ignore[no-any-return]
