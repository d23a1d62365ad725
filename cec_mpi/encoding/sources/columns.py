"""Selection of columns of text tables, by name or by number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import InputError
from cec_mpi.text import closest_match, plural, shorten, truncate

_COLUMN_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")  # one column, or a range of columns
_MAX_LISTED = 8
_MAX_NAME_LENGTH = 40  # characters of a name


def choose_columns(
    path: Path, names: tuple[str, ...], width: int, options: EncodeOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns of X, in its order, and those of targets, counted from 0.

    Both are empty if the file has no columns.

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
        A column does not exist, is ambiguous or is listed twice, a target has several columns, or
        no column is left for X.
    """

    def find(option: str, selectors: Iterable[str | int]) -> list[int]:
        return [
            k for selector in selectors for k in _find_columns(path, option, selector, names, width)
        ]

    if not width:
        return (), ()
    selected = find("columns", options.columns or ()) or list(range(width))
    targets = find("target", (column for column, _ in options.target))
    for option, columns in (("columns", selected), ("target", targets)):
        if len(set(columns)) < len(columns):
            repeated = next(k for k in columns if columns.count(k) > 1)
            raise InputError(f"{option}: {column_label(repeated, names)} of {path} is listed twice")
    if len(targets) != len(options.target):
        raise InputError(f"target: expected one column of {path} for each file")
    excluded = {*find("drop", options.drop or ()), *targets}
    selected = [k for k in selected if k not in excluded]
    if not selected:
        raise InputError(f"{path} has {plural(width, 'column')}: none is left for X")
    return tuple(selected), tuple(targets)


def column_label(k: int, names: tuple[str, ...]) -> str:
    """Return the number of a column, from 1, and its name, for messages."""
    name = " ".join(names[k].split()) if k < len(names) else ""
    name = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}..."
    return f"column {k + 1} ({name})" if name else f"column {k + 1}"


def column_selector(k: int, names: tuple[str, ...]) -> str:
    """Return the selector of a column by number: 3, or number=3 if another has the name 3."""
    number = str(k + 1)
    is_ambiguous = number in (*names[:k], *names[k + 1 :])  # also another column's name
    return f"number={number}" if is_ambiguous else number


def _find_columns(
    path: Path, option: str, selector: str | int, names: tuple[str, ...], width: int
) -> list[int]:
    text = str(selector).strip()
    prefix, _, key = text.partition("=")
    if text in names or prefix not in ("name", "number"):
        prefix, key = "", text
    by_name = [k for k, name in enumerate(names) if name and name == key]
    by_number = _parse_range(key, width)
    if prefix == "number" or not isinstance(selector, str):
        by_name = []
    elif prefix == "name":
        by_number = []
    if by_name and by_number and by_name != by_number:
        raise InputError(
            f"{option} {text!r}: {path} has a column with this number and another with this name, "
            f"{column_label(by_name[-1], names)}: expected number={text} or name={text}"
        )
    if len(by_name) > 1:
        numbers = ", ".join(str(k + 1) for k in by_name)
        raise InputError(
            f"{option} {text!r}: {path} has {len(by_name)} columns with this name, expected the "
            f"number of one of them ({numbers})"
        )
    if by_name or by_number:
        return by_number or by_name
    if _COLUMN_NUMBERS.fullmatch(key):
        raise InputError(f"{option} {text!r}: expected columns 1 to {width} of {path}")
    raise InputError(
        f"{option} {shorten(text)}: {path} has no such column: {_column_hint(text, names)}"
    )


def _parse_range(text: str, width: int) -> list[int]:
    """Return the columns of a number from 1 or a range such as 5-9; [] if they do not exist."""
    match = _COLUMN_NUMBERS.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    return list(range(first - 1, last)) if 1 <= first <= last <= width else []


def _column_hint(text: str, names: tuple[str, ...]) -> str:
    """Return a hint for a name that no column has."""
    if not any(names):
        return "columns have no names, expected numbers counted from 1"
    if len(names) == 1 and ";" in names[0]:
        return f"its only column is {shorten(names[0])} (try --delimiter semicolon)"
    names_in_other_case = (name for name in names if name.lower() == text.lower())
    if similar := closest_match(text, names) or next(names_in_other_case, ""):
        return f"did you mean {similar!r}?"
    return f"its columns are {truncate(names, _MAX_LISTED)}"
