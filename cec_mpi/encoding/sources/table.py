"""Text tables, CSV and TSV: pandas reads numbers, and csv finds the first bad line."""

from __future__ import annotations

import csv
import os
import re
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from string import whitespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.source import Unread, stamps_of, unreadable
from cec_mpi.errors import InputError
from cec_mpi.text import few, nearest, plural, shown

_MISSING = {"", "?", "-", "--", ".", "na", "n/a", "#n/a", "null", "none", "missing"}
_TOGETHER_BYTES = 4 << 20  # of text
_MOST_IN_QUOTES = 16 << 20  # bytes of a row with quoted line breaks
_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")  # one column, or a range of columns
_LISTED = 8
_LONGEST = 40  # characters of a name
_SHOWN = 40  # characters of a cell
_UNNAMED = ("", "Unnamed: 0")  # names that pandas writes for an index
_END = b"end"
EXACT = (3, 1)
"""The version of pandas that reads all digits by default."""


class _BadRowError(Exception):
    """A bad row, which begins with this line, counted from 0."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


def _rows(lines: Iterable[bytes], delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield rows of a table: their first line, counted from 0, the line after them, and cells.

    A quoted line break ends a line, not a row. Empty lines are skipped.

    Raises
    ------
    _BadRowError
        A line has a carriage return within it, or a cell is too long.
    """
    if delimiter == " ":
        lines = (b" ".join(line.split()) + b"\n" for line in lines)
    texts = (line.decode(errors="replace") for line in lines)
    reader, begin = csv.reader(texts, delimiter=delimiter), 0
    try:
        for row in reader:
            if row and not (len(row) == 1 and row[0].isspace()):
                yield begin, reader.line_num, row
            begin = reader.line_num
    except csv.Error as error:
        problem = f"cannot be read: {error}"
        if "new-line" in str(error):
            problem = "contains a carriage return, expected lines that end with a line feed"
        raise _BadRowError(begin, problem) from None


def is_number(word: str) -> bool:
    """Whether a cell holds a number, including NaN and infinity.

    Examples
    --------
    >>> [is_number(word) for word in ("-1.5e3", "nan", "inf", "", "?", "1_000", "1,5")]
    [True, True, True, False, False, False, False]
    """
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word  # underscores are a feature of Python


def names_or_numbers(cells: list[str]) -> bool | None:
    """Whether the first row of a table is a header; None if this is ambiguous.

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


@dataclass(frozen=True)
class Columns:
    """Columns by position in the file, from 0.

    Attributes
    ----------
    kept : tuple of int
        Columns of X, in its order.
    targets : tuple of int
        Columns to write to files of their own.
    """

    kept: tuple[int, ...]
    targets: tuple[int, ...]


def choose_columns(
    path: Path, names: tuple[str, ...], width: int, options: EncodeOptions
) -> Columns:
    """Find the columns that options select.

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
        return [at for word in words for at in _find(path, option, word, names, width)]

    if not width:
        return Columns((), ())
    kept = find("columns", options.columns or ()) or list(range(width))
    targets = find("target", (column for column, _ in options.target))
    for option, found in (("columns", kept), ("target", targets)):
        if len(set(found)) < len(found):
            twice = next(at for at in found if found.count(at) > 1)
            raise InputError(f"{option}: {named(twice, names)} of {path} is listed twice")
    if len(targets) != len(options.target):
        raise InputError(f"target: expected one column of {path} for each file")
    gone = {*find("drop", options.drop or ()), *targets}
    kept = [at for at in kept if at not in gone]
    if not kept:
        raise InputError(f"{path} has {width} columns, but none of them is left for X")
    return Columns(tuple(kept), tuple(targets))


def named(at: int, names: tuple[str, ...]) -> str:
    """Return the number of a column, from 1, and its name."""
    name = " ".join(names[at].split()) if at < len(names) else ""
    name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return f"column {at + 1} ({name})" if name else f"column {at + 1}"


def _find(path: Path, option: str, word: str | int, names: tuple[str, ...], width: int) -> range:
    text = str(word).strip()
    if isinstance(word, str) and text and text in names:
        places = [at for at, name in enumerate(names) if name == text]
        if len(places) > 1:
            numbers = ", ".join(str(at + 1) for at in places)
            raise InputError(
                f"{option} {text!r}: {path} has {len(places)} columns of this name, expected the "
                f"number of one of them ({numbers})"
            )
        return range(places[0], places[0] + 1)
    if found := _NUMBERS.fullmatch(text):
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= width:
            raise InputError(f"{option} {text!r}: expected columns 1 to {width} of {path}")
        return range(first - 1, last)
    raise InputError(
        f"{option} {shown(text)}: {path} has no such column: {_what_there_is(text, names)}"
    )


def _what_there_is(text: str, names: tuple[str, ...]) -> str:
    if not any(names):
        return "columns have no names, expected numbers from 1 on"
    alike = (name for name in names if name.lower() == text.lower())
    if close := nearest(text, names) or next(alike, ""):
        return f"did you mean {close!r}?"
    return f"its columns are {few(names, _LISTED)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TextTable(Unread):
    """A table of numbers as text.

    Attributes
    ----------
    path : Path
    delimiter : str
        One character; a space stands for any white space.
    names : tuple of str
        Names of all columns of the file; empty if it has no header.
    width : int
        Number of columns of the file.
    kept : tuple of int
        Columns of X, from 0.
    first : int
        Line of the header, or of the first row, from 1.
    begin : tuple of int
        Offset of the first numbers in bytes, and their line.
    """

    path: Path
    delimiter: str
    names: tuple[str, ...] = field(repr=False)
    width: int
    kept: tuple[int, ...] = field(repr=False)
    first: int
    begin: tuple[int, int]

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Parse some rows at a time."""
        done = 0
        for line, lines in self._whole_rows():
            try:
                numbers = self._parsed(lines)
            except (ValueError, _BadRowError):  # pandas does not name the line
                raise InputError(self._problem(line, lines, dtype)) from None
            with np.errstate(over="ignore"):
                if not np.isfinite(numbers.astype(dtype)).all():
                    raise InputError(self._problem(line, lines, dtype))
            if len(numbers):
                yield done, 0, numbers
            done += len(numbers)

    def _whole_rows(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield lines of complete rows, some at a time, with the number of the first one."""
        place, line = self.begin
        rest: list[bytes] = []
        warned = self.width == 1
        with self.path.open("rb") as file:
            file.seek(place)
            size = os.fstat(file.fileno()).st_size
            while new := file.readlines(_TOGETHER_BYTES):
                if self.watch is not None:
                    self.watch(file.tell(), size)
                for at, text in enumerate(new):
                    if b"#" in text and text.lstrip().startswith(b"#"):
                        if not warned and self._is_like_a_row(text):
                            warnings.warn(
                                f"{self.path}: line {line + len(rest) + at} and other lines that "
                                "begin with # are skipped as comments",
                                stacklevel=2,
                            )
                            warned = True
                        new[at] = b"\n"
                lines = rest + new
                end = self._end_of_rows(lines)
                rest = lines[end:]
                if sum(map(len, rest)) > _MOST_IN_QUOTES:
                    break
                yield line, lines[:end]
                line += end
        if rest:
            raise InputError(f"{self.path}: line {line} opens a quote that is never closed")

    def _is_like_a_row(self, line: bytes) -> bool:
        return any(len(row) == self.width for _, _, row in _rows([line], self.delimiter))

    def _end_of_rows(self, lines: list[bytes]) -> int:
        """Return the number of lines without an incomplete last row."""
        if not any(b'"' in line for line in lines):
            return len(lines)
        try:
            ((begin, _, row),) = deque(_rows([*lines, _END], self.delimiter), maxlen=1)
        except _BadRowError:  # reported when the row is parsed
            return len(lines)
        return len(lines) if row == [_END.decode()] else begin

    def _parsed(self, lines: list[bytes]) -> NDArray[Any]:
        """Numbers of X and of targets.

        Raises
        ------
        ValueError
            A row has another number of columns, or a cell is not a number.
        """
        columns = [*self.kept, *(at for at, _ in self.targets)]
        rows = [line for line in lines if not line.isspace()]
        if columns == list(range(self.width)) and not any(b'"' in line for line in rows):
            cells = self._plain_cells(rows)
        else:
            picked = [row for _, _, row in _rows(lines, self.delimiter)]
            if any(len(row) != self.width for row in picked):
                raise ValueError
            cells = "\n".join([row[at] for row in picked for at in columns]).encode()
            rows = [b""] * len(picked)
        if not rows:
            return np.empty((0, len(columns)))
        import pandas

        version = tuple(map(int, pandas.__version__.split(".")[:2]))
        # One column for all cells, because each column of a frame takes time.
        frame = pandas.read_csv(
            BytesIO(cells),
            header=None,
            dtype=np.float64,
            na_filter=False,
            skip_blank_lines=False,
            quoting=csv.QUOTE_NONE,
            encoding="latin-1",  # which any text is; numbers are ASCII
            **({} if version >= EXACT else {"float_precision": "round_trip"}),
        )
        if frame.shape != (len(rows) * len(columns), 1):  # for example, a line break in a cell
            raise ValueError
        numbers: NDArray[Any] = frame.to_numpy().reshape(len(rows), len(columns))
        return numbers

    def _plain_cells(self, rows: list[bytes]) -> bytes:
        """Return the cells of rows without quotes, one per line."""
        if self.delimiter == " ":
            if any(len(row.split()) != self.width for row in rows):
                raise ValueError
            return b"\n".join(b" ".join(rows).split())
        separator = self.delimiter.encode()
        if any(row.count(separator) != self.width - 1 for row in rows):
            raise ValueError
        return b"\n".join([row.rstrip(b"\r\n") for row in rows]).replace(separator, b"\n")

    def _problem(self, line: int, lines: list[bytes], dtype: np.dtype[Any]) -> str:
        """Return what is wrong with the first bad row."""
        targets = [at for at, _ in self.targets]
        try:
            for begin, _, row in _rows(lines, self.delimiter):
                if len(row) != self.width:
                    is_other = self.delimiter == "," and any(";" in cell for cell in row)
                    return (
                        f"{self.path}: line {line + begin} has {plural(len(row), 'column')}, but "
                        f"line {self.first} has {self.width}"
                        f"{' (or --delimiter semicolon, and decimal points)' if is_other else ''}"
                    )
                for at in sorted({*self.kept, *targets}):
                    cell = row[at].strip(whitespace)  # a no-break space is not white space here
                    place = f"line {line + begin}, {named(at, self.names)}"
                    if not is_number(cell):
                        return (
                            f"{self.path}: {place} is {_shown(cell)}, expected a number"
                            f"{_advice(cell, self.delimiter)}; --drop {at + 1} leaves this column "
                            "out, --columns chooses others"
                        )
                    with np.errstate(over="ignore"):
                        is_finite = np.isfinite(np.float64(cell).astype(dtype))
                    if not is_finite:
                        is_target = ", a target" if at in targets else ""
                        return (
                            f"{self.path} holds {np.float64(cell)} at {place}{is_target}, "
                            f"expected finite numbers in the range of {dtype}"
                        )
        except _BadRowError as error:
            return f"{self.path}: line {line + error.line} {error}"
        return f"{self.path} cannot be read as a table of numbers after line {line}"


def text_table(path: Path, delimiter: str, options: EncodeOptions) -> TextTable:
    """Read the first row of a table, and find its columns.

    Parameters
    ----------
    path : Path
    delimiter : str
        Delimiter that the name of the file implies.
    options : EncodeOptions

    Raises
    ------
    InputError
        The file cannot be read, it is ambiguous whether its first row is a header, or `options` do
        not fit.
    """
    between = options.delimiter or delimiter
    try:
        stamps = stamps_of(path)
        with path.open("rb") as file:
            first, cells, following = _first_row(path, file, between)
            place, line = file.tell(), following
            names = tuple(cells) if _is_header(path, first, cells, between, options.header) else ()
            if not names:
                place, line = _begin(file), 1
    except OSError as error:
        raise unreadable(path, error) from None
    chosen = choose_columns(path, names, len(cells), options)
    warning = ""
    if 0 in chosen.kept and len(names) > 1 and names[0] in _UNNAMED:
        called = f"the name {names[0]}" if names[0] else "no name"
        warning = (
            f"{path}: column 1 has {called}, like the index of a data frame, and becomes a column "
            "of X: use --drop 1 to leave it out"
        )
    files = (Path(file) for _, file in options.target)
    return TextTable(
        name=str(path),
        path=path,
        shape=(0, len(chosen.kept)),
        dtype=np.dtype(np.float64),
        column_names=tuple(names[at] for at in chosen.kept) if names else (),
        warning=warning,
        stamps=stamps,
        stamps_now=partial(stamps_of, path),
        targets=tuple(zip(chosen.targets, files, strict=False)),
        delimiter=between,
        names=names,
        width=len(cells),
        kept=chosen.kept,
        first=first,
        begin=(place, line),
    )


def _begin(file: BinaryIO) -> int:
    """Skip a byte order mark."""
    file.seek(0)
    file.seek(len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0)
    return file.tell()


def _first_row(path: Path, file: BinaryIO, delimiter: str) -> tuple[int, list[str], int]:
    """Read the first row; return its line, its cells, and the next line."""
    start = file.read(3)
    if start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or b"\0" in start:
        raise InputError(f"{path} is UTF-16 or binary, expected a text table in UTF-8")
    _begin(file)

    def lines() -> Iterator[bytes]:
        size = 0
        while line := file.readline():
            is_between = not line.strip() or line.lstrip().startswith(b"#")
            size += 0 if is_between else len(line)
            if size > max(_MOST_IN_QUOTES, len(line)):
                raise InputError(f"{path}: its first row opens a quote that is never closed")
            yield b"\n" if is_between else line

    try:
        for begin, end, row in _rows(lines(), delimiter):
            return begin + 1, [cell.strip() for cell in row], end + 1
    except _BadRowError as error:
        raise InputError(f"{path}: line {error.line + 1} {error}") from None
    return 1, [], 1


def _is_header(path: Path, line: int, cells: list[str], delimiter: str, given: bool | None) -> bool:
    """Whether the first row has the names of columns."""
    if given is not None or not cells:
        return bool(given)
    found = names_or_numbers(cells)
    if found and any(_advice(cell, delimiter) for cell in cells):
        found = None  # these names look like numbers with another delimiter
    if found is None:
        at = next(at for at, cell in enumerate(cells) if not is_number(cell))
        what = "numbers and" if any(map(is_number, cells)) else "no names:"
        raise InputError(
            f"{path}: line {line} has {what} {_shown(cells[at])} in column {at + 1}: "
            "use --header yes if this row has the names of columns, --header no if it has numbers"
            f"{_advice(cells[at], delimiter)}"
        )
    return found


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}...") if cell else "an empty cell"


def _advice(cell: str, delimiter: str) -> str:
    """Return advice on a cell that is not a number, or an empty text."""
    for other, name in (("\t", "tab"), (";", "semicolon"), (",", "comma"), ("|", "pipe")):
        parts = cell.split(other)
        if other != delimiter and len(parts) > 1 and all(map(is_number, parts)):
            if other == "," and len(parts) == 2:
                return " (with a decimal point, not a comma)"
            return f" (or --delimiter {name})"
    return ""
