"""Lines of ``steps.jsonl`` as they are written: what has changed, and no digits that say nothing.

A step of 500 machines took 20 kB when each line had everything. What machines measure ends at a
nanosecond, and most of the rest is as on the line before.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from cec_mpi.records.step import HINTS, VERSION, Seconds, StepRecord

_LISTS = [name for name, hint in HINTS.items() if hint == list[Seconds]]
_TIMES = [name for name, hint in HINTS.items() if hint == Seconds]  # others are computed
_LONG = 64  # numbers: with fewer, NumPy takes longer to begin than to round
_FINE = 2.0**20  # seconds: of longer ones a float has no nanoseconds

DEFAULTS: dict[str, Any] = {
    each.name: each.default if each.default is not MISSING else []
    for each in fields(StepRecord)
    if each.default is not MISSING or each.default_factory is not MISSING
}
"""What a field is that a line leaves out, where nothing happened; all others are as before."""

_ESCAPE = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)")  # a group: half of a pair
_encode = json.JSONEncoder(allow_nan=False).encode


class LineWriter:
    """Makes the lines of one part of a run: a header, then what is new in each step."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def header(self, common: Mapping[str, Any]) -> str:
        """The first line of a part; the step after it has every field."""
        self._last = {}
        return _line({"kind": "header", "version": VERSION, **common})

    def step(self, record: StepRecord) -> str:
        """The line of a step."""
        content = {**vars(record), "available": list(record.available)}
        for name in _TIMES:
            content[name] = _rounded(content[name])
        for name in _LISTS:
            content[name] = _all_rounded(content[name])
        last, self._last = self._last, content
        new: dict[str, Any] = {"kind": "step", "step": record.step}
        for name, value in content.items():
            if name in DEFAULTS:
                if value != DEFAULTS[name]:
                    new[name] = value
            elif name not in last or last[name] != value:
                new[name] = value
        return _line(new)

    def note(self, kind: str, **content: Any) -> str:
        """A line of its own, of what is known after the step before it."""
        return _line({"kind": kind, **content})


def _line(content: dict[str, Any]) -> str:
    for name, value in content.items():
        if value.__class__ is float and value - value != 0:  # infinite, or no number
            if math.isnan(value):
                continue  # which the encoder refuses
            content[name] = None
    text = _encode(content)
    if "\\ud" in text:  # paths need not be UTF-8, and half of a pair is not JSON for every reader
        text = _ESCAPE.sub(lambda found: "\\" * bool(found[1]) + found[0], text)
    return text + "\n"


def _rounded(seconds: float) -> float:
    if not 0 <= seconds < _FINE:
        return seconds
    return round(seconds * 1e9) / 1e9


def _all_rounded(seconds: Sequence[float]) -> list[float]:
    if len(seconds) < _LONG:
        return [_rounded(each) for each in seconds]
    array = np.asarray(seconds, np.float64)
    largest = array.max()
    return np.round(array, 9).tolist() if largest < _FINE else array.tolist()  # type: ignore[no-any-return]
