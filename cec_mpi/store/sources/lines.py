"""Text tables as lines, rows and cells, as a person sees them in an editor or a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cec_mpi.errors import InputError

_SPACES = re.compile(r"\s+")
_MISSING = {"", "?", "-", "--", ".", "na", "n/a", "#n/a", "null", "none", "missing"}
_MOST_IN_QUOTES = 16 << 20  # bytes of one row with line breaks in quotes


def records(file: Iterable[bytes], delimiter: str) -> Iterator[tuple[bytes, int]]:
    """Rows, comments and empty lines of a table, each with the number of lines that it takes.

    A line break in quotes ends a line, not a row.

    Parameters
    ----------
    file : iterable of bytes
        Gives lines.
    delimiter : str
        One character; a blank stands for any white space.

    Raises
    ------
    InputError
        A quote is not closed.
    """
    rest = iter(file)
    number = 1
    for line in rest:
        lines = 1
        if b'"' in line and line.count(b'"') % 2 and is_row(line):
            parts, size = [line], len(line)
            is_open = _split(line.decode("latin-1"), delimiter)[1]
            while is_open:
                more = next(rest, b"")
                parts.append(more)
                size += len(more)
                lines += 1
                if not more or size > _MOST_IN_QUOTES:
                    raise InputError(f"line {number} opens a quote that no line closes")
                if b'"' in more:
                    is_open = _split(f'"{more.decode("latin-1")}', delimiter)[1]
            line = b"".join(parts)
        yield line, lines
        number += lines


def is_row(line: bytes) -> bool:
    """Whether a line is neither empty nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith(b"#")


def cells_of(row: bytes, delimiter: str) -> list[str]:
    """The cells of a row, without their quotes and the blanks around them."""
    return _split(row.decode("utf-8-sig", errors="replace"), delimiter)[0]


def count_cells(row: bytes, delimiter: str) -> int:
    """How many cells a row has."""
    if b'"' in row:
        return len(cells_of(row, delimiter))
    return len(row.split()) if delimiter == " " else row.count(delimiter.encode()) + 1


def is_number(word: str) -> bool:
    """Whether a cell holds a number, NaN and infinity among them.

    Examples
    --------
    >>> [is_number(word) for word in ("-1.5e3", "nan", "inf", "", "?", "1_000", "1,5")]
    [True, True, True, False, False, False, False]
    """
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word  # which Python alone takes


def names_or_numbers(cells: list[str]) -> bool | None:
    """Whether the first row of a table is a header; None where nobody can tell.

    Examples
    --------
    >>> names_or_numbers(["age", "size"]), names_or_numbers(["1", "nan"])
    (True, False)
    >>> names_or_numbers(["1", "?", "3"]), names_or_numbers(["?", ""])
    (None, None)
    """
    numbers = sum(map(is_number, cells))
    if numbers == len(cells):
        return False
    if numbers or all(cell.lower() in _MISSING for cell in cells):
        return None
    return True


def _split(text: str, delimiter: str) -> tuple[list[str], bool]:
    """Cells, and whether the last one is in quotes that are still to be closed."""
    gap = _SPACES if delimiter == " " else re.compile(re.escape(delimiter))
    text = text.strip() if delimiter == " " else text
    cells: list[str] = []
    at = 0
    while True:
        quoted = ""
        if text.startswith('"', at):  # elsewhere in a cell a quote is a letter
            at += 1
            while (end := text.find('"', at)) >= 0 and text.startswith('"', end + 1):
                quoted += text[at : end + 1]
                at = end + 2
            if end < 0:
                return [*cells, quoted + text[at:]], True
            quoted += text[at:end]
            at = end + 1
        found = gap.search(text, at)
        stop = found.start() if found else len(text)
        cells.append((quoted + text[at:stop]).strip())
        if not found:
            return cells, False
        at = found.end()
