"""Columns of text tables, which options select by name or by number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import InputError
from cec_mpi.text import closest_match, shorten, truncate

_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")  # one column, or a range of columns
_LISTED = 8
_LONGEST = 40  # characters of a name


def choose_columns(
    path: Path, names: tuple[str, ...], width: int, options: EncodeOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns of X, in its order, and those of targets, counted from 0.

    Parameters
    ----------
    path : Path
        Name of the file, for messages.
    names : tuple of str
        Names of all columns; empty if the file has no header.
    width : int
        Number of columns.
    options : EncodeOptions

    Raises
    ------
    InputError
        A column does not exist or is listed twice, or none is left.
    """

    def find(option: str, words: Iterable[str | int]) -> list[int]:
        return [at for word in words for at in _find_columns(path, option, word, names, width)]

    if not width:
        return (), ()
    kept = find("columns", options.columns or ()) or list(range(width))
    targets = find("target", (column for column, _ in options.target))
    for option, found in (("columns", kept), ("target", targets)):
        if len(set(found)) < len(found):
            twice = next(at for at in found if found.count(at) > 1)
            raise InputError(f"{option}: {column_label(twice, names)} of {path} is listed twice")
    if len(targets) != len(options.target):
        raise InputError(f"target: expected one column of {path} for each file")
    gone = {*find("drop", options.drop or ()), *targets}
    kept = [at for at in kept if at not in gone]
    if not kept:
        raise InputError(f"{path} has {width} columns, but none of them is left for X")
    return tuple(kept), tuple(targets)


def column_label(at: int, names: tuple[str, ...]) -> str:
    """Return the number of a column, from 1, and its name."""
    name = " ".join(names[at].split()) if at < len(names) else ""
    name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return f"column {at + 1} ({name})" if name else f"column {at + 1}"


def column_word(at: int, names: tuple[str, ...]) -> str:
    """Return a column as an option takes it: its number, which another may have as its name."""
    number = str(at + 1)
    return f"number={number}" if number in (*names[:at], *names[at + 1 :]) else number


def _find_columns(
    path: Path, option: str, word: str | int, names: tuple[str, ...], width: int
) -> list[int]:
    text = str(word).strip()
    kind, _, rest = text.partition("=")
    if text in names or kind not in ("name", "number"):
        kind, rest = "", text
    by_name = [at for at, name in enumerate(names) if name and name == rest]
    by_number = _parse_range(rest, width)
    if kind == "number" or not isinstance(word, str):
        by_name = []
    elif kind == "name":
        by_number = []
    if by_name and by_number and by_name != by_number:
        raise InputError(
            f"{option} {text!r}: {path} has a column of this number and another of this name, "
            f"{column_label(by_name[-1], names)}: expected number={text} or name={text}"
        )
    if len(by_name) > 1:
        numbers = ", ".join(str(at + 1) for at in by_name)
        raise InputError(
            f"{option} {text!r}: {path} has {len(by_name)} columns of this name, expected the "
            f"number of one of them ({numbers})"
        )
    if by_name or by_number:
        return by_number or by_name
    if _NUMBERS.fullmatch(rest):
        raise InputError(f"{option} {text!r}: expected columns 1 to {width} of {path}")
    raise InputError(
        f"{option} {shorten(text)}: {path} has no such column: {_column_hint(text, names)}"
    )


def _parse_range(text: str, width: int) -> list[int]:
    """Return the columns of a number from 1, or of a range such as 5-9, if they exist."""
    found = _NUMBERS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    return list(range(first - 1, last)) if 1 <= first <= last <= width else []


def _column_hint(text: str, names: tuple[str, ...]) -> str:
    """Return which columns an unknown name may mean."""
    if not any(names):
        return "columns have no names, expected numbers from 1 on"
    alike = (name for name in names if name.lower() == text.lower())
    if close := closest_match(text, names) or next(alike, ""):
        return f"did you mean {close!r}?"
    return f"its columns are {truncate(names, _LISTED)}"
