"""Lines of ``steps.jsonl`` read back: each has to be what a run writes.

What a step is follows from the fields of a dataclass and their types, so that whoever adds a
field has said here what it looks like.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cec_mpi.errors import InputError
from cec_mpi.files.regular import open_regular
from cec_mpi.text import shown

Seconds = Annotated[float, "seconds"]
"""A time that is counted with: one that adds up and divides to finite numbers."""

_LEAST_SECONDS, _MOST_SECONDS = 1e-30, 1e30
_LARGEST = 2**63 - 1
_LONGEST_LINE = 1 << 26  # bytes: a step of a hundred thousand machines takes a tenth


@dataclass(frozen=True)
class Lines:
    """What a record of steps holds.

    Attributes
    ----------
    header : dict
        The first one.
    steps : list of dict
    end : int
        Bytes up to the end of the last line that has one.
    size : int
        Bytes of the file.
    """

    header: dict[str, Any]
    steps: list[dict[str, Any]]
    end: int
    size: int


def read_lines(path: Path, kind: type) -> Lines:
    """Read all lines that have an end, and check each.

    Parameters
    ----------
    path : Path
    kind : type
        The dataclass that a step is.

    Raises
    ------
    InputError
        Names the file, the line, what was found and what was expected.
    """
    hints = get_type_hints(kind, include_extras=True)
    headers: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    number = end = size = 0
    try:
        for line in _lines(path):
            number += 1
            size += len(line)
            if not line.endswith(b"\n"):
                break
            end = size
            content = _parsed(line)
            if content.get("kind") == "header":
                headers.append(content)
            elif not headers:
                raise _WrongError("is no header of a record of steps")
            elif content.get("kind") == "step":
                _check_step(content, hints, steps[-1]["step"] if steps else -1)
                steps.append(content)
            else:
                raise _WrongError("is neither a header nor a step")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except _WrongError as error:
        raise InputError(f"{path}, line {number} {error}") from None
    if not headers:
        raise InputError(f"{path} is not a record of steps: it has no header")
    return Lines(headers[0], steps, end, size)


class _WrongError(Exception):
    """What is wrong with a line, as the end of a sentence."""


def _lines(path: Path) -> Iterator[bytes]:
    with os.fdopen(open_regular(path), "rb") as stream:
        while line := stream.readline(_LONGEST_LINE):
            yield line


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) >= _LONGEST_LINE:
        raise _WrongError(f"has {len(line)} bytes or more: expected one JSON object")
    try:
        content = json.loads(line, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise _WrongError(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise _WrongError(f"is {shown(content)}: expected one JSON object")
    return content


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _check_step(step: dict[str, Any], hints: dict[str, Any], last: int) -> None:
    """Raise `_WrongError` unless this is a step, and one that comes after the last one."""
    for name, hint in hints.items():
        if name not in step:
            raise _WrongError(f'has no "{name}": expected a step as this version records it')
        expected = _expected(step[name], hint)
        if expected:
            raise _WrongError(f'has "{name}" {shown(step[name])}: expected {expected}')
    if step["step"] <= last:
        raise _WrongError(f"is step {step['step']} after step {last}: expected ascending numbers")
    lengths = {name: len(step[name]) for name, hint in hints.items() if _is_of_machines(hint)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise _WrongError(f"has {found}: expected one of each for each machine")
    machines = min(lengths.values(), default=0)
    available = step["available"]
    if any(not 1 <= n <= machines for n in available) or len(set(available)) < len(available):
        raise _WrongError(
            f'has "available" {shown(available)}: expected different machines of 1..{machines}'
        )


def _is_of_machines(hint: Any) -> bool:
    """Whether a field has an entry for each machine of the store, as lists of numbers have."""
    return get_origin(hint) is list and get_args(hint)[0] in (int, float)


def _expected(value: object, hint: Any) -> str:
    """What was expected in the place of a value; empty where the value is right."""
    if hint is Any:
        return ""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [_expected(value, each) for each in inner]
        return "" if "" in wanted else " or ".join(wanted)
    if origin is Annotated:
        return _expected_seconds(value)
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


def _expected_seconds(value: object) -> str:
    if _expected_number(value):
        return "a number of seconds"
    assert isinstance(value, int | float)
    within = value == 0 or _LEAST_SECONDS <= value <= _MOST_SECONDS
    return "" if within else f"0 or from {_LEAST_SECONDS} to {_MOST_SECONDS} seconds"


def _expected_number(value: object) -> str:
    try:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        right = right and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float reaches
        right = False
    return "" if right else "a finite number"


def _expected_whole(value: object) -> str:
    right = type(value) is int and 0 <= value <= _LARGEST
    return "" if right else "a whole number of at least 0 and below 2^63"


_EXPECTED: dict[Any, Callable[[object], str]] = {
    NoneType: lambda value: "" if value is None else "null",
    bool: lambda value: "" if isinstance(value, bool) else "true or false",
    int: _expected_whole,
    float: _expected_number,
    str: lambda value: "" if isinstance(value, str) else "text",
}
